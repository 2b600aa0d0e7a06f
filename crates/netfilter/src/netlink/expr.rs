// SPDX-License-Identifier: Apache-2.0
//! nf_tables expressions (kernel `uapi/linux/netfilter/nf_tables.h`) as values, to and from netlink attributes.
//!
//! Only what the two dialects need is typed. Everything else decodes to [`Expr::Other`]: a rule with it is not ours.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_bindings::nftables::{
    CompatMatchAttrs, ExprBitwiseAttrs, ExprCmpAttrs, ExprCtAttrs, ExprFibAttrs, ExprImmediateAttrs,
    ExprMasqAttrs, ExprMetaAttrs, ExprNatAttrs, ExprPayloadAttrs, ExprTargetAttrs, PushDataAttrs,
    PushExprAttrs, PushExprListAttrs,
};
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
/// `NFTA_EXPR_NAME`
const EXPR_NAME: u16 = 1;
/// `NFTA_EXPR_DATA`
const EXPR_DATA: u16 = 2;
/// `NFT_CT_STATE`
const CT_STATE: u32 = 0;
/// `NFT_FIB_RESULT_ADDRTYPE`
const FIB_ADDRTYPE: u32 = 3;
/// `NFTA_FIB_F_DADDR`
const FIB_DADDR: u32 = 2;
/// `RTN_LOCAL`, kernel `uapi/linux/rtnetlink.h`
pub(crate) const RTN_LOCAL: u32 = 2;
/// `NFT_NAT_DNAT`
const NAT_DNAT: u32 = 1;
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
}

/// One expression of a rule. `ConntrackState` and `DestinationType` load `ct state` and `fib daddr type`; `Dnat` takes the
/// address from the first register and the port from the second.
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
    ConntrackState { dreg: u32 },
    DestinationType { dreg: u32 },
    Dnat { family: u32 },
    Masquerade,
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

    /// `None` if a part of it is missing or unknown here.
    fn parse(name: &[u8], data: &'a [u8]) -> Option<Self> {
        Some(match name {
            b"meta" => {
                let meta = ExprMetaAttrs::new(data);
                let key = meta.get_key().ok()?;
                match meta.get_dreg() {
                    Ok(dreg) => Self::Meta { key, dreg },
                    Err(_) => Self::SetMeta { key, sreg: meta.get_sreg().ok()? },
                }
            }
            b"payload" => {
                let payload = ExprPayloadAttrs::new(data);
                Self::Payload {
                    base: payload.get_base().ok()?,
                    offset: payload.get_offset().ok()?,
                    len: payload.get_len().ok()?,
                    dreg: payload.get_dreg().ok()?,
                }
            }
            b"bitwise" => {
                let bitwise = ExprBitwiseAttrs::new(data);
                let mask = bitwise.get_mask().ok()?.get_value().ok()?.into();
                let xor = bitwise.get_xor().ok()?.get_value().ok()?.into();
                Self::Bitwise { sreg: bitwise.get_sreg().ok()?, dreg: bitwise.get_dreg().ok()?, mask, xor }
            }
            b"cmp" => {
                let cmp = ExprCmpAttrs::new(data);
                let data = cmp.get_data().ok()?.get_value().ok()?.into();
                Self::Cmp { sreg: cmp.get_sreg().ok()?, op: cmp.get_op().ok()?, data }
            }
            b"immediate" => immediate(data)?,
            b"counter" => Self::Counter,
            b"ct" => {
                let ct = ExprCtAttrs::new(data);
                (ct.get_key() == Ok(CT_STATE)).then_some(())?;
                Self::ConntrackState { dreg: ct.get_dreg().ok()? }
            }
            b"fib" => {
                let fib = ExprFibAttrs::new(data);
                (fib.get_result() == Ok(FIB_ADDRTYPE) && fib.get_flags() == Ok(FIB_DADDR)).then_some(())?;
                Self::DestinationType { dreg: fib.get_dreg().ok()? }
            }
            b"nat" => dnat(data)?,
            b"masq" => {
                let masq = ExprMasqAttrs::new(data);
                let is_plain = masq.get_flags().unwrap_or(0) == 0 && masq.get_reg_proto_min().is_err();
                is_plain.then_some(Self::Masquerade)?
            }
            b"match" => {
                let found = CompatMatchAttrs::new(data);
                let (name, info) = (found.get_name().ok()?.to_str().ok()?, found.get_info().ok()?);
                Self::Match { name: name.into(), rev: found.get_rev().ok()?, info: info.into() }
            }
            b"target" => {
                let target = ExprTargetAttrs::new(data);
                let (name, info) = (target.get_name().ok()?.to_str().ok()?, target.get_info().ok()?);
                Self::Target { name: name.into(), rev: target.get_rev().ok()?, info: info.into() }
            }
            _ => return None,
        })
    }
}

