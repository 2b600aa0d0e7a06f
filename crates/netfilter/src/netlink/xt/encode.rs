// SPDX-License-Identifier: Apache-2.0
//! A rule as iptables-nft 1.8.9 writes it (iptables `iptables/nft-ipv4.c`, `nft-ipv6.c`, `nft.c`).
//!
//! Order: interfaces, protocol, source, destination, matches in command line order, counter, target. Addresses, ports of
//! tcp and udp, and marks are native expressions; the rest are xt matches and targets in compatibility expressions. Tools
//! before 1.8.8 wrote ports and marks as xt matches and do not see them in any other form, see [`Form`].

use std::borrow::Cow;

use ipnetwork::IpNetwork;

use super::layout;
use crate::netlink::expr::{self, Expr, REG_1, Verdict, meta, offset};
use crate::xt::{Canon, Extension, Family, Maybe, Protocol, Target};

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
    interface(&mut exprs, meta::IIFNAME, rule.in_interface.as_ref());
    interface(&mut exprs, meta::OIFNAME, rule.out_interface.as_ref());
    if let Some((number, negated)) = rule.protocol {
        exprs.push(Expr::Meta { key: meta::L4PROTO, dreg: REG_1 });
        exprs.push(Expr::compare(negated, vec![number]));
    }
    let (source, destination) = offset::addresses(family == Family::Ipv4);
    address(&mut exprs, source, rule.source);
    address(&mut exprs, destination, rule.destination);
    for extension in &rule.extensions {
        push_extension(&mut exprs, extension, form);
    }
    exprs.push(Expr::Counter);
    exprs.push(target(&rule.target, family));
    exprs
}

fn interface(exprs: &mut Vec<Expr<'static>>, key: u32, slot: Option<&(String, bool)>) {
    let Some((name, negated)) = slot else { return };
    let data = match name.strip_suffix('+') {
        Some(prefix) => prefix.as_bytes().to_vec(),
        None => [name.as_bytes(), b"\0"].concat(),
    };
    exprs.push(Expr::Meta { key, dreg: REG_1 });
    exprs.push(Expr::compare(*negated, data));
}

fn address(exprs: &mut Vec<Expr<'static>>, offset: u32, slot: Maybe<IpNetwork>) {
    if let Some((net, negated)) = slot {
        expr::push_address(exprs, offset, net, negated);
    }
}

fn push_extension(exprs: &mut Vec<Expr<'static>>, extension: &Extension, form: Form) {
    match extension {
        Extension::Port(Protocol::Sctp, port) => exprs.push(xt_match("sctp", 0, layout::sctp(*port))),
        Extension::Port(protocol, port) if form == Form::Extension => {
            exprs.push(xt_match(protocol.name(), 0, layout::ports(*port)));
        }
        Extension::Port(_, port) => {
            exprs.push(Expr::load_destination_port());
            exprs.push(Expr::compare(false, port.to_be_bytes().to_vec()));
        }
        Extension::Ports(ports) => exprs.push(xt_match("multiport", 1, layout::multiport(ports))),
        Extension::Comment(text) => exprs.push(xt_match("comment", 0, layout::comment(text))),
        Extension::State(states) => exprs.push(xt_match("conntrack", 3, layout::conntrack(*states))),
        Extension::DestinationLocal => exprs.push(xt_match("addrtype", 1, layout::destination_local())),
        Extension::Mark { value, mask, negated } if form == Form::Extension => {
            exprs.push(xt_match("mark", 1, layout::mark_match(*value, *mask, *negated)));
        }
        Extension::Mark { value, mask, negated } => {
            exprs.push(Expr::Meta { key: meta::MARK, dreg: REG_1 });
            if *mask != u32::MAX {
                let (mask, xor) = (mask.to_ne_bytes().to_vec().into(), vec![0; 4].into());
                exprs.push(Expr::Bitwise { sreg: REG_1, dreg: REG_1, mask, xor });
            }
            exprs.push(Expr::compare(*negated, value.to_ne_bytes().to_vec()));
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
