// SPDX-License-Identifier: Apache-2.0
//! Rules read from the kernel, whichever iptables version wrote them.
//!
//! Between 1.8.4 and 1.8.11 the tool moved matches from xt compatibility expressions to native ones (and some back):
//! ports, marks, connection states, comments kept as user data, addresses with or without a mask. All forms give the same
//! [`Canon`]. A rule with anything else in it is not one of ours and gives `None`.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use super::canon::{Canon, Extension, Maybe};
use super::encode::address_offsets;
use super::{Family, Protocol, Target, layout};
use crate::kernel::expr::{self, CMP_EQ, CMP_NEQ, Expr, Verdict, base, meta};

/// The rule that these expressions make up, with the comment of its user data if it has one.
pub(crate) fn decode<'a>(exprs: impl Iterator<Item = Expr<'a>>, family: Family) -> Option<Canon> {
    let mut reader =
        Reader { family, loaded: Loaded::Nothing, values: [None, None], rule: Canon::bare(Target::Accept) };
    let mut target = None;
    for expr in exprs {
        if expr.is_counter() {
            continue;
        }
        // nothing may follow the target
        target.is_none().then_some(())?;
        target = reader.read(expr)?;
    }
    reader.rule.target = target?;
    Some(reader.rule)
}

/// What the working register holds.
enum Loaded<'a> {
    Nothing,
    Meta(u32),
    Field { base: u32, offset: u32, len: u32 },
    Masked(Box<Loaded<'a>>, std::borrow::Cow<'a, [u8]>),
    FibType,
}

struct Reader<'a> {
    family: Family,
    loaded: Loaded<'a>,
    /// Address and port of a native `nat` expression, in registers 1 and 2.
    values: [Option<std::borrow::Cow<'a, [u8]>>; 2],
    rule: Canon,
}

impl<'a> Reader<'a> {
    fn read(&mut self, expr: Expr<'a>) -> Option<Option<Target>> {
        match expr {
            Expr::Meta { key, .. } => self.loaded = Loaded::Meta(key),
            Expr::Payload { base, offset, len, .. } => self.loaded = Loaded::Field { base, offset, len },
            Expr::Fib { result: expr::FIB_ADDRTYPE, flags: expr::FIB_DADDR, .. } => {
                self.loaded = Loaded::FibType
            }
            Expr::Bitwise { mask, xor, .. } if xor.iter().all(|byte| *byte == 0) => {
                let inner = std::mem::replace(&mut self.loaded, Loaded::Nothing);
                self.loaded = Loaded::Masked(Box::new(inner), mask);
            }
            Expr::Cmp { op: op @ (CMP_EQ | CMP_NEQ), data, .. } => {
                let loaded = std::mem::replace(&mut self.loaded, Loaded::Nothing);
                self.compare(&loaded, &data, op == CMP_NEQ)?;
            }
            Expr::Value { dreg, data } => {
                let slot = usize::try_from(dreg).ok()?.checked_sub(1)?;
                *self.values.get_mut(slot)? = Some(data);
            }
            Expr::Match { name, rev, info } => self.xt_match(&name, rev, &info)?,
            Expr::Target { name, rev, info } => return Some(Some(self.xt_target(&name, rev, &info)?)),
            Expr::Verdict(verdict) => return Some(Some(verdict_target(verdict)?)),
            Expr::Masquerade { flags: 0 } => return Some(Some(Target::Masquerade)),
            Expr::Nat { kind: expr::NAT_DNAT, .. } => return Some(Some(self.native_dnat()?)),
            Expr::Counter => {}
            Expr::SetMeta { .. }
            | Expr::Bitwise { .. }
            | Expr::Cmp { .. }
            | Expr::Fib { .. }
            | Expr::Nat { .. }
            | Expr::Masquerade { .. }
            | Expr::Other { .. } => return None,
        }
        Some(None)
    }

    fn compare(&mut self, loaded: &Loaded<'_>, data: &[u8], negated: bool) -> Option<()> {
        match loaded {
            Loaded::Meta(meta::IIFNAME) => fill(&mut self.rule.in_interface, interface(data)?, negated),
            Loaded::Meta(meta::OIFNAME) => fill(&mut self.rule.out_interface, interface(data)?, negated),
            Loaded::Meta(meta::L4PROTO) => fill(&mut self.rule.protocol, *data.first()?, negated),
            Loaded::Meta(meta::MARK) => self.mark(data, u32::MAX, negated),
            Loaded::FibType if data == expr::RTN_LOCAL.to_ne_bytes() && !negated => {
                self.extend(Extension::DestinationLocal)
            }
            Loaded::Field { base: base::NETWORK, offset: 9, len: 1 } if self.family == Family::Ipv4 => {
                fill(&mut self.rule.protocol, *data.first()?, negated)
            }
            Loaded::Field { base: base::NETWORK, offset, .. } => {
                let bits = u8::try_from(8 * data.len()).ok()?;
                self.address(*offset, data, bits, negated)
            }
            Loaded::Field { base: base::TRANSPORT, offset: 2, len: 2 } if !negated => self.port(be16(data)?),
            Loaded::Masked(inner, mask) => match **inner {
                Loaded::Meta(meta::MARK) => {
                    self.mark(data, u32::from_ne_bytes(*mask.first_chunk()?), negated)
                }
                Loaded::Field { base: base::NETWORK, offset, .. } => {
                    self.address(offset, data, expr::mask_prefix(mask)?, negated)
                }
                Loaded::Nothing
                | Loaded::Meta(_)
                | Loaded::Field { .. }
                | Loaded::Masked(..)
                | Loaded::FibType => None,
            },
            Loaded::Nothing | Loaded::Meta(_) | Loaded::Field { .. } | Loaded::FibType => None,
        }
    }

