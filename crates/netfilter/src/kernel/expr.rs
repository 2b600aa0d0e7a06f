// SPDX-License-Identifier: Apache-2.0
//! nf_tables expressions (kernel `uapi/linux/netfilter/nf_tables.h`) as values, to and from netlink attributes.
//!
//! Only what the two dialects need is typed. Everything else decodes to [`Expr::Other`] and can be compared, not written.

use std::borrow::Cow;

use netlink_bindings::nftables::{PushDataAttrs, PushExprAttrs, PushExprListAttrs};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{chop_header, finalize_nested_header, find_attr, push_nested_header};

type Bytes<'a> = Cow<'a, [u8]>;

/// Key of a `meta` expression.
pub(crate) mod meta {
    pub(crate) const MARK: u32 = 3;
    pub(crate) const IIFNAME: u32 = 6;
    pub(crate) const OIFNAME: u32 = 7;
    pub(crate) const NFPROTO: u32 = 15;
    pub(crate) const L4PROTO: u32 = 16;
}

/// Base of a `payload` expression.
pub(crate) mod base {
    pub(crate) const LINK: u32 = 0;
    pub(crate) const NETWORK: u32 = 1;
    pub(crate) const TRANSPORT: u32 = 2;
}

pub(crate) const CMP_EQ: u32 = 0;
pub(crate) const CMP_NEQ: u32 = 1;
pub(crate) const REG_1: u32 = 1;
pub(crate) const REG_2: u32 = 2;
/// `NFT_FIB_RESULT_ADDRTYPE`
pub(crate) const FIB_ADDRTYPE: u32 = 3;
/// `NFTA_FIB_F_DADDR`
pub(crate) const FIB_DADDR: u32 = 2;
/// `RTN_LOCAL`, kernel `uapi/linux/rtnetlink.h`
pub(crate) const RTN_LOCAL: u32 = 2;
/// `NFT_NAT_DNAT`
pub(crate) const NAT_DNAT: u32 = 1;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;

/// What a rule decides (`NFT_JUMP` and its neighbours, `NF_ACCEPT`, `NF_DROP`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    Drop,
    Accept,
    Return,
    Jump(Cow<'a, str>),
    Goto(Cow<'a, str>),
    Code(i32),
}

/// One expression of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expr<'a> {
    Meta { key: u32, dreg: u32 },
    SetMeta { key: u32, sreg: u32 },
    Payload { base: u32, offset: u32, len: u32, dreg: u32 },
    Bitwise { sreg: u32, dreg: u32, mask: Bytes<'a>, xor: Bytes<'a> },
    Cmp { sreg: u32, op: u32, data: Bytes<'a> },
    Value { dreg: u32, data: Bytes<'a> },
    Verdict(Verdict<'a>),
    Counter,
    Fib { dreg: u32, result: u32, flags: u32 },
    Nat { kind: u32, family: u32, address: u32, port: u32 },
    Masquerade { flags: u32 },
    Match { name: Cow<'a, str>, rev: u32, info: Bytes<'a> },
    Target { name: Cow<'a, str>, rev: u32, info: Bytes<'a> },
    Other { name: Cow<'a, str>, data: Bytes<'a> },
}

impl<'a> Expr<'a> {
    /// True for expressions that change with traffic and do not count when rules are compared.
    pub(crate) fn is_counter(&self) -> bool {
        matches!(self, Self::Counter)
    }

    /// True if both are the same kind of expression in the same place, whatever they compare with.
    pub(crate) fn same_shape(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cmp { sreg, data, .. }, Self::Cmp { sreg: other, data: with, .. }) => {
                sreg == other && data.len() == with.len()
            }
            (Self::Bitwise { .. }, Self::Bitwise { .. })
            | (Self::Verdict(_), Self::Verdict(_))
            | (Self::Value { .. }, Self::Value { .. }) => true,
            (Self::Match { name, rev, .. }, Self::Match { name: n, rev: r, .. })
            | (Self::Target { name, rev, .. }, Self::Target { name: n, rev: r, .. }) => name == n && rev == r,
            _ => self == other,
        }
    }

    /// The chain that the expression jumps or goes to.
    pub(crate) fn into_jump(self) -> Option<Cow<'a, str>> {
        if let Self::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) = self { Some(chain) } else { None }
    }

    fn parse(name: &'a [u8], data: &'a [u8]) -> Option<Self> {
        let number = |kind| be32(data, kind);
        Some(match name {
            b"meta" => match number(1) {
                Some(dreg) => Self::Meta { dreg, key: number(2)? },
                None => Self::SetMeta { key: number(2)?, sreg: number(3)? },
            },
            b"payload" if number(1).is_some() => {
                Self::Payload { dreg: number(1)?, base: number(2)?, offset: number(3)?, len: number(4)? }
            }
            b"bitwise" => {
                let (mask, xor) = (find_attr(data, 4)?, find_attr(data, 5)?);
                Self::Bitwise { sreg: number(1)?, dreg: number(2)?, mask: value(mask)?, xor: value(xor)? }
            }
            b"cmp" => Self::Cmp { sreg: number(1)?, op: number(2)?, data: value(find_attr(data, 3)?)? },
            b"immediate" => immediate(number(1)?, find_attr(data, 2)?)?,
            b"counter" => Self::Counter,
            b"fib" => Self::Fib { dreg: number(1)?, result: number(2)?, flags: number(3)? },
            b"nat" => {
                Self::Nat { kind: number(1)?, family: number(2)?, address: number(3)?, port: number(5)? }
            }
            b"masq" if number(2).is_none() => Self::Masquerade { flags: number(1).unwrap_or(0) },
            b"match" => {
                Self::Match { name: text(data, 1)?, rev: number(2)?, info: find_attr(data, 3)?.into() }
            }
            b"target" => {
                Self::Target { name: text(data, 1)?, rev: number(2)?, info: find_attr(data, 3)?.into() }
            }
            _ => return None,
        })
    }
}

