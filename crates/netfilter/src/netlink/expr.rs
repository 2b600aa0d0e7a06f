// SPDX-License-Identifier: Apache-2.0
//! nf_tables expressions (kernel `uapi/linux/netfilter/nf_tables.h`) as values, to and from netlink attributes.
//!
//! A load, its mask and its comparison are three expressions to the kernel and one here. Only what the two dialects need is
//! typed. Everything else decodes to [`Expr::Other`]: a rule with it is not ours.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use netlink_bindings::nftables::{
    CompatMatchAttrs, ExprBitwiseAttrs, ExprCmpAttrs, ExprCtAttrs, ExprFibAttrs, ExprImmediateAttrs,
    ExprMasqAttrs, ExprMetaAttrs, ExprNatAttrs, ExprPayloadAttrs, ExprTargetAttrs, PushDataAttrs,
    PushExprAttrs, PushExprListAttrs,
};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{chop_header, finalize_nested_header, find_attr, push_nested_header};

use crate::nft::Verdict;

type Bytes<'a> = Cow<'a, [u8]>;

/// Base of a `payload` expression.
pub(crate) mod base {
    pub(super) const LINK: u32 = 0;
    pub(crate) const NETWORK: u32 = 1;
    pub(super) const TRANSPORT: u32 = 2;
}

/// `NFT_META_MARK`
const META_MARK: u32 = 3;
const CMP_EQ: u32 = 0;
const CMP_NEQ: u32 = 1;
pub(crate) const REG_1: u32 = 1;
const REG_2: u32 = 2;
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

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// Key of a `meta` expression.
    Meta(u32),
    Payload {
        base: u32,
        offset: u32,
        len: u32,
    },
    /// `fib daddr type`: the type of the destination address.
    DestinationType,
    /// `ct state`: the state of the connection, as a set of bits.
    ConntrackState,
}

impl Field {
    pub(crate) const MARK: Self = Self::Meta(META_MARK);
    pub(crate) const IIFNAME: Self = Self::Meta(6);
    pub(crate) const OIFNAME: Self = Self::Meta(7);
    pub(crate) const NFPROTO: Self = Self::Meta(15);
    pub(crate) const L4PROTO: Self = Self::Meta(16);
    pub(crate) const ETHER_SOURCE: Self = Self::Payload { base: base::LINK, offset: 6, len: 6 };
    pub(crate) const IPV4_PROTOCOL: Self = Self::Payload { base: base::NETWORK, offset: 9, len: 1 };
    /// Of TCP, UDP and all others that have ports.
    pub(crate) const DESTINATION_PORT: Self = Self::Payload { base: base::TRANSPORT, offset: 2, len: 2 };
}

/// Where the source and the destination address are in the network header, in bytes.
pub(crate) fn address_offsets(is_ipv4: bool) -> (u32, u32) {
    if is_ipv4 { (12, 16) } else { (8, 24) }
}

/// A field of the packet, or of it the bits of a mask, equals some bytes or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compare<'a> {
    pub(crate) field: Field,
    pub(crate) mask: Option<Bytes<'a>>,
    pub(crate) data: Bytes<'a>,
    pub(crate) negated: bool,
}

/// What a rule is made of. `ChangeMark` loads the packet's mark, leaves some bits of it and turns some; `SetMark` gives it
/// to the packet. `Value` is one that was put into a register, for `Dnat` or nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expr<'a> {
    Compare(Compare<'a>),
    ChangeMark { dreg: u32, mask: Bytes<'a>, xor: Bytes<'a> },
    SetMark { sreg: u32 },
    Value,
    Verdict(Verdict),
    Counter,
    Dnat(SocketAddr),
    Masquerade,
    Match { name: Cow<'a, str>, rev: u32, info: Bytes<'a> },
    Target { name: Cow<'a, str>, rev: u32, info: Bytes<'a> },
    Other,
}

impl Expr<'static> {
    pub(crate) fn compare(field: Field, mask: Option<Vec<u8>>, data: Vec<u8>, negated: bool) -> Self {
        Self::Compare(Compare { field, mask: mask.map(Cow::Owned), data: data.into(), negated })
    }

    /// Compares an address or prefix at `offset` of the network header, as both iptables and nft write it: only the bytes
    /// that the prefix covers, with a mask if it ends within a byte.
    pub(crate) fn compare_address(offset: u32, net: IpNetwork, negated: bool) -> Self {
        let mut data = octets(net.network());
        let whole = usize::from(net.prefix() / 8);
        let aligned = net.prefix().is_multiple_of(8) && whole > 0;
        if aligned {
            data.truncate(whole);
        }
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let field = Field::Payload { base: base::NETWORK, offset, len };
        Self::compare(field, (!aligned).then(|| octets(net.mask())), data, negated)
    }
}

