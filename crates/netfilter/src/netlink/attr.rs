// SPDX-License-Identifier: Apache-2.0
//! Numbers of nf_tables attributes: `NFTA_*` of the kernel's `uapi/linux/netfilter/nf_tables.h`, without that beginning.

use netlink_bindings::utils::find_attr;

/// A number in network byte order.
pub(crate) fn be32(attrs: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(*find_attr(attrs, kind)?.first_chunk()?))
}

pub(crate) const CHAIN_USE: u16 = 6;
/// The generated encoder numbers it one too low.
pub(crate) const CHAIN_USERDATA: u16 = 12;
pub(crate) const GEN_ID: u16 = 1;
pub(crate) const RULE_HANDLE: u16 = 3;
pub(crate) const RULE_EXPRESSIONS: u16 = 4;
pub(crate) const RULE_USERDATA: u16 = 7;

pub(crate) const EXPR_NAME: u16 = 1;
pub(crate) const EXPR_DATA: u16 = 2;
pub(crate) const DATA_VALUE: u16 = 1;
pub(crate) const DATA_VERDICT: u16 = 2;
pub(crate) const VERDICT_CODE: u16 = 1;
pub(crate) const VERDICT_CHAIN: u16 = 2;

pub(crate) const META_DREG: u16 = 1;
pub(crate) const META_KEY: u16 = 2;
pub(crate) const META_SREG: u16 = 3;
pub(crate) const PAYLOAD_DREG: u16 = 1;
pub(crate) const PAYLOAD_BASE: u16 = 2;
pub(crate) const PAYLOAD_OFFSET: u16 = 3;
pub(crate) const PAYLOAD_LEN: u16 = 4;
pub(crate) const BITWISE_SREG: u16 = 1;
pub(crate) const BITWISE_DREG: u16 = 2;
pub(crate) const BITWISE_MASK: u16 = 4;
pub(crate) const BITWISE_XOR: u16 = 5;
pub(crate) const CMP_SREG: u16 = 1;
pub(crate) const CMP_OP: u16 = 2;
pub(crate) const CMP_DATA: u16 = 3;
pub(crate) const IMMEDIATE_DREG: u16 = 1;
pub(crate) const IMMEDIATE_DATA: u16 = 2;
pub(crate) const CT_DREG: u16 = 1;
pub(crate) const CT_KEY: u16 = 2;
pub(crate) const FIB_DREG: u16 = 1;
pub(crate) const FIB_RESULT: u16 = 2;
pub(crate) const FIB_FLAGS: u16 = 3;
pub(crate) const NAT_TYPE: u16 = 1;
pub(crate) const NAT_FAMILY: u16 = 2;
pub(crate) const NAT_REG_ADDR_MIN: u16 = 3;
pub(crate) const NAT_REG_PROTO_MIN: u16 = 5;
pub(crate) const NAT_FLAGS: u16 = 7;
pub(crate) const MASQ_FLAGS: u16 = 1;
pub(crate) const MASQ_REG_PROTO_MIN: u16 = 2;
pub(crate) const MATCH_NAME: u16 = 1;
pub(crate) const MATCH_REV: u16 = 2;
pub(crate) const MATCH_INFO: u16 = 3;
pub(crate) const TARGET_NAME: u16 = 1;
pub(crate) const TARGET_REV: u16 = 2;
pub(crate) const TARGET_INFO: u16 = 3;