fn immediate(dreg: u32, data: &[u8]) -> Option<Expr<'_>> {
    let Some(verdict) = find_attr(data, NFTA_DATA_VERDICT) else {
        return Some(Expr::Value { dreg, data: value(data)? });
    };
    let code = be32(verdict, 1)?.cast_signed();
    Some(Expr::Verdict(match code {
        libc::NF_DROP => Verdict::Drop,
        libc::NF_ACCEPT => Verdict::Accept,
        libc::NFT_JUMP => Verdict::Jump(text(verdict, 2)?),
        libc::NFT_GOTO => Verdict::Goto(text(verdict, 2)?),
        libc::NFT_RETURN => Verdict::Return,
        code => Verdict::Code(code),
    }))
}

/// The expressions of a rule's `NFTA_RULE_EXPRESSIONS` attribute, one by one.
pub(crate) fn decode(list: &[u8]) -> impl Iterator<Item = Expr<'_>> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let (_, element) = chop_header(list, &mut position)?;
        let name = cut_nul(find_attr(element, 1)?);
        let data = find_attr(element, 2).unwrap_or_default();
        let other = || Expr::Other { name: String::from_utf8_lossy(name), data: data.into() };
        Some(Expr::parse(name, data).unwrap_or_else(other))
    })
}

/// Appends expressions to an opened `NFTA_RULE_EXPRESSIONS` attribute.
pub(crate) fn push<P: Pusher>(mut list: PushExprListAttrs<P>, exprs: &[Expr<'_>]) -> PushExprListAttrs<P> {
    for expr in exprs {
        list = push_one(list.nested_elem(), expr);
    }
    list
}

fn push_one<P: Pusher>(element: PushExprAttrs<P>, expr: &Expr<'_>) -> P {
    match expr {
        Expr::Meta { key, dreg } => {
            element.nested_data_meta().push_key(*key).push_dreg(*dreg).end_nested().end_nested()
        }
        Expr::SetMeta { key, sreg } => {
            element.nested_data_meta().push_key(*key).push_sreg(*sreg).end_nested().end_nested()
        }
        Expr::Payload { base, offset, len, dreg } => {
            let data = element.nested_data_payload().push_dreg(*dreg).push_base(*base);
            data.push_offset(*offset).push_len(*len).end_nested().end_nested()
        }
        Expr::Bitwise { sreg, dreg, mask, xor } => {
            let len = u32::try_from(mask.len()).unwrap_or(u32::MAX);
            let data = element.nested_data_bitwise().push_sreg(*sreg).push_dreg(*dreg).push_len(len);
            let data = data.nested_mask().push_value(mask).end_nested();
            data.nested_xor().push_value(xor).end_nested().end_nested().end_nested()
        }
        Expr::Cmp { sreg, op, data } => {
            let cmp = element.nested_data_cmp().push_sreg(*sreg).push_op(*op);
            cmp.nested_data().push_value(data).end_nested().end_nested().end_nested()
        }
        Expr::Value { dreg, data } => {
            let immediate = element.nested_data_immediate().push_dreg(*dreg);
            immediate.nested_data().push_value(data).end_nested().end_nested().end_nested()
        }
        Expr::Verdict(verdict) => {
            let data = element.nested_data_immediate().push_dreg(0).nested_data();
            push_verdict(data, verdict).end_nested().end_nested()
        }
        Expr::Counter => {
            element.nested_data_counter().push_bytes(0).push_packets(0).end_nested().end_nested()
        }
        Expr::Fib { dreg, result, flags } => {
            let fib = element.nested_data_fib().push_dreg(*dreg).push_result(*result);
            fib.push_flags(*flags).end_nested().end_nested()
        }
        Expr::Nat { kind, family, address, port } => {
            let nat = element.nested_data_nat().push_type(*kind).push_family(*family);
            nat.push_reg_addr_min(*address).push_reg_proto_min(*port).end_nested().end_nested()
        }
        Expr::Match { name, rev, info } => {
            let data = element.nested_data_match().push_name_bytes(name.as_bytes()).push_rev(*rev);
            data.push_info(info).end_nested().end_nested()
        }
        Expr::Target { name, rev, info } => {
            let data = element.nested_data_target().push_name_bytes(name.as_bytes()).push_rev(*rev);
            data.push_info(info).end_nested().end_nested()
        }
        Expr::Masquerade { .. } => push_raw(element, b"masq", &[]),
        Expr::Other { name, data } => push_raw(element, name.as_bytes(), data),
    }
}

/// For expressions that the generated encoder lacks.
fn push_raw<P: Pusher>(element: PushExprAttrs<P>, name: &[u8], data: &[u8]) -> P {
    let mut element = element.push_name_bytes(name);
    let buffer = element.as_vec_mut();
    let start = push_nested_header(buffer, 2);
    buffer.extend_from_slice(data);
    finalize_nested_header(buffer, start);
    element.end_nested()
}

fn push_verdict<P: Pusher>(data: PushDataAttrs<P>, verdict: &Verdict<'_>) -> P {
    let (code, chain) = match verdict {
        Verdict::Drop => (libc::NF_DROP, None),
        Verdict::Accept => (libc::NF_ACCEPT, None),
        Verdict::Return => (libc::NFT_RETURN, None),
        Verdict::Jump(chain) => (libc::NFT_JUMP, Some(chain)),
        Verdict::Goto(chain) => (libc::NFT_GOTO, Some(chain)),
        Verdict::Code(code) => (*code, None),
    };
    let mut attrs = data.nested_verdict().push_code(code.cast_unsigned());
    if let Some(chain) = chain {
        attrs = attrs.push_chain_bytes(chain.as_bytes());
    }
    attrs.end_nested().end_nested()
}

fn be32(attrs: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(*find_attr(attrs, kind)?.first_chunk()?))
}