/// What registers hold.
#[derive(Default)]
struct Registers<'a> {
    loaded: Option<Loaded<'a>>,
    /// In registers 1 and 2.
    values: [Option<&'a [u8]>; 2],
}

/// A field in a register, with its mask.
struct Loaded<'a> {
    field: Field,
    register: u32,
    mask: Option<&'a [u8]>,
}

/// The expressions of a rule's `NFTA_RULE_EXPRESSIONS` attribute, without counters: those change with traffic and are no
/// part of what a rule says.
pub(crate) fn decode(list: &[u8]) -> Vec<Expr<'_>> {
    let (mut exprs, mut registers, mut position) = (Vec::new(), Registers::default(), 0);
    while let Some((_, element)) = chop_header(list, &mut position) {
        let name = find_attr(element, EXPR_NAME).map(cut_nul).unwrap_or_default();
        let data = find_attr(element, EXPR_DATA).unwrap_or_default();
        exprs.extend(decode_one(name, data, &mut registers).unwrap_or(Some(Expr::Other)));
    }
    exprs
}

/// The expression, or nothing for what another one needs; `None` if a part of it is missing or unknown here.
fn decode_one<'a>(name: &[u8], data: &'a [u8], registers: &mut Registers<'a>) -> Option<Option<Expr<'a>>> {
    if let Some((field, register)) = load(name, data) {
        registers.loaded = Some(Loaded { field, register, mask: None });
        return Some(None);
    }
    Some(Some(match name {
        b"counter" => return Some(None),
        b"bitwise" => return bitwise(data, &mut registers.loaded),
        b"cmp" => compare(data, registers.loaded.take()?)?,
        b"meta" => {
            let meta = ExprMetaAttrs::new(data);
            (meta.get_key() == Ok(META_MARK)).then_some(())?;
            Expr::SetMark { sreg: meta.get_sreg().ok()? }
        }
        b"immediate" => immediate(data, &mut registers.values)?,
        b"nat" => dnat(data, registers.values)?,
        b"masq" => {
            let masq = ExprMasqAttrs::new(data);
            let is_plain = masq.get_flags().unwrap_or(0) == 0 && masq.get_reg_proto_min().is_err();
            is_plain.then_some(Expr::Masquerade)?
        }
        b"match" => {
            let found = CompatMatchAttrs::new(data);
            let (name, info) = (found.get_name().ok()?.to_str().ok()?, found.get_info().ok()?);
            Expr::Match { name: name.into(), rev: found.get_rev().ok()?, info: info.into() }
        }
        b"target" => {
            let target = ExprTargetAttrs::new(data);
            let (name, info) = (target.get_name().ok()?.to_str().ok()?, target.get_info().ok()?);
            Expr::Target { name: name.into(), rev: target.get_rev().ok()?, info: info.into() }
        }
        _ => return None,
    }))
}

/// What an expression loads into which register; `None` if it loads nothing that is known here.
fn load(name: &[u8], data: &[u8]) -> Option<(Field, u32)> {
    match name {
        b"meta" => {
            let meta = ExprMetaAttrs::new(data);
            Some((Field::Meta(meta.get_key().ok()?), meta.get_dreg().ok()?))
        }
        b"payload" => {
            let payload = ExprPayloadAttrs::new(data);
            let (base, offset) = (payload.get_base().ok()?, payload.get_offset().ok()?);
            let field = Field::Payload { base, offset, len: payload.get_len().ok()? };
            Some((field, payload.get_dreg().ok()?))
        }
        b"ct" => {
            let ct = ExprCtAttrs::new(data);
            (ct.get_key() == Ok(CT_STATE)).then_some((Field::ConntrackState, ct.get_dreg().ok()?))
        }
        b"fib" => {
            let fib = ExprFibAttrs::new(data);
            let is_type = fib.get_result() == Ok(FIB_ADDRTYPE) && fib.get_flags() == Ok(FIB_DADDR);
            is_type.then_some((Field::DestinationType, fib.get_dreg().ok()?))
        }
        _ => None,
    }
}

/// A mask, for the comparison that follows, or a change of the mark.
fn bitwise<'a>(data: &'a [u8], loaded: &mut Option<Loaded<'a>>) -> Option<Option<Expr<'a>>> {
    let bitwise = ExprBitwiseAttrs::new(data);
    let (sreg, dreg) = (bitwise.get_sreg().ok()?, bitwise.get_dreg().ok()?);
    let (mask, xor) = (bitwise.get_mask().ok()?.get_value().ok()?, bitwise.get_xor().ok()?.get_value().ok()?);
    let found = loaded.take().filter(|loaded| loaded.register == sreg && loaded.mask.is_none())?;
    if xor.iter().all(|byte| *byte == 0) {
        *loaded = Some(Loaded { register: dreg, mask: Some(mask), ..found });
        return Some(None);
    }
    let change = Expr::ChangeMark { dreg, mask: mask.into(), xor: xor.into() };
    (found.field == Field::MARK).then_some(Some(change))
}

