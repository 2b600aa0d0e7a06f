// SPDX-License-Identifier: Apache-2.0
//! The C structures that xt matches and targets keep their parameters in (kernel `uapi/linux/netfilter/xt_*.h`), padded
//! to eight bytes as the kernel dumps them.

use std::net::{IpAddr, SocketAddr};

use crate::netlink::expr;
use crate::xt::{CtState, Family};

/// `XT_MAX_COMMENT_LEN`, terminating zero included.
const COMMENT_SIZE: usize = 256;
const MULTIPORT_MAX: usize = 15;
/// `XT_MULTIPORT_DESTINATION`
const MULTIPORT_DESTINATION: u8 = 1;
/// `XT_CONNTRACK_STATE`
const CONNTRACK_STATE: u16 = 1;
/// Offset of `match_flags` in `struct xt_conntrack_mtinfo3`.
const CONNTRACK_FLAGS: usize = 146;
const CONNTRACK_SIZE: usize = 168;
/// `NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED`
const NAT_ADDRESS_AND_PORT: u32 = 3;
const SCTP_SIZE: usize = 296;
/// Offset of `flag_info` in `struct xt_sctp_info`, behind ports, chunk map and its type.
const SCTP_FLAG_INFO: usize = 268;
/// `XT_SCTP_DEST_PORTS`
const SCTP_DEST_PORTS: u32 = 2;

/// `struct xt_comment_info`
pub(super) fn comment(text: &str) -> Vec<u8> {
    let mut info = text.as_bytes().to_vec();
    info.resize(COMMENT_SIZE, 0);
    info
}

/// `struct xt_mark_mtinfo1`
pub(super) fn mark_match(value: u32, mask: u32, negated: bool) -> Vec<u8> {
    let mut info = mark(value, mask);
    info.extend([u8::from(negated), 0, 0, 0, 0, 0, 0, 0]);
    info
}

/// `struct xt_mark_tginfo2`
pub(super) fn mark(value: u32, mask: u32) -> Vec<u8> {
    [value.to_ne_bytes(), mask.to_ne_bytes()].concat()
}

pub(super) fn read_mark(info: &[u8]) -> Option<(u32, u32)> {
    Some((u32_at(info, 0)?, u32_at(info, 4)?))
}

/// `struct xt_addrtype_info_v1` for `--dst-type LOCAL`
pub(super) fn destination_local() -> Vec<u8> {
    let local: u16 = 1 << 2; // XT_ADDRTYPE_LOCAL
    [0u16.to_ne_bytes(), local.to_ne_bytes(), [0; 2], [0; 2]].concat()
}

/// `struct xt_multiport_v1`
pub(super) fn multiport(ports: &[u16]) -> Vec<u8> {
    let mut info = vec![MULTIPORT_DESTINATION, u8::try_from(ports.len()).unwrap_or(u8::MAX)];
    info.extend(ports.iter().flat_map(|port| port.to_ne_bytes()));
    info.resize(48, 0); // unused ports, range flags, invert
    info
}

pub(super) fn read_multiport(info: &[u8]) -> Option<Vec<u16>> {
    let (kind, count) = (*info.first()?, usize::from(*info.get(1)?));
    let plain = info.get(32..48)?.iter().all(|byte| *byte == 0);
    (kind == MULTIPORT_DESTINATION && plain && count <= MULTIPORT_MAX).then_some(())?;
    (0..count).map(|index| u16_at(info, 2 + 2 * index)).collect()
}

/// `struct xt_conntrack_mtinfo3` for `--ctstate`
pub(super) fn conntrack(states: CtState) -> Vec<u8> {
    let mut info = vec![0; CONNTRACK_FLAGS];
    for word in [CONNTRACK_STATE, 0, states.bits()] {
        info.extend(word.to_ne_bytes());
    }
    info.resize(CONNTRACK_SIZE, 0);
    info
}

pub(super) fn read_conntrack(info: &[u8]) -> Option<CtState> {
    let flags = u16_at(info, CONNTRACK_FLAGS)?;
    let inverted = u16_at(info, CONNTRACK_FLAGS + 2)?;
    let states = CtState::from_bits(u16_at(info, CONNTRACK_FLAGS + 4)?)?;
    (flags == CONNTRACK_STATE && inverted == 0).then_some(states)
}

/// `struct xt_sctp_info` for `--dport`
pub(super) fn sctp(port: u16) -> Vec<u8> {
    let mut info = Vec::with_capacity(SCTP_SIZE);
    for word in [port, port, 0, 0] {
        info.extend(word.to_ne_bytes());
    }
    info.resize(SCTP_FLAG_INFO, 0); // chunk map
    info.extend([0xff, 0, 0].repeat(4)); // the tool's mark for unused chunk flags
    info.extend(0u32.to_ne_bytes());
    info.extend(SCTP_DEST_PORTS.to_ne_bytes());
    info.resize(SCTP_SIZE, 0);
    info
}

pub(super) fn read_sctp(info: &[u8]) -> Option<u16> {
    let port = u16_at(info, 0)?;
    (info.get(..SCTP_SIZE)? == sctp(port)).then_some(port)
}

/// `struct xt_tcp` and `struct xt_udp`: source ports, destination ports, and nothing else restricted.
pub(super) fn ports(port: u16) -> Vec<u8> {
    let mut info = Vec::with_capacity(16);
    for word in [0, u16::MAX, port, port] {
        info.extend(word.to_ne_bytes());
    }
    info.resize(16, 0); // tcp flags and options, inversions
    info
}

pub(super) fn read_ports(info: &[u8]) -> Option<u16> {
    let port = u16_at(info, 4)?;
    (info == ports(port)).then_some(port)
}

/// `struct nf_nat_ipv4_multi_range_compat` or `struct nf_nat_range` without any choice: plain MASQUERADE.
pub(super) fn masquerade(family: Family) -> Vec<u8> {
    let mut info = vec![];
    if family == Family::Ipv4 {
        info.extend(1u32.to_ne_bytes()); // rangesize
    }
    info.resize(if family == Family::Ipv4 { 24 } else { 40 }, 0);
    info
}

/// `struct nf_nat_range2` for `--to-destination address:port`
pub(super) fn dnat(to: SocketAddr) -> Vec<u8> {
    let mut info = NAT_ADDRESS_AND_PORT.to_ne_bytes().to_vec();
    for _ in ["min_addr", "max_addr"] {
        let mut address = expr::octets(to.ip());
        address.resize(16, 0);
        info.extend(address);
    }
    for _ in ["min_proto", "max_proto"] {
        info.extend(to.port().to_be_bytes());
    }
    info.resize(48, 0); // base_proto and padding
    info
}

pub(super) fn read_dnat(info: &[u8], family: Family) -> Option<SocketAddr> {
    let address: IpAddr = match family {
        Family::Ipv4 => info.get(4..8)?.first_chunk::<4>().copied()?.into(),
        Family::Ipv6 => info.get(4..20)?.first_chunk::<16>().copied()?.into(),
    };
    let to = SocketAddr::new(address, expr::port(info.get(36..38)?)?);
    (dnat(to) == info).then_some(to)
}

fn u16_at(info: &[u8], offset: usize) -> Option<u16> {
    info.get(offset..offset + 2)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn u32_at(info: &[u8], offset: usize) -> Option<u32> {
    info.get(offset..offset + 4)?.first_chunk().copied().map(u32::from_ne_bytes)
}
