// SPDX-License-Identifier: Apache-2.0
//! nf_tables expressions (kernel `uapi/linux/netfilter/nf_tables.h`) as values, to and from netlink attributes.
//!
//! Only what the two dialects need is typed. Everything else decodes to [`Expr::Other`]: a rule with it is not ours.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_bindings::nftables::{PushDataAttrs, PushExprAttrs, PushExprListAttrs};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{chop_header, finalize_nested_header, find_attr, push_nested_header};

use super::attr;

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

/// Where fields are in their headers, in bytes.
pub(crate) mod offset {
    pub(crate) const ETHER_SOURCE: u32 = 6;
    pub(crate) const IPV4_PROTOCOL: u32 = 9;
    /// Of TCP, UDP and all others that have ports.
    pub(crate) const DESTINATION_PORT: u32 = 2;

    /// Source and destination address.
    pub(crate) fn addresses(is_ipv4: bool) -> (u32, u32) {
        if is_ipv4 { (12, 16) } else { (8, 24) }
    }
}

pub(crate) const CMP_EQ: u32 = 0;
pub(crate) const CMP_NEQ: u32 = 1;
pub(crate) const REG_1: u32 = 1;
pub(crate) const REG_2: u32 = 2;
/// `NFT_CT_STATE`
pub(crate) const CT_STATE: u32 = 0;
/// `NFT_FIB_RESULT_ADDRTYPE`
pub(crate) const FIB_ADDRTYPE: u32 = 3;
/// `NFTA_FIB_F_DADDR`
pub(crate) const FIB_DADDR: u32 = 2;
/// `RTN_LOCAL`, kernel `uapi/linux/rtnetlink.h`
pub(crate) const RTN_LOCAL: u32 = 2;
/// `NFT_NAT_DNAT`
pub(crate) const NAT_DNAT: u32 = 1;

/// `NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED`: what newer kernels add by themselves for the two registers
/// (`net/netfilter/nft_nat.c`).
const NAT_ADDRESS_AND_PORT: u32 = 3;

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
    Conntrack { key: u32, dreg: u32 },
    Fib { dreg: u32, result: u32, flags: u32 },
    Nat { kind: u32, family: u32, address: u32, port: u32 },
    Masquerade { flags: u32 },
    Match { name: Cow<'a, str>, rev: u32, info: Bytes<'a> },
    Target { name: Cow<'a, str>, rev: u32, info: Bytes<'a> },
    Other,
}

impl<'a> Expr<'a> {
    /// Compares what is in the first register.
    pub(crate) fn compare(negated: bool, data: impl Into<Bytes<'a>>) -> Self {
        Self::Cmp { sreg: REG_1, op: if negated { CMP_NEQ } else { CMP_EQ }, data: data.into() }
    }

    /// Masks, then changes a number in the first register.
    pub(crate) fn bitwise(mask: u32, xor: u32) -> Self {
        let bytes = |number: u32| number.to_ne_bytes().to_vec().into();
        Self::Bitwise { sreg: REG_1, dreg: REG_1, mask: bytes(mask), xor: bytes(xor) }
    }

    /// Loads the destination port into the first register.
    pub(crate) fn load_destination_port() -> Self {
        Self::Payload { base: base::TRANSPORT, offset: offset::DESTINATION_PORT, len: 2, dreg: REG_1 }
    }

    fn parse(name: &'a [u8], data: &'a [u8]) -> Option<Self> {
        let number = |kind| attr::be32(data, kind);
        let text = |kind| text(find_attr(data, kind)?).map(Cow::Borrowed);
        Some(match name {
            b"meta" => match number(attr::META_DREG) {
                Some(dreg) => Self::Meta { dreg, key: number(attr::META_KEY)? },
                None => Self::SetMeta { key: number(attr::META_KEY)?, sreg: number(attr::META_SREG)? },
            },
            b"payload" => Self::Payload {
                dreg: number(attr::PAYLOAD_DREG)?,
                base: number(attr::PAYLOAD_BASE)?,
                offset: number(attr::PAYLOAD_OFFSET)?,
                len: number(attr::PAYLOAD_LEN)?,
            },
            b"bitwise" => Self::Bitwise {
                sreg: number(attr::BITWISE_SREG)?,
                dreg: number(attr::BITWISE_DREG)?,
                mask: value(find_attr(data, attr::BITWISE_MASK)?)?,
                xor: value(find_attr(data, attr::BITWISE_XOR)?)?,
            },
            b"cmp" => Self::Cmp {
                sreg: number(attr::CMP_SREG)?,
                op: number(attr::CMP_OP)?,
                data: value(find_attr(data, attr::CMP_DATA)?)?,
            },
            b"immediate" => immediate(number(attr::IMMEDIATE_DREG)?, find_attr(data, attr::IMMEDIATE_DATA)?)?,
            b"counter" => Self::Counter,
            b"ct" => Self::Conntrack { key: number(attr::CT_KEY)?, dreg: number(attr::CT_DREG)? },
            b"fib" => Self::Fib {
                dreg: number(attr::FIB_DREG)?,
                result: number(attr::FIB_RESULT)?,
                flags: number(attr::FIB_FLAGS)?,
            },
            // With flags of somebody's (`random`, `persistent`) it is another.
            b"nat" if number(attr::NAT_FLAGS).unwrap_or(0) & !NAT_ADDRESS_AND_PORT == 0 => Self::Nat {
                kind: number(attr::NAT_TYPE)?,
                family: number(attr::NAT_FAMILY)?,
                address: number(attr::NAT_REG_ADDR_MIN)?,
                port: number(attr::NAT_REG_PROTO_MIN)?,
            },
            b"masq" if number(attr::MASQ_REG_PROTO_MIN).is_none() => {
                Self::Masquerade { flags: number(attr::MASQ_FLAGS).unwrap_or(0) }
            }
            b"match" => Self::Match {
                name: text(attr::MATCH_NAME)?,
                rev: number(attr::MATCH_REV)?,
                info: find_attr(data, attr::MATCH_INFO)?.into(),
            },
            b"target" => Self::Target {
                name: text(attr::TARGET_NAME)?,
                rev: number(attr::TARGET_REV)?,
                info: find_attr(data, attr::TARGET_INFO)?.into(),
            },
            _ => return None,
        })
    }
}

