// SPDX-License-Identifier: Apache-2.0
//! A rule as iptables-nft 1.8.9 writes it (iptables `iptables/nft-ipv4.c`, `nft-ipv6.c`, `nft.c`).
//!
//! Order: interfaces, protocol, source, destination, matches in command line order, counter, target. Addresses, ports of
//! tcp and udp, and marks are native expressions; the rest are xt matches and targets in compatibility expressions. Tools
//! before 1.8.8 wrote ports and marks as xt matches and do not see them in any other form, see [`Form`].

use std::borrow::Cow;

use super::layout;
use crate::netlink::expr::{self, Expr, Field, Verdict};
use crate::xt::{Canon, Extension, Family, Protocol, Target};

/// How ports and marks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As native expressions: iptables 1.8.8 and later.
    Native,
    /// As xt matches, which every version reads.
    Extension,
}

/// The expressions of a rule that [`Canon::fits`] the family.
pub(crate) fn encode(rule: &Canon, family: Family, form: Form) -> Vec<Expr<'static>> {
    let mut exprs = Vec::with_capacity(12);
    exprs.extend(rule.in_interface.as_ref().map(|slot| interface(Field::IIFNAME, slot)));
    exprs.extend(rule.out_interface.as_ref().map(|slot| interface(Field::OIFNAME, slot)));
    let protocol = |(number, negated)| Expr::compare(Field::L4PROTO, None, vec![number], negated);
    exprs.extend(rule.protocol.map(protocol));
    let (source, destination) = expr::address_offsets(family == Family::Ipv4);
    exprs.extend(rule.source.map(|(net, negated)| Expr::compare_address(source, net, negated)));
    exprs.extend(rule.destination.map(|(net, negated)| Expr::compare_address(destination, net, negated)));
    exprs.extend(rule.extensions.iter().map(|extension| condition(extension, form)));
    exprs.push(Expr::Counter);
    exprs.push(target(&rule.target, family));
    exprs
}

fn interface(field: Field, (name, negated): &(String, bool)) -> Expr<'static> {
    let data = match name.strip_suffix('+') {
        Some(prefix) => prefix.as_bytes().to_vec(),
        None => [name.as_bytes(), b"\0"].concat(),
    };
    Expr::compare(field, None, data, *negated)
}

fn condition(extension: &Extension, form: Form) -> Expr<'static> {
    match extension {
        Extension::Port(Protocol::Sctp, port) => xt_match("sctp", 0, layout::sctp(*port)),
        Extension::Port(protocol, port) if form == Form::Extension => {
            xt_match(protocol.name(), 0, layout::ports(*port))
        }
        Extension::Port(_, port) => {
            Expr::compare(Field::DESTINATION_PORT, None, port.to_be_bytes().to_vec(), false)
        }
        Extension::Ports(ports) => xt_match("multiport", 1, layout::multiport(ports)),
        Extension::Comment(text) => xt_match("comment", 0, layout::comment(text)),
        Extension::State(states) => xt_match("conntrack", 3, layout::conntrack(*states)),
        Extension::DestinationLocal => xt_match("addrtype", 1, layout::destination_local()),
        Extension::Mark { value, mask, negated } if form == Form::Extension => {
            xt_match("mark", 1, layout::mark_match(*value, *mask, *negated))
        }
        Extension::Mark { value, mask, negated } => {
            let mask = (*mask != u32::MAX).then(|| mask.to_ne_bytes().to_vec());
            Expr::compare(Field::MARK, mask, value.to_ne_bytes().to_vec(), *negated)
        }
    }
}

fn target(target: &Target, family: Family) -> Expr<'static> {
    match target {
        Target::Accept => Expr::Verdict(Verdict::Accept),
        Target::Drop => Expr::Verdict(Verdict::Drop),
        Target::Return => Expr::Verdict(Verdict::Return),
        Target::Jump(chain) => Expr::Verdict(Verdict::Jump(Cow::Owned(chain.clone()))),
        Target::Masquerade => xt_target("MASQUERADE", 0, layout::masquerade(family)),
        Target::SetMark { value, mask } => xt_target("MARK", 2, layout::mark(*value, *mask)),
        Target::Dnat(to) => xt_target("DNAT", 2, layout::dnat(*to)),
    }
}

fn xt_match(name: &'static str, rev: u32, info: Vec<u8>) -> Expr<'static> {
    Expr::Match { name: name.into(), rev, info: info.into() }
}

fn xt_target(name: &'static str, rev: u32, info: Vec<u8>) -> Expr<'static> {
    Expr::Target { name: name.into(), rev, info: info.into() }
}