fn value(data: &[u8]) -> Option<Bytes<'_>> {
    Some(find_attr(data, NFTA_DATA_VALUE)?.into())
}

fn text(attrs: &[u8], kind: u16) -> Option<Cow<'_, str>> {
    Some(String::from_utf8_lossy(cut_nul(find_attr(attrs, kind)?)))
}

pub(crate) fn cut_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Compares an address or prefix at `offset` of the network header, as both iptables and nft write it: only the bytes
/// that the prefix covers, with a mask if it ends within a byte.
pub(crate) fn push_address(
    exprs: &mut Vec<Expr<'_>>,
    offset: u32,
    address: &[u8],
    prefix: u8,
    negated: bool,
) {
    let op = if negated { CMP_NEQ } else { CMP_EQ };
    let whole = usize::from(prefix / 8);
    let aligned = prefix.is_multiple_of(8) && whole > 0;
    let len = if aligned { whole } else { address.len() };
    let mask = prefix_mask(prefix, address.len());
    let data: Vec<u8> = address.iter().zip(&mask).map(|(byte, mask)| byte & mask).take(len).collect();
    let wire_len = u32::try_from(len).unwrap_or(u32::MAX);
    exprs.push(Expr::Payload { base: base::NETWORK, offset, len: wire_len, dreg: REG_1 });
    if !aligned {
        exprs.push(Expr::Bitwise {
            sreg: REG_1,
            dreg: REG_1,
            xor: vec![0; mask.len()].into(),
            mask: mask.into(),
        });
    }
    exprs.push(Expr::Cmp { sreg: REG_1, op, data: data.into() });
}

fn prefix_mask(prefix: u8, len: usize) -> Vec<u8> {
    let covered = |index: usize| usize::from(prefix).saturating_sub(8 * index).min(8);
    (0..len).map(|index| u8::try_from(0xff00u16 >> covered(index) & 0xff).unwrap_or(0)).collect()
}

/// The prefix length that a mask stands for, if it stands for one.
pub(crate) fn mask_prefix(mask: &[u8]) -> Option<u8> {
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let prefix = u8::try_from(ones).ok()?;
    (prefix_mask(prefix, mask.len()) == mask).then_some(prefix)
}