fn immediate(dreg: u32, data: &[u8]) -> Option<Expr<'_>> {
    let Some(verdict) = find_attr(data, attr::DATA_VERDICT) else {
        return Some(Expr::Value { dreg, data: value(data)? });
    };
    let chain = || text(find_attr(verdict, attr::VERDICT_CHAIN)?).map(Cow::Borrowed);
    Some(Expr::Verdict(match attr::be32(verdict, attr::VERDICT_CODE)?.cast_signed() {
        libc::NF_DROP => Verdict::Drop,
        libc::NF_ACCEPT => Verdict::Accept,
        libc::NFT_JUMP => Verdict::Jump(chain()?),
        libc::NFT_GOTO => Verdict::Goto(chain()?),
        libc::NFT_RETURN => Verdict::Return,
        code => Verdict::Code(code),
    }))
}

/// The expressions of a rule's `NFTA_RULE_EXPRESSIONS` attribute, one by one.
pub(crate) fn decode(list: &[u8]) -> impl Iterator<Item = Expr<'_>> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let (_, element) = chop_header(list, &mut position)?;
        let name = find_attr(element, attr::EXPR_NAME).map(cut_nul).unwrap_or_default();
        let data = find_attr(element, attr::EXPR_DATA).unwrap_or_default();
        Some(Expr::parse(name, data).unwrap_or(Expr::Other))
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
        Expr::Conntrack { key, dreg } => {
            element.nested_data_ct().push_key(*key).push_dreg(*dreg).end_nested().end_nested()
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
        Expr::Masquerade { .. } => push_masquerade(element),
        Expr::Other => element.end_nested(),
    }
}

/// The generated encoder lacks it.
fn push_masquerade<P: Pusher>(element: PushExprAttrs<P>) -> P {
    let mut element = element.push_name_bytes(b"masq");
    let start = push_nested_header(element.as_vec_mut(), attr::EXPR_DATA);
    finalize_nested_header(element.as_vec_mut(), start);
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

fn value(data: &[u8]) -> Option<Bytes<'_>> {
    Some(find_attr(data, attr::DATA_VALUE)?.into())
}

/// A string up to its zero byte. One that is not UTF-8 is nobody's that this crate knows.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(cut_nul(bytes)).ok()
}

pub(crate) fn cut_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Compares an address or prefix at `offset` of the network header, as both iptables and nft write it: only the bytes
/// that the prefix covers, with a mask if it ends within a byte.
pub(crate) fn push_address(exprs: &mut Vec<Expr<'_>>, offset: u32, net: IpNetwork, negated: bool) {
    let (address, prefix) = (octets(net.ip()), net.prefix());
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
    exprs.push(Expr::compare(negated, data));
}

/// The network that such a comparison is about.
pub(crate) fn network(data: &[u8], mask: Option<&[u8]>, is_ipv4: bool) -> Option<IpNetwork> {
    let prefix = match mask {
        Some(mask) => mask_prefix(mask)?,
        None => u8::try_from(8 * data.len()).ok()?,
    };
    IpNetwork::new(address(data, is_ipv4)?, prefix).ok()
}

/// The address whose first bytes are `data`.
pub(crate) fn address(data: &[u8], is_ipv4: bool) -> Option<IpAddr> {
    let mut bytes = [0; 16];
    bytes.get_mut(..data.len())?.copy_from_slice(data);
    Some(if is_ipv4 { bytes.first_chunk::<4>().copied()?.into() } else { bytes.into() })
}

/// A port in network byte order.
pub(crate) fn port(data: &[u8]) -> Option<u16> {
    data.first_chunk().copied().map(u16::from_be_bytes)
}

/// The bytes of an address.
pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
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
