// SPDX-License-Identifier: Apache-2.0
//! A rule as nft writes it (nftables `src/netlink_linearize.c`), with the protocol conditions that it adds by itself.

use ipnetwork::IpNetwork;

use crate::netlink::expr::{self, Expr, Field, REG_1, RTN_LOCAL};
use crate::nft::{Family, Rule, Statement};
use crate::xt::INTERFACE_SIZE;

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
            Statement::EtherSource { address, negated } => {
                self.compare(Field::ETHER_SOURCE, address.to_vec(), *negated)
            }
            Statement::InInterface { name, negated } => self.interface(Field::IIFNAME, name, *negated),
            Statement::OutInterface { name, negated } => self.interface(Field::OIFNAME, name, *negated),
            Statement::DestinationPort { protocol, port, negated } => {
                self.port(protocol.number(), *port, *negated)
            }
            Statement::DestinationLocal => {
                self.compare(Field::DestinationType, RTN_LOCAL.to_ne_bytes().to_vec(), false);
            }
            Statement::ConntrackState(states) => {
                let mask = u32::from(states.bits()).to_ne_bytes().to_vec();
                self.exprs.push(Expr::compare(Field::ConntrackState, Some(mask), vec![0; 4], true));
            }
            Statement::Marked(bits) => {
                let bits = bits.to_ne_bytes().to_vec();
                self.exprs.push(Expr::compare(Field::MARK, Some(bits.clone()), bits, false));
            }
            Statement::SetMark(bits) => {
                let bytes = |bits: u32| bits.to_ne_bytes().to_vec().into();
                self.exprs.push(Expr::ChangeMark { dreg: REG_1, mask: bytes(!bits), xor: bytes(*bits) });
                self.exprs.push(Expr::SetMark { sreg: REG_1 });
            }
            Statement::Counter => self.exprs.push(Expr::Counter),
            Statement::Verdict(verdict) => self.exprs.push(Expr::Verdict(verdict.clone())),
            Statement::Masquerade => self.exprs.push(Expr::Masquerade),
            Statement::Dnat(to) => self.exprs.push(Expr::Dnat(*to)),
            // without canonical form
            Statement::Raw(_) => {}
        }
    }

    /// In tables of more than one network protocol nft tests for the protocol first.
    fn address(&mut self, net: IpNetwork, which: fn((u32, u32)) -> u32, negated: bool) {
        let number = if net.is_ipv4() { Family::Ip } else { Family::Ip6 }.number();
        if self.family == Family::Inet && self.network != Some(number) {
            self.compare(Field::NFPROTO, vec![number], false);
            self.network = Some(number);
        }
        let offset = which(expr::address_offsets(net.is_ipv4()));
        self.exprs.push(Expr::compare_address(offset, net, negated));
    }

    fn interface(&mut self, field: Field, name: &str, negated: bool) {
        let mut data = name.as_bytes().to_vec();
        data.resize(INTERFACE_SIZE, 0);
        self.compare(field, data, negated);
    }

    fn port(&mut self, protocol: u8, port: u16, negated: bool) {
        if self.transport != Some(protocol) {
            self.compare(Field::L4PROTO, vec![protocol], false);
            self.transport = Some(protocol);
        }
        self.compare(Field::DESTINATION_PORT, port.to_be_bytes().to_vec(), negated);
    }

    fn compare(&mut self, field: Field, data: Vec<u8>, negated: bool) {
        self.exprs.push(Expr::compare(field, None, data, negated));
    }
}
