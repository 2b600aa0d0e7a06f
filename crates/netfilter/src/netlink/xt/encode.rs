// SPDX-License-Identifier: Apache-2.0
//! A rule as iptables-nft 1.8.9 writes it (iptables `iptables/nft-ipv4.c`, `nft-ipv6.c`, `nft.c`).
//!
//! Order: interfaces, protocol, source, destination, matches in command line order, counter, target. Addresses, ports of
//! tcp and udp, and marks are native expressions; the rest are xt matches and targets in compatibility expressions. Tools
//! before 1.8.8 wrote ports and marks as xt matches and do not see them in any other form, see [`Form`].

use super::layout;
use crate::netlink::expr::{self, Expr, Field};
use crate::nft::Verdict;
use crate::xt::{Family, Match, Protocol, Rule, Slot, Target};

/// How ports and marks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As native expressions: iptables 1.8.8 and later.
    Native,
    /// As xt matches, which every version reads.
    Extension,
}

/// The expressions of a rule in its canonical form in the family.
pub(crate) fn encode(rule: &Rule, family: Family, form: Form) -> Vec<Expr<'static>> {
    let encoded = |found: &Match| condition(found, family, form);
    let conditions = |slot| rule.matches.iter().filter(move |found| found.slot() == slot).filter_map(encoded);
    let protocol = rule.protocol().map(|(protocol, negated)| Match::Protocol { protocol, negated });
    let mut exprs = Vec::with_capacity(12);
    exprs.extend(conditions(Slot::InInterface));
    exprs.extend(conditions(Slot::OutInterface));
    exprs.extend(protocol.as_ref().and_then(encoded));
    exprs.extend(conditions(Slot::Source));
    exprs.extend(conditions(Slot::Destination));
    exprs.extend(conditions(Slot::Rest));
    exprs.push(Expr::Counter);
    exprs.push(target(&rule.target, family));
    exprs
}

/// `None` for words that only the tool understands, which no canonical form has.
fn condition(condition: &Match, family: Family, form: Form) -> Option<Expr<'static>> {
    let (source, destination) = expr::address_offsets(family == Family::Ipv4);
    Some(match condition {
        Match::Source { address, negated } => Expr::compare_address(source, address.net(), *negated),
        Match::Destination { address, negated } => {
            Expr::compare_address(destination, address.net(), *negated)
        }
        Match::InInterface { name, negated } => interface(Field::IIFNAME, name, *negated),
        Match::OutInterface { name, negated } => interface(Field::OIFNAME, name, *negated),
        Match::Protocol { protocol, negated } => {
            Expr::compare(Field::L4PROTO, None, vec![protocol.number()], *negated)
        }
        Match::DestinationPort { protocol: Protocol::Sctp, port } => xt_match("sctp", 0, layout::sctp(*port)),
        Match::DestinationPort { protocol, port } if form == Form::Extension => {
            xt_match(protocol.name(), 0, layout::ports(*port))
        }
        Match::DestinationPort { port, .. } => {
            Expr::compare(Field::DESTINATION_PORT, None, port.to_be_bytes().to_vec(), false)
        }
        Match::DestinationPorts { ports, .. } => xt_match("multiport", 1, layout::multiport(ports)),
        Match::Comment(text) => xt_match("comment", 0, layout::comment(text)),
        Match::ConntrackState(states) => xt_match("conntrack", 3, layout::conntrack(*states)),
        Match::DestinationLocal => xt_match("addrtype", 1, layout::destination_local()),
        Match::Mark { value, mask, negated } if form == Form::Extension => {
            xt_match("mark", 1, layout::mark_match(*value, *mask, *negated))
        }
        Match::Mark { value, mask, negated } => {
            let mask = (*mask != u32::MAX).then(|| mask.to_ne_bytes().to_vec());
            Expr::compare(Field::MARK, mask, value.to_ne_bytes().to_vec(), *negated)
        }
        Match::Raw(_) => return None,
    })
}

fn interface(field: Field, name: &str, negated: bool) -> Expr<'static> {
    let data = match name.strip_suffix('+') {
        Some(prefix) => prefix.as_bytes().to_vec(),
        None => [name.as_bytes(), b"\0"].concat(),
    };
    Expr::compare(field, None, data, negated)
}

fn target(target: &Target, family: Family) -> Expr<'static> {
    match target {
        Target::Accept => Expr::Verdict(Verdict::Accept),
        Target::Drop => Expr::Verdict(Verdict::Drop),
        Target::Return => Expr::Verdict(Verdict::Return),
        Target::Jump(chain) => Expr::Verdict(Verdict::Jump(chain.clone())),
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
