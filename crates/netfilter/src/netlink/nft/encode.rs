// SPDX-License-Identifier: Apache-2.0
//! A rule as nft writes it (nftables `src/netlink_linearize.c`), with the protocol conditions that it adds by itself.

use std::borrow::Cow;
use std::net::SocketAddr;

use ipnetwork::IpNetwork;

use crate::netlink::expr::{self, Expr, REG_1, REG_2, RTN_LOCAL, Verdict, base, meta, offset};
use crate::nft::{Family, Rule, Statement};

/// `IFNAMSIZ`
pub(super) const INTERFACE_SIZE: usize = 16;

/// The expressions of a rule that has a canonical form in the family.
pub(crate) fn encode(rule: &Rule, family: Family) -> Vec<Expr<'static>> {
    let mut encoder = Encoder { family, exprs: Vec::with_capacity(8), network: None, transport: None };
    rule.statements.iter().for_each(|statement| encoder.statement(statement));
    encoder.exprs
}

struct Encoder {
    family: Family,
    exprs: Vec<Expr<'static>>,
    /// Network protocol already tested for, and transport protocol likewise.
    network: Option<u8>,
    transport: Option<u8>,
}

impl Encoder {
    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::SourceAddress { net, negated } => self.address(*net, |(source, _)| source, *negated),
            Statement::DestinationAddress { net, negated } => {
                self.address(*net, |(_, destination)| destination, *negated)
            }
            Statement::EtherSource { address, negated } => self.ether_source(*address, *negated),
            Statement::InInterface { name, negated } => self.interface(meta::IIFNAME, name, *negated),
            Statement::OutInterface { name, negated } => self.interface(meta::OIFNAME, name, *negated),
            Statement::DestinationPort { protocol, port, negated } => {
                self.port(protocol.number(), *port, *negated)
            }
            Statement::DestinationLocal => {
                self.exprs.push(Expr::DestinationType { dreg: REG_1 });
                self.compare(false, RTN_LOCAL.to_ne_bytes().to_vec());
            }
            Statement::ConntrackState(states) => {
                self.exprs.push(Expr::ConntrackState { dreg: REG_1 });
                self.exprs.push(Expr::bitwise(states.bits().into(), 0));
                self.compare(true, vec![0; 4]);
            }
            Statement::Marked(bits) => {
                self.exprs.push(Expr::Meta { key: meta::MARK, dreg: REG_1 });
                self.exprs.push(Expr::bitwise(*bits, 0));
                self.compare(false, bits.to_ne_bytes().to_vec());
            }
            Statement::SetMark(bits) => {
                self.exprs.push(Expr::Meta { key: meta::MARK, dreg: REG_1 });
                self.exprs.push(Expr::bitwise(!bits, *bits));
                self.exprs.push(Expr::SetMeta { key: meta::MARK, sreg: REG_1 });
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
            Statement::Masquerade => self.exprs.push(Expr::Masquerade),
            Statement::Dnat(to) => self.dnat(*to),
            // without canonical form
            Statement::Raw(_) => {}
        }
    }

    /// In tables of more than one network protocol nft tests for the protocol first.
    fn address(&mut self, net: IpNetwork, which: fn((u32, u32)) -> u32, negated: bool) {
        let number = if net.is_ipv4() { Family::Ip } else { Family::Ip6 }.number();
        if self.family == Family::Inet && self.network != Some(number) {
            self.exprs.push(Expr::Meta { key: meta::NFPROTO, dreg: REG_1 });
            self.compare(false, vec![number]);
            self.network = Some(number);
        }
        expr::push_address(&mut self.exprs, which(offset::addresses(net.is_ipv4())), net, negated);
    }

    fn ether_source(&mut self, address: [u8; 6], negated: bool) {
        self.exprs.push(Expr::Payload {
            base: base::LINK,
            offset: offset::ETHER_SOURCE,
            len: 6,
            dreg: REG_1,
        });
        self.compare(negated, address.to_vec());
    }

    fn interface(&mut self, key: u32, name: &str, negated: bool) {
        let mut data = name.as_bytes().to_vec();
        data.resize(INTERFACE_SIZE, 0);
        self.exprs.push(Expr::Meta { key, dreg: REG_1 });
        self.compare(negated, data);
    }

    fn port(&mut self, protocol: u8, port: u16, negated: bool) {
        if self.transport != Some(protocol) {
            self.exprs.push(Expr::Meta { key: meta::L4PROTO, dreg: REG_1 });
            self.compare(false, vec![protocol]);
            self.transport = Some(protocol);
        }
        self.exprs.push(Expr::load_destination_port());
        self.compare(negated, port.to_be_bytes().to_vec());
    }

    fn dnat(&mut self, to: SocketAddr) {
        self.exprs.push(Expr::Value { dreg: REG_1, data: expr::octets(to.ip()).into() });
        self.exprs.push(Expr::Value { dreg: REG_2, data: to.port().to_be_bytes().to_vec().into() });
        self.exprs.push(Expr::Dnat { family: self.family.number().into() });
    }

    fn compare(&mut self, negated: bool, data: Vec<u8>) {
        self.exprs.push(Expr::compare(negated, data));
    }
}