fn immediate(data: &[u8]) -> Option<Expr<'_>> {
    let immediate = ExprImmediateAttrs::new(data);
    let (dreg, data) = (immediate.get_dreg().ok()?, immediate.get_data().ok()?);
    let Ok(verdict) = data.get_verdict() else {
        return Some(Expr::Value { dreg, data: data.get_value().ok()?.into() });
    };
    let chain = || verdict.get_chain().ok()?.to_str().ok().map(Cow::Borrowed);
    Some(Expr::Verdict(match verdict.get_code().ok()?.cast_signed() {
        libc::NF_DROP => Verdict::Drop,
        libc::NF_ACCEPT => Verdict::Accept,
        libc::NFT_JUMP => Verdict::Jump(chain()?),
        libc::NFT_GOTO => Verdict::Goto(chain()?),
        libc::NFT_RETURN => Verdict::Return,
        _ => return None,
    }))
}

/// A `dnat` of one address and port. With flags of somebody's (`random`, `persistent`) it is another.
fn dnat(data: &[u8]) -> Option<Expr<'_>> {
    let nat = ExprNatAttrs::new(data);
    let registers = (nat.get_reg_addr_min().ok()?, nat.get_reg_proto_min().ok()?);
    let is_plain = nat.get_type() == Ok(NAT_DNAT)
        && registers == (REG_1, REG_2)
        && nat.get_flags().unwrap_or(0) & !NAT_ADDRESS_AND_PORT == 0;
    is_plain.then_some(Expr::Dnat { family: nat.get_family().ok()? })
}

/// The expressions of a rule's `NFTA_RULE_EXPRESSIONS` attribute, one by one.
pub(crate) fn decode(list: &[u8]) -> impl Iterator<Item = Expr<'_>> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let (_, element) = chop_header(list, &mut position)?;
        let name = find_attr(element, EXPR_NAME).map(cut_nul).unwrap_or_default();
        let data = find_attr(element, EXPR_DATA).unwrap_or_default();
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
        Expr::ConntrackState { dreg } => {
            element.nested_data_ct().push_key(CT_STATE).push_dreg(*dreg).end_nested().end_nested()
        }
        Expr::DestinationType { dreg } => {
            let fib = element.nested_data_fib().push_dreg(*dreg).push_result(FIB_ADDRTYPE);
            fib.push_flags(FIB_DADDR).end_nested().end_nested()
        }
        Expr::Dnat { family } => {
            let nat = element.nested_data_nat().push_type(NAT_DNAT).push_family(*family);
            nat.push_reg_addr_min(REG_1).push_reg_proto_min(REG_2).end_nested().end_nested()
        }
        Expr::Match { name, rev, info } => {
            let data = element.nested_data_match().push_name_bytes(name.as_bytes()).push_rev(*rev);
            data.push_info(info).end_nested().end_nested()
        }
        Expr::Target { name, rev, info } => {
            let data = element.nested_data_target().push_name_bytes(name.as_bytes()).push_rev(*rev);
            data.push_info(info).end_nested().end_nested()
        }
        Expr::Masquerade => push_masquerade(element),
        Expr::Other => element.end_nested(),
    }
}

/// The generated encoder lacks it.
fn push_masquerade<P: Pusher>(element: PushExprAttrs<P>) -> P {
    let mut element = element.push_name_bytes(b"masq");
    let start = push_nested_header(element.as_vec_mut(), EXPR_DATA);
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
    };
    let mut attrs = data.nested_verdict().push_code(code.cast_unsigned());
    if let Some(chain) = chain {
        attrs = attrs.push_chain_bytes(chain.as_bytes());
    }
    attrs.end_nested().end_nested()
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
    let mut data = octets(net.network());
    let whole = usize::from(net.prefix() / 8);
    let aligned = net.prefix().is_multiple_of(8) && whole > 0;
    if aligned {
        data.truncate(whole);
    }
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    exprs.push(Expr::Payload { base: base::NETWORK, offset, len, dreg: REG_1 });
    if !aligned {
        let (mask, xor) = (octets(net.mask()).into(), vec![0; data.len()].into());
        exprs.push(Expr::Bitwise { sreg: REG_1, dreg: REG_1, mask, xor });
    }
    exprs.push(Expr::compare(negated, data));
}

/// The network that such a comparison is about.
pub(crate) fn network(data: &[u8], mask: Option<&[u8]>, is_ipv4: bool) -> Option<IpNetwork> {
    let address = |bytes| address(bytes, is_ipv4);
    match mask {
        Some(mask) => IpNetwork::with_netmask(address(data)?, address(mask)?).ok(),
        None => IpNetwork::new(address(data)?, u8::try_from(8 * data.len()).ok()?).ok(),
    }
}

/// The address whose first bytes are `data`.
pub(crate) fn address(data: &[u8], is_ipv4: bool) -> Option<IpAddr> {
    Some(if is_ipv4 { padded::<4>(data)?.into() } else { padded::<16>(data)?.into() })
}

fn padded<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    bytes.get_mut(..data.len())?.copy_from_slice(data);
    Some(bytes)
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
