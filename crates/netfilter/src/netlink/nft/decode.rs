// SPDX-License-Identifier: Apache-2.0
//! Rules read from the kernel, as nft writes them. A rule with anything in it that [`super::encode()`] does not write is
//! not one of ours and gives `None`.

use crate::netlink::expr::{self, Compare, Expr, Field, base};
use crate::nft::{CtState, Family, Protocol, Statement};
use crate::xt::{self, INTERFACE_SIZE};

/// The statements that these expressions make up.
pub(crate) fn decode(exprs: &[Expr<'_>], family: Family) -> Option<Vec<Statement>> {
    let mut reader = Reader { family, network: Tested::default(), transport: Tested::default() };
    let mut statements = Vec::new();
    let mut exprs = exprs.iter();
    while let Some(expr) = exprs.next() {
        if let Expr::ChangeMark { dreg, mask, xor } = expr {
            (*exprs.next()? == Expr::SetMark { sreg: *dreg }).then_some(())?;
            statements.push(set_mark(mask, xor)?);
        } else {
            statements.extend(reader.single(expr)?);
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

struct Reader {
    family: Family,
    network: Tested,
    transport: Tested,
}

impl Reader {
    /// The statement, or nothing for a test that the next one needs.
    fn compare(&mut self, Compare { field, mask, data, negated }: &Compare<'_>) -> Option<Option<Statement>> {
        let (mask, negated) = (mask.as_deref(), *negated);
        Some(Some(match (*field, mask) {
            (Field::Payload { base: base::NETWORK, offset: at, .. }, mask) => {
                let is_ipv4 = self.is_ipv4()?;
                let net = expr::network(data, mask, is_ipv4)?;
                let (source, destination) = expr::address_offsets(is_ipv4);
                match at {
                    at if at == source => Statement::SourceAddress { net, negated },
                    at if at == destination => Statement::DestinationAddress { net, negated },
                    _ => return None,
                }
            }
            (Field::ConntrackState, Some(mask)) if negated && data.iter().all(|byte| *byte == 0) => {
                let bits = u32::from_ne_bytes(mask.try_into().ok()?);
                Statement::ConntrackState(CtState::from_bits(u16::try_from(bits).ok()?)?)
            }
            (Field::MARK, Some(mask)) if !negated && **data == *mask => {
                Statement::Marked(u32::from_ne_bytes(mask.try_into().ok()?))
            }
            (Field::NFPROTO, None) if !negated && self.family == Family::Inet => {
                self.network.set(data)?;
                return Some(None);
            }
            (Field::L4PROTO, None) if !negated => {
                self.transport.set(data)?;
                return Some(None);
            }
            (Field::IIFNAME, None) => Statement::InInterface { name: interface(data)?, negated },
            (Field::OIFNAME, None) => Statement::OutInterface { name: interface(data)?, negated },
            (Field::ETHER_SOURCE, None) => {
                Statement::EtherSource { address: (**data).try_into().ok()?, negated }
            }
            (Field::DESTINATION_PORT, None) => {
                let protocol = Protocol::from_number(self.transport.take()?)?;
                let port = u16::from_be_bytes((**data).try_into().ok()?);
                Statement::DestinationPort { protocol, port, negated }
            }
            (Field::DestinationType, None) if !negated && **data == expr::RTN_LOCAL.to_ne_bytes() => {
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

    /// The statement, or nothing for what the next one needs.
    fn single(&mut self, expr: &Expr<'_>) -> Option<Option<Statement>> {
        Some(Some(match expr {
            Expr::Compare(compare) => return self.compare(compare),
            Expr::Value => return Some(None),
            Expr::Verdict(verdict) => Statement::Verdict(verdict.clone()),
            Expr::Masquerade => Statement::Masquerade,
            Expr::Dnat(to) if Family::from(xt::Family::of(to.ip())) == self.family => Statement::Dnat(*to),
            Expr::ChangeMark { .. }
            | Expr::SetMark { .. }
            | Expr::Counter
            | Expr::Dnat(_)
            | Expr::Match { .. }
            | Expr::Target { .. }
            | Expr::Other => return None,
        }))
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