    fn address(&mut self, offset: u32, data: &[u8], prefix: u8, negated: bool) -> Option<()> {
        let (source, destination) = address_offsets(self.family);
        let ip = address(data, self.family)?;
        let net = IpNetwork::new(ip, prefix).ok()?;
        let slot = match offset {
            offset if offset == source => &mut self.rule.source,
            offset if offset == destination => &mut self.rule.destination,
            _ => return None,
        };
        fill(slot, net, negated)
    }

    fn mark(&mut self, data: &[u8], mask: u32, negated: bool) -> Option<()> {
        let value = u32::from_ne_bytes(*data.first_chunk()?);
        self.extend(Extension::Mark { value, mask, negated })
    }

    /// A port belongs to the protocol compared before it.
    fn port(&mut self, port: u16) -> Option<()> {
        let (number, false) = self.rule.protocol? else { return None };
        self.extend(Extension::Port(Protocol::from_number(number)?, port))
    }

    fn extend(&mut self, extension: Extension) -> Option<()> {
        self.rule.extensions.push(extension);
        Some(())
    }

    fn xt_match(&mut self, name: &str, rev: u32, info: &[u8]) -> Option<()> {
        match (name, rev) {
            ("comment", 0) => {
                let text = String::from_utf8_lossy(expr::cut_nul(info)).into_owned();
                self.extend(Extension::Comment(text))
            }
            ("conntrack", 3) => self.extend(Extension::State(layout::read_conntrack(info)?)),
            ("addrtype", 1) if info == layout::destination_local() => {
                self.extend(Extension::DestinationLocal)
            }
            ("multiport", 1) => self.extend(Extension::Ports(layout::read_multiport(info)?)),
            ("tcp" | "udp", 0) => self.port(layout::read_ports(info)?),
            ("sctp", 0) => self.port(layout::read_sctp(info)?),
            ("mark", 1) => {
                let (value, mask) = layout::read_mark(info)?;
                self.extend(Extension::Mark { value, mask, negated: *info.get(8)? != 0 })
            }
            _ => None,
        }
    }

    fn xt_target(&self, name: &str, rev: u32, info: &[u8]) -> Option<Target> {
        match (name, rev) {
            ("MASQUERADE", 0) if info == layout::masquerade(self.family) => Some(Target::Masquerade),
            ("DNAT", 2) => layout::read_dnat(info, self.family).map(Target::Dnat),
            ("MARK", 2) => layout::read_mark(info).map(|(value, mask)| Target::SetMark { value, mask }),
            _ => None,
        }
    }

    fn native_dnat(&self) -> Option<Target> {
        let [Some(ip), Some(port)] = &self.values else { return None };
        Some(Target::Dnat(SocketAddr::new(address(ip, self.family)?, be16(port)?)))
    }
}

fn verdict_target(verdict: Verdict<'_>) -> Option<Target> {
    match verdict {
        Verdict::Accept => Some(Target::Accept),
        Verdict::Drop => Some(Target::Drop),
        Verdict::Return => Some(Target::Return),
        Verdict::Jump(chain) => Some(Target::Jump(chain.into_owned())),
        Verdict::Goto(_) | Verdict::Code(_) => None,
    }
}

/// A name with its zero byte, or the beginning of names without one.
fn interface(data: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(expr::cut_nul(data)).ok()?;
    Some(if data.contains(&0) { name.to_owned() } else { format!("{name}+") })
}

/// The address whose first bytes are `data`.
fn address(data: &[u8], family: Family) -> Option<IpAddr> {
    let mut bytes = [0; 16];
    bytes.get_mut(..data.len())?.copy_from_slice(data);
    Some(match family {
        Family::Ipv4 => bytes.first_chunk::<4>().copied()?.into(),
        Family::Ipv6 => bytes.into(),
    })
}

fn be16(data: &[u8]) -> Option<u16> {
    data.first_chunk().copied().map(u16::from_be_bytes)
}

fn fill<T>(slot: &mut Maybe<T>, value: T, negated: bool) -> Option<()> {
    slot.is_none().then(|| *slot = Some((value, negated)))
}
