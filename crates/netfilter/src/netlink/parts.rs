// SPDX-License-Identifier: Apache-2.0
//! A rule's expressions put together: a load, its mask and its comparison are one condition.

use std::borrow::Cow;

use super::expr::{CMP_EQ, CMP_NEQ, Expr};

/// What a rule is made of.
pub(crate) enum Part<'e> {
    /// A field of the packet equals some bytes, or does not.
    Compare(Compare<'e>),
    /// A register gets a field's value, of which some bits are left and some turned.
    Change { field: Field, register: u32, mask: &'e [u8], xor: &'e [u8] },
    /// Something that stands by itself, or that is unknown here.
    Single(&'e Expr<'e>),
}

pub(crate) struct Compare<'e> {
    pub(crate) field: Field,
    pub(crate) mask: Option<&'e [u8]>,
    pub(crate) data: &'e [u8],
    pub(crate) negated: bool,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// Key of a `meta` expression.
    Meta(u32),
    Payload {
        base: u32,
        offset: u32,
        len: u32,
    },
    /// The type of the destination address.
    DestinationType,
    /// The state of the connection, as a set of bits.
    ConntrackState,
}

/// A field in a register, with its mask.
type Loaded<'e> = (Field, u32, Option<&'e Cow<'e, [u8]>>);

/// The parts in order, without counters: those change with traffic and are no part of what a rule says.
pub(crate) fn parts<'e>(exprs: &'e [Expr<'e>]) -> impl Iterator<Item = Part<'e>> {
    let mut loaded: Option<Loaded<'e>> = None;
    exprs.iter().filter_map(move |expr| {
        match expr {
            Expr::Counter => {}
            Expr::Meta { key, dreg } => loaded = Some((Field::Meta(*key), *dreg, None)),
            Expr::Payload { base, offset, len, dreg } => {
                let field = Field::Payload { base: *base, offset: *offset, len: *len };
                loaded = Some((field, *dreg, None));
            }
            Expr::DestinationType { dreg } => loaded = Some((Field::DestinationType, *dreg, None)),
            Expr::ConntrackState { dreg } => loaded = Some((Field::ConntrackState, *dreg, None)),
            Expr::Bitwise { sreg, dreg, mask, xor } => match loaded {
                Some((field, register, None)) if register == *sreg && xor.iter().all(|byte| *byte == 0) => {
                    loaded = Some((field, *dreg, Some(mask)));
                }
                Some((field, register, None)) if register == *sreg => {
                    loaded = None;
                    return Some(Part::Change { field, register: *dreg, mask, xor });
                }
                _ => return Some(Part::Single(expr)),
            },
            Expr::Cmp { sreg, op: op @ (CMP_EQ | CMP_NEQ), data } => match loaded.take() {
                Some((field, register, mask)) if register == *sreg => {
                    let (mask, negated) = (mask.map(|mask| &**mask), *op == CMP_NEQ);
                    return Some(Part::Compare(Compare { field, mask, data, negated }));
                }
                _ => return Some(Part::Single(expr)),
            },
            Expr::SetMeta { .. }
            | Expr::Cmp { .. }
            | Expr::Value { .. }
            | Expr::Verdict(_)
            | Expr::Dnat { .. }
            | Expr::Masquerade
            | Expr::Match { .. }
            | Expr::Target { .. }
            | Expr::Other => return Some(Part::Single(expr)),
        }
        None
    })
}