fn compare<'a>(data: &'a [u8], Loaded { field, register, mask }: Loaded<'a>) -> Option<Expr<'a>> {
    let cmp = ExprCmpAttrs::new(data);
    let negated = match cmp.get_op().ok()? {
        CMP_EQ => false,
        CMP_NEQ => true,
        _ => return None,
    };
    let data = cmp.get_data().ok()?.get_value().ok()?.into();
    let compare = Compare { field, mask: mask.map(Cow::Borrowed), data, negated };
    (cmp.get_sreg() == Ok(register)).then_some(Expr::Compare(compare))
}

fn immediate<'a>(data: &'a [u8], values: &mut [Option<&'a [u8]>; 2]) -> Option<Expr<'a>> {
    let immediate = ExprImmediateAttrs::new(data);
    let (dreg, data) = (immediate.get_dreg().ok()?, immediate.get_data().ok()?);
    let Ok(verdict) = data.get_verdict() else {
        let slot = usize::try_from(dreg).ok()?.checked_sub(1)?;
        *values.get_mut(slot)? = Some(data.get_value().ok()?);
        return Some(Expr::Value);
    };
    let chain = || verdict.get_chain().ok()?.to_str().ok().map(str::to_owned);
    Some(Expr::Verdict(match verdict.get_code().ok()?.cast_signed() {
        libc::NF_DROP => Verdict::Drop,
        libc::NF_ACCEPT => Verdict::Accept,
        libc::NFT_JUMP => Verdict::Jump(chain()?),
        libc::NFT_GOTO => Verdict::Goto(chain()?),
        libc::NFT_RETURN => Verdict::Return,
        _ => return None,
    }))
}

/// A `dnat` to one address and port, from the first register and the second. With flags of somebody's (`random`,
/// `persistent`) it is another.
fn dnat<'a>(data: &[u8], [ip, port]: [Option<&[u8]>; 2]) -> Option<Expr<'a>> {
    let nat = ExprNatAttrs::new(data);
    let registers = (nat.get_reg_addr_min().ok()?, nat.get_reg_proto_min().ok()?);
    let is_plain = nat.get_type() == Ok(NAT_DNAT)
        && registers == (REG_1, REG_2)
        && nat.get_flags().unwrap_or(0) & !NAT_ADDRESS_AND_PORT == 0;
    let is_ipv4 = match nat.get_family().ok()?.cast_signed() {
        libc::NFPROTO_IPV4 => true,
        libc::NFPROTO_IPV6 => false,
        _ => return None,
    };
    let to = SocketAddr::new(address(ip?, is_ipv4)?, u16::from_be_bytes(*port?.first_chunk()?));
    is_plain.then_some(Expr::Dnat(to))
}

/// Appends expressions to an opened `NFTA_RULE_EXPRESSIONS` attribute.
pub(crate) fn push<P: Pusher>(list: PushExprListAttrs<P>, exprs: &[Expr<'_>]) -> PushExprListAttrs<P> {
    exprs.iter().fold(list, push_one)
}

fn push_one<P: Pusher>(list: PushExprListAttrs<P>, expr: &Expr<'_>) -> PushExprListAttrs<P> {
    match expr {
        Expr::Compare(compare) => push_compare(list, compare),
        Expr::ChangeMark { dreg, mask, xor } => push_bitwise(push_load(list, Field::MARK), *dreg, mask, xor),
        Expr::SetMark { sreg } => {
            let data = list.nested_elem().nested_data_meta();
            data.push_key(META_MARK).push_sreg(*sreg).end_nested().end_nested()
        }
        Expr::Verdict(verdict) => {
            let data = list.nested_elem().nested_data_immediate().push_dreg(0).nested_data();
            push_verdict(data, verdict).end_nested().end_nested()
        }
        Expr::Counter => {
            let data = list.nested_elem().nested_data_counter();
            data.push_bytes(0).push_packets(0).end_nested().end_nested()
        }
        Expr::Dnat(to) => {
            let list = push_value(list, REG_1, &octets(to.ip()));
            let list = push_value(list, REG_2, &to.port().to_be_bytes());
            let nat = list.nested_elem().nested_data_nat().push_type(NAT_DNAT);
            let family = if to.is_ipv4() { libc::NFPROTO_IPV4 } else { libc::NFPROTO_IPV6 };
            let nat = nat.push_family(family.cast_unsigned());
            nat.push_reg_addr_min(REG_1).push_reg_proto_min(REG_2).end_nested().end_nested()
        }
        Expr::Match { name, rev, info } => {
            let data = list.nested_elem().nested_data_match().push_name_bytes(name.as_bytes());
            data.push_rev(*rev).push_info(info).end_nested().end_nested()
        }
        Expr::Target { name, rev, info } => {
            let data = list.nested_elem().nested_data_target().push_name_bytes(name.as_bytes());
            data.push_rev(*rev).push_info(info).end_nested().end_nested()
        }
        Expr::Masquerade => push_masquerade(list.nested_elem()),
        Expr::Value | Expr::Other => list.nested_elem().end_nested(),
    }
}

fn push_compare<P: Pusher>(list: PushExprListAttrs<P>, compare: &Compare<'_>) -> PushExprListAttrs<P> {
    let Compare { field, mask, data, negated } = compare;
    let mut list = push_load(list, *field);
    if let Some(mask) = mask {
        list = push_bitwise(list, REG_1, mask, &vec![0; mask.len()]);
    }
    let cmp = list.nested_elem().nested_data_cmp().push_sreg(REG_1);
    let cmp = cmp.push_op(if *negated { CMP_NEQ } else { CMP_EQ });
    cmp.nested_data().push_value(data).end_nested().end_nested().end_nested()
}

fn push_value<P: Pusher>(list: PushExprListAttrs<P>, dreg: u32, data: &[u8]) -> PushExprListAttrs<P> {
    let immediate = list.nested_elem().nested_data_immediate().push_dreg(dreg);
    immediate.nested_data().push_value(data).end_nested().end_nested().end_nested()
}

/// Loads a field into the first register.
fn push_load<P: Pusher>(list: PushExprListAttrs<P>, field: Field) -> PushExprListAttrs<P> {
    let element = list.nested_elem();
    match field {
        Field::Meta(key) => element.nested_data_meta().push_key(key).push_dreg(REG_1).end_nested(),
        Field::Payload { base, offset, len } => {
            let payload = element.nested_data_payload().push_dreg(REG_1).push_base(base);
            payload.push_offset(offset).push_len(len).end_nested()
        }
        Field::ConntrackState => element.nested_data_ct().push_key(CT_STATE).push_dreg(REG_1).end_nested(),
        Field::DestinationType => {
            let fib = element.nested_data_fib().push_dreg(REG_1).push_result(FIB_ADDRTYPE);
            fib.push_flags(FIB_DADDR).end_nested()
        }
    }
    .end_nested()
}

/// Masks, then changes what is in the first register.
fn push_bitwise<P: Pusher>(
    list: PushExprListAttrs<P>,
    dreg: u32,
    mask: &[u8],
    xor: &[u8],
) -> PushExprListAttrs<P> {
    let len = u32::try_from(mask.len()).unwrap_or(u32::MAX);
    let data = list.nested_elem().nested_data_bitwise().push_sreg(REG_1).push_dreg(dreg).push_len(len);
    let data = data.nested_mask().push_value(mask).end_nested();
    data.nested_xor().push_value(xor).end_nested().end_nested().end_nested()
}

/// The generated encoder lacks it.
fn push_masquerade<P: Pusher>(element: PushExprAttrs<P>) -> P {
    let mut element = element.push_name_bytes(b"masq");
    let start = push_nested_header(element.as_vec_mut(), EXPR_DATA);
    finalize_nested_header(element.as_vec_mut(), start);
    element.end_nested()
}

fn push_verdict<P: Pusher>(data: PushDataAttrs<P>, verdict: &Verdict) -> P {
    let code = match verdict {
        Verdict::Drop => libc::NF_DROP,
        Verdict::Accept => libc::NF_ACCEPT,
        Verdict::Return => libc::NFT_RETURN,
        Verdict::Jump(_) => libc::NFT_JUMP,
        Verdict::Goto(_) => libc::NFT_GOTO,
    };
    let mut attrs = data.nested_verdict().push_code(code.cast_unsigned());
    if let Some(chain) = verdict.chain() {
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

/// The network that such a comparison is about.
pub(crate) fn network(data: &[u8], mask: Option<&[u8]>, is_ipv4: bool) -> Option<IpNetwork> {
    let address = |bytes| address(bytes, is_ipv4);
    match mask {
        Some(mask) => IpNetwork::with_netmask(address(data)?, address(mask)?).ok(),
        None => IpNetwork::new(address(data)?, u8::try_from(8 * data.len()).ok()?).ok(),
    }
}

/// The address whose first bytes are `data`.
fn address(data: &[u8], is_ipv4: bool) -> Option<IpAddr> {
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
