// SPDX-License-Identifier: Apache-2.0
//! Rules read from the kernel, as nft writes them. A rule with anything in it that [`super::encode()`] does not write is
//! not one of ours and gives `None`.

use std::net::SocketAddr;

use super::encode::INTERFACE_SIZE;
use crate::netlink::expr::{self, Expr, Verdict, base, meta, offset};
use crate::netlink::parts::{Compare, Field, Part, parts};
use crate::nft::{CtState, Family, Protocol, Statement};

/// The statements that these expressions make up.
pub(crate) fn decode(exprs: &[Expr<'_>], family: Family) -> Option<Vec<Statement>> {
    let mut reader =
        Reader { family, network: Tested::default(), transport: Tested::default(), values: [None, None] };
    let mut statements = Vec::new();
    let mut parts = parts(exprs);
    while let Some(part) = parts.next() {
        match part {
            Part::Compare(compare) => statements.extend(reader.compare(&compare)?),
            Part::Change { field: Field::Meta(meta::MARK), register, mask, xor } => {
                let set = Expr::SetMeta { key: meta::MARK, sreg: register };
                matches!(parts.next()?, Part::Single(expr) if *expr == set).then_some(())?;
                statements.push(set_mark(mask, xor)?);
            }
            Part::Change { .. } => return None,
            Part::Single(Expr::Value { dreg, data }) => {
                let slot = usize::try_from(*dreg).ok()?.checked_sub(1)?;
                *reader.values.get_mut(slot)? = Some(&**data);
            }
            Part::Single(expr) => statements.push(reader.single(expr)?),
        }
    }
    // A test of a protocol alone is a statement that this crate does not have.
    (reader.network.is_used() && reader.transport.is_used()).then_some(statements)
}

/// A protocol that was tested for, and whether a statement needed that.
#[derive(Default)]
struct Tested {
    protocol: Option<u8>,
    used: bool,
}

impl Tested {
    fn set(&mut self, data: &[u8]) -> Option<()> {
        self.is_used().then_some(())?;
        *self = Self { protocol: Some(*data.first()?), used: false };
        Some(())
    }

    fn take(&mut self) -> Option<u8> {
        self.used = true;
        self.protocol
    }

    fn is_used(&self) -> bool {
        self.used || self.protocol.is_none()
    }
}

struct Reader<'e> {
    family: Family,
    network: Tested,
    transport: Tested,
    /// What `dnat` takes from registers 1 and 2.
    values: [Option<&'e [u8]>; 2],
}

impl Reader<'_> {
    /// The statement, or nothing for a test that the next one needs.
    fn compare(&mut self, Compare { field, mask, data, negated }: &Compare<'_>) -> Option<Option<Statement>> {
        let negated = *negated;
        Some(Some(match (field, mask) {
            (Field::Payload { base: base::NETWORK, offset: at, .. }, mask) => {
                let is_ipv4 = self.is_ipv4()?;
                let net = expr::network(data, *mask, is_ipv4)?;
                let (source, destination) = offset::addresses(is_ipv4);
                match *at {
                    at if at == source => Statement::SourceAddress { net, negated },
                    at if at == destination => Statement::DestinationAddress { net, negated },
                    _ => return None,
                }
            }
            (Field::ConntrackState, Some(mask)) if negated && data.iter().all(|byte| *byte == 0) => {
                let bits = u32::from_ne_bytes((*mask).try_into().ok()?);
                Statement::ConntrackState(CtState::from_bits(u16::try_from(bits).ok()?)?)
            }
            (Field::Meta(meta::MARK), Some(mask)) if !negated && data == mask => {
                Statement::Marked(u32::from_ne_bytes((*mask).try_into().ok()?))
            }
            (Field::Meta(meta::NFPROTO), None) if !negated && self.family == Family::Inet => {
                self.network.set(data)?;
                return Some(None);
            }
            (Field::Meta(meta::L4PROTO), None) if !negated => {
                self.transport.set(data)?;
                return Some(None);
            }
            (Field::Meta(meta::IIFNAME), None) => Statement::InInterface { name: interface(data)?, negated },
            (Field::Meta(meta::OIFNAME), None) => Statement::OutInterface { name: interface(data)?, negated },
            (Field::Payload { base: base::LINK, offset: offset::ETHER_SOURCE, len: 6 }, None) => {
                Statement::EtherSource { address: (*data).try_into().ok()?, negated }
            }
            (Field::Payload { base: base::TRANSPORT, offset: offset::DESTINATION_PORT, len: 2 }, None) => {
                let protocol = Protocol::from_number(self.transport.take()?)?;
                let port = u16::from_be_bytes((*data).try_into().ok()?);
                Statement::DestinationPort { protocol, port, negated }
            }
            (Field::DestinationType, None) if !negated && *data == expr::RTN_LOCAL.to_ne_bytes() => {
                Statement::DestinationLocal
            }
            _ => return None,
        }))
    }

    fn is_ipv4(&mut self) -> Option<bool> {
        let number = match self.family {
            Family::Inet => self.network.take()?,
            family @ (Family::Ip | Family::Ip6 | Family::Bridge) => family.number(),
        };
        [(Family::Ip, true), (Family::Ip6, false)]
            .into_iter()
            .find(|(family, _)| family.number() == number)
            .map(|(_, is_ipv4)| is_ipv4)
    }

    fn single(&mut self, expr: &Expr<'_>) -> Option<Statement> {
        Some(match expr {
            Expr::Verdict(Verdict::Accept) => Statement::Accept,
            Expr::Verdict(Verdict::Drop) => Statement::Drop,
            Expr::Verdict(Verdict::Return) => Statement::Return,
            Expr::Verdict(Verdict::Jump(chain)) => Statement::Jump(chain.clone().into_owned()),
            Expr::Verdict(Verdict::Goto(chain)) => Statement::Goto(chain.clone().into_owned()),
            Expr::Masquerade => Statement::Masquerade,
            Expr::Dnat { family } if *family == u32::from(self.family.number()) => {
                let [Some(ip), Some(port)] = self.values else { return None };
                let ip = expr::address(ip, self.family == Family::Ip)?;
                Statement::Dnat(SocketAddr::new(ip, expr::port(port)?))
            }
            Expr::Meta { .. }
            | Expr::Payload { .. }
            | Expr::Counter
            | Expr::SetMeta { .. }
            | Expr::Bitwise { .. }
            | Expr::Cmp { .. }
            | Expr::Value { .. }
            | Expr::DestinationType { .. }
            | Expr::ConntrackState { .. }
            | Expr::Dnat { .. }
            | Expr::Match { .. }
            | Expr::Target { .. }
            | Expr::Other => return None,
        })
    }
}

/// Bits that are set: not left as they were, and turned.
fn set_mark(mask: &[u8], xor: &[u8]) -> Option<Statement> {
    let bits = u32::from_ne_bytes(xor.try_into().ok()?);
    (*mask == (!bits).to_ne_bytes()).then_some(Statement::SetMark(bits))
}

/// A whole name; the beginning of many has no zeros behind it.
fn interface(data: &[u8]) -> Option<String> {
    (data.len() == INTERFACE_SIZE && data.last() == Some(&0)).then_some(())?;
    expr::text(data).map(str::to_owned)
}
