// SPDX-License-Identifier: Apache-2.0
//! What fuzz targets call: other people's rules, as both transports read them.

use crate::batch::TableRef;
use crate::{netlink, nft, tool, xt};

/// Reads a datagram of the kernel's as rules of either dialect.
pub fn read_rules(datagram: &[u8]) {
    let tables = [
        TableRef::Xt(xt::Family::Ipv4, xt::Table::Nat),
        TableRef::Xt(xt::Family::Ipv6, xt::Table::Filter),
        TableRef::Nft(nft::Family::Inet, "table".to_owned()),
        TableRef::Nft(nft::Family::Bridge, "nat".to_owned()),
    ];
    for table in tables {
        netlink::listed_in(datagram, &table).for_each(|rule| drop(rule.info()));
    }
}

/// Reads lines of `iptables -S`, and writes those that would delete the rules.
///
/// # Panics
/// When a rule becomes more than the one line that deletes it.
pub fn read_listing(output: &[u8]) {
    for line in output.split(|byte| *byte == b'\n') {
        if let Some(deletion) = tool::deletion(line) {
            assert!(!deletion.contains('\n'), "more than a line: {deletion:?}");
        }
    }
}
