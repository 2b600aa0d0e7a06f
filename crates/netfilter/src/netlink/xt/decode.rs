// SPDX-License-Identifier: Apache-2.0
//! Rules read from the kernel, whichever iptables version wrote them.
//!
//! Between 1.8.4 and 1.8.11 the tool moved matches from xt compatibility expressions to native ones (and some back):
//! ports, marks, connection states, comments kept as user data, addresses with or without a mask. All forms give the same
//! [`Rule`], in its canonical form. A rule with anything else in it is not one of ours and gives `None`.

use super::layout;
use crate::netlink::expr::{self, Compare, Expr, Field, base};
use crate::nft::Verdict;
use crate::xt::{Family, Match, Protocol, Rule, Target};

/// The rule that these expressions make up.
pub(crate) fn decode(exprs: &[Expr<'_>], family: Family) -> Option<Rule> {
    let mut reader = Reader { family, protocol: None, matches: Vec::new() };
    let mut target = None;
    for expr in exprs {
        // nothing may follow the target
        target.is_none().then_some(())?;
        target = reader.single(expr)?;
    }
    let mut rule = Rule::new(reader.matches, target?);
    // A port says its protocol itself.
    if rule.protocol().is_none() {
        let protocol = reader.protocol.map(|(protocol, negated)| Match::Protocol { protocol, negated });
        rule.matches.extend(protocol);
    }
    rule.in_order()
}

struct Reader {
    family: Family,
    /// Whether it is negated, too.
    protocol: Option<(Protocol, bool)>,
    matches: Vec<Match>,
}

impl Reader {
    fn single(&mut self, expr: &Expr<'_>) -> Option<Option<Target>> {
        match expr {
            Expr::Compare(compare) => self.compare(compare)?,
            Expr::Value => {}
            Expr::Match { name, rev, info } => self.xt_match(name, *rev, info)?,
            Expr::Target { name, rev, info } => return Some(Some(self.xt_target(name, *rev, info)?)),
            Expr::Verdict(verdict) => return Some(Some(verdict_target(verdict)?)),
            Expr::Masquerade => return Some(Some(Target::Masquerade)),
            Expr::Dnat(to) if Family::of(to.ip()) == self.family => return Some(Some(Target::Dnat(*to))),
            // iptables writes marks by its own target.
            Expr::ChangeMark { .. } | Expr::SetMark { .. } | Expr::Dnat(_) | Expr::Counter | Expr::Other => {
                return None;
            }
        }
        Some(None)
    }

    fn compare(&mut self, Compare { field, mask, data, negated }: &Compare<'_>) -> Option<()> {
        let (mask, negated) = (mask.as_deref(), *negated);
        self.matches.push(match (*field, mask) {
            (Field::MARK, mask) => {
                let mask =
                    mask.map_or(Some(u32::MAX), |mask| Some(u32::from_ne_bytes(*mask.first_chunk()?)))?;
                Match::Mark { value: u32::from_ne_bytes(*data.first_chunk()?), mask, negated }
            }
            (Field::IPV4_PROTOCOL, None) if self.family == Family::Ipv4 => {
                return self.set_protocol(*data.first()?, negated);
            }
            (Field::L4PROTO, None) => return self.set_protocol(*data.first()?, negated),
            (Field::Payload { base: base::NETWORK, offset: at, .. }, mask) => {
                let address = expr::network(data, mask, self.family == Family::Ipv4)?.into();
                let (source, destination) = expr::address_offsets(self.family == Family::Ipv4);
                match at {
                    at if at == source => Match::Source { address, negated },
                    at if at == destination => Match::Destination { address, negated },
                    _ => return None,
                }
            }
            (Field::IIFNAME, None) => Match::InInterface { name: interface(data)?, negated },
            (Field::OIFNAME, None) => Match::OutInterface { name: interface(data)?, negated },
            (Field::DestinationType, None) if **data == expr::RTN_LOCAL.to_ne_bytes() && !negated => {
                Match::DestinationLocal
            }
            (Field::DESTINATION_PORT, None) if !negated => self.port(expr::port(data)?)?,
            _ => return None,
        });
        Some(())
    }

    fn set_protocol(&mut self, number: u8, negated: bool) -> Option<()> {
        let protocol = Protocol::from_number(number)?;
        self.protocol.replace((protocol, negated)).is_none().then_some(())
    }

    fn port(&self, port: u16) -> Option<Match> {
        Some(Match::DestinationPort { protocol: self.protocol_of_ports()?, port })
    }

    /// A port belongs to the protocol compared before it.
    fn protocol_of_ports(&self) -> Option<Protocol> {
        let (protocol, false) = self.protocol? else { return None };
        Some(protocol)
    }

    fn xt_match(&mut self, name: &str, rev: u32, info: &[u8]) -> Option<()> {
        self.matches.push(match (name, rev) {
            ("comment", 0) => Match::comment(expr::text(info)?),
            ("conntrack", 3) => Match::ConntrackState(layout::read_conntrack(info)?),
            ("addrtype", 1) if info == layout::destination_local() => Match::DestinationLocal,
            ("multiport", 1) => {
                let ports = layout::read_multiport(info)?;
                Match::DestinationPorts { protocol: self.protocol_of_ports()?, ports }
            }
            ("tcp" | "udp", 0) => self.port(layout::read_ports(info)?)?,
            ("sctp", 0) => self.port(layout::read_sctp(info)?)?,
            ("mark", 1) => {
                let (value, mask) = layout::read_mark(info)?;
                Match::Mark { value, mask, negated: *info.get(8)? != 0 }
            }
            _ => return None,
        });
        Some(())
    }

    fn xt_target(&self, name: &str, rev: u32, info: &[u8]) -> Option<Target> {
        match (name, rev) {
            ("MASQUERADE", 0) if info == layout::masquerade(self.family) => Some(Target::Masquerade),
            ("DNAT", 2) => layout::read_dnat(info, self.family).map(Target::Dnat),
            ("MARK", 2) => layout::read_mark(info).map(|(value, mask)| Target::SetMark { value, mask }),
            _ => None,
        }
    }
}

fn verdict_target(verdict: &Verdict) -> Option<Target> {
    match verdict {
        Verdict::Accept => Some(Target::Accept),
        Verdict::Drop => Some(Target::Drop),
        Verdict::Return => Some(Target::Return),
        Verdict::Jump(chain) => Some(Target::Jump(chain.clone())),
        Verdict::Goto(_) => None,
    }
}

/// A name with its zero byte, or the beginning of names without one.
fn interface(data: &[u8]) -> Option<String> {
    let name = expr::text(data)?;
    Some(if data.contains(&0) { name.to_owned() } else { format!("{name}+") })
}
