// SPDX-License-Identifier: Apache-2.0
//! What the kernel holds, byte for byte, read without the crate under test.

use netlink_bindings::utils::find_attr;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

const DUMP_CHAINS: u16 = 0x0a04;
const DUMP_RULES: u16 = 0x0a07;
const DUMP_CONNTRACK: u16 = 0x0101;

/// A chain without its handle and use count: name, hook, policy, type, flags and user data.
pub(crate) type Chain = (String, Vec<Option<Vec<u8>>>);

/// A rule without its handle: chain, expressions, user data.
pub(crate) type Rule = (String, Vec<u8>, Option<Vec<u8>>);

/// All chains of a family, ordered by table and name.
pub(crate) fn chains(family: u8) -> Vec<Chain> {
    let parse = |attrs: &[u8]| {
        let name = format!("{}/{}", text(attrs, 1), text(attrs, 3));
        (name, [4, 5, 7, 10, 12].map(|kind| find_attr(attrs, kind).map(<[u8]>::to_vec)).to_vec())
    };
    let mut chains: Vec<Chain> = dump(DUMP_CHAINS, family).iter().map(|attrs| parse(attrs)).collect();
    chains.sort();
    chains
}

/// All rules of a family, in order within each chain. Rules start with counters of zero, so nothing is left out.
pub(crate) fn rules(family: u8) -> Vec<Rule> {
    let parse = |attrs: &[u8]| {
        let chain = format!("{}/{}", text(attrs, 1), text(attrs, 2));
        let bytes = |kind| find_attr(attrs, kind).map(<[u8]>::to_vec);
        (chain, bytes(4).expect("expressions"), bytes(7))
    };
    let mut rules: Vec<Rule> = dump(DUMP_RULES, family).iter().map(|attrs| parse(attrs)).collect();
    rules.sort_by(|one, other| one.0.cmp(&other.0));
    rules
}

/// The original destination port of every connection tracking entry.
pub(crate) fn conntrack(family: u8) -> Vec<u16> {
    let port = |attrs: &[u8]| {
        let transport = find_attr(find_attr(attrs, 1).expect("tuple"), 2).expect("transport");
        find_attr(transport, 3).map(|port| u16::from_be_bytes([port[0], port[1]]))
    };
    dump(DUMP_CONNTRACK, family).iter().filter_map(|attrs| port(attrs)).collect()
}

fn text(attrs: &[u8], kind: u16) -> String {
    let bytes = find_attr(attrs, kind).expect("name");
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

/// The attributes of every answer.
fn dump(kind: u16, family: u8) -> Vec<Vec<u8>> {
    let socket = Socket::new(NETLINK_NETFILTER).expect("socket");
    let mut request = Vec::new();
    request.extend(20u32.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(0x301u16.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([family, 0, 0, 0]);
    socket.send_to(&request, &SocketAddr::new(0, 0), 0).expect("send");
    let mut found = Vec::new();
    loop {
        let mut datagram = Vec::with_capacity(1 << 16);
        socket.recv(&mut datagram, 0).expect("receive");
        let mut rest = datagram.as_slice();
        while let Some(len) = rest.first_chunk().map(|len| u32::from_ne_bytes(*len) as usize) {
            match u16::from_ne_bytes([rest[4], rest[5]]) {
                3 => return found,
                2 => panic!("dump refused: {:?}", &rest[16..20]),
                _ => found.push(rest[20..len].to_vec()),
            }
            rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        }
    }
}
