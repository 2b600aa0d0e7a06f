// SPDX-License-Identifier: Apache-2.0
//! A rule as nft writes it (nftables `src/netlink_linearize.c`), with the protocol conditions that it adds by itself.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::{Family, Rule, Statement};
use crate::kernel::expr::{
    CMP_EQ, CMP_NEQ, Expr, FIB_ADDRTYPE, FIB_DADDR, NAT_DNAT, REG_1, REG_2, RTN_LOCAL, Verdict, base, meta,
    push_address,
};
use crate::xt::octets;

/// `IFNAMSIZ`
const INTERFACE_SIZE: usize = 16;

/// The expressions of the rule. `None` if a statement does not fit the family or only nft understands it.
pub(crate) fn encode(rule: &Rule, family: Family) -> Option<Vec<Expr<'static>>> {
    let mut encoder = Encoder { family, exprs: Vec::with_capacity(8), network: None, transport: None };
    for statement in &rule.statements {
        encoder.statement(statement)?;
    }
    Some(encoder.exprs)
}

struct Encoder {
    family: Family,
    exprs: Vec<Expr<'static>>,
    /// Network protocol already tested for, and transport protocol likewise.
    network: Option<u8>,
    transport: Option<u8>,
}

impl Encoder {
    fn statement(&mut self, statement: &Statement) -> Option<()> {
        match statement {
            Statement::SourceAddress { net, negated } => self.address(*net, (12, 8), *negated)?,
            Statement::DestinationAddress { net, negated } => self.address(*net, (16, 24), *negated)?,
            Statement::EtherSource { address, negated } => self.ether_source(*address, *negated)?,
            Statement::InInterface { name, negated } => self.interface(meta::IIFNAME, name, *negated)?,
            Statement::OutInterface { name, negated } => self.interface(meta::OIFNAME, name, *negated)?,
            Statement::DestinationPort { protocol, port, negated } => {
                self.port(protocol.number(), *port, *negated)
            }
            Statement::DestinationLocal => {
                self.exprs.push(Expr::Fib { dreg: REG_1, result: FIB_ADDRTYPE, flags: FIB_DADDR });
                self.compare(false, RTN_LOCAL.to_ne_bytes().to_vec());
            }
            Statement::Counter => self.exprs.push(Expr::Counter),
            Statement::Accept => self.exprs.push(Expr::Verdict(Verdict::Accept)),
            Statement::Drop => self.exprs.push(Expr::Verdict(Verdict::Drop)),
            Statement::Return => self.exprs.push(Expr::Verdict(Verdict::Return)),
            Statement::Jump(chain) => {
                self.exprs.push(Expr::Verdict(Verdict::Jump(Cow::Owned(chain.clone()))))
            }
            Statement::Goto(chain) => {
                self.exprs.push(Expr::Verdict(Verdict::Goto(Cow::Owned(chain.clone()))))
            }
            Statement::Masquerade => self.exprs.push(Expr::Masquerade { flags: 0 }),
            Statement::Dnat(to) => self.dnat(*to)?,
            Statement::Raw(_) => return None,
        }
        Some(())
    }

    fn address(&mut self, net: IpNetwork, offsets: (u32, u32), negated: bool) -> Option<()> {
        let (family, offset) = if net.is_ipv4() { (Family::Ip, offsets.0) } else { (Family::Ip6, offsets.1) };
        self.network_protocol(family)?;
        push_address(&mut self.exprs, offset, &octets(net.ip()), net.prefix(), negated);
        Some(())
    }

    /// In tables of more than one network protocol nft tests for the protocol first.
    fn network_protocol(&mut self, family: Family) -> Option<()> {
        match self.family {
            Family::Inet if self.network == Some(family.number()) => {}
            Family::Inet => {
                self.exprs.push(Expr::Meta { key: meta::NFPROTO, dreg: REG_1 });
                self.compare(false, vec![family.number()]);
                self.network = Some(family.number());
            }
            Family::Ip | Family::Ip6 if self.family == family => {}
            Family::Ip | Family::Ip6 | Family::Bridge => return None,
        }
        Some(())
    }

    fn ether_source(&mut self, address: [u8; 6], negated: bool) -> Option<()> {
        (self.family == Family::Bridge).then_some(())?;
        self.exprs.push(Expr::Payload { base: base::LINK, offset: 6, len: 6, dreg: REG_1 });
        self.compare(negated, address.to_vec());
        Some(())
    }

    fn interface(&mut self, key: u32, name: &str, negated: bool) -> Option<()> {
        (!name.is_empty() && name.len() < INTERFACE_SIZE && !name.contains(['*', '\0'])).then_some(())?;
        let mut data = name.as_bytes().to_vec();
        data.resize(INTERFACE_SIZE, 0);
        self.exprs.push(Expr::Meta { key, dreg: REG_1 });
        self.compare(negated, data);
        Some(())
    }

    fn port(&mut self, protocol: u8, port: u16, negated: bool) {
        if self.transport != Some(protocol) {
            self.exprs.push(Expr::Meta { key: meta::L4PROTO, dreg: REG_1 });
            self.compare(false, vec![protocol]);
            self.transport = Some(protocol);
        }
        self.exprs.push(Expr::Payload { base: base::TRANSPORT, offset: 2, len: 2, dreg: REG_1 });
        self.compare(negated, port.to_be_bytes().to_vec());
    }

    fn dnat(&mut self, to: std::net::SocketAddr) -> Option<()> {
        let family = if to.is_ipv4() { Family::Ip } else { Family::Ip6 };
        (self.family == family).then_some(())?;
        let address: IpAddr = to.ip();
        self.exprs.push(Expr::Value { dreg: REG_1, data: octets(address).into() });
        self.exprs.push(Expr::Value { dreg: REG_2, data: to.port().to_be_bytes().to_vec().into() });
        self.exprs.push(Expr::Nat {
            kind: NAT_DNAT,
            family: family.number().into(),
            address: REG_1,
            port: REG_2,
        });
        Some(())
    }

    fn compare(&mut self, negated: bool, data: Vec<u8>) {
        let op = if negated { CMP_NEQ } else { CMP_EQ };
        self.exprs.push(Expr::Cmp { sreg: REG_1, op, data: data.into() });
    }
}
