// SPDX-License-Identifier: Apache-2.0
//! What fuzz targets call.

use libc::{RTM_NEWADDR, RTM_NEWLINK, RTM_NEWQDISC, RTM_NEWROUTE, RTM_NEWRULE};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage as Route;

use super::{Replies, packets};

/// Decodes every packet of a datagram in every way that this crate knows.
pub fn decode_anything(datagram: &[u8]) {
    for packet in packets::<Route>(datagram).flatten() {
        if let Ok(NetlinkPayload::InnerMessage(message)) = &packet.payload {
            let _ = decode(message.clone());
        }
        let _ = Replies { messages: Vec::new(), interrupted: false }.take(packet);
    }
}

/// Reads a dump in which one message is `foreign`, its header and attributes.
///
/// # Panics
/// When the dump fails, or what stands around the message is not read.
pub fn read_dump_around(foreign: &[u8]) {
    for kind in KINDS {
        let mut datagram = Vec::new();
        push(&mut datagram, RTM_NEWLINK, &link(b"before-\0"));
        push(&mut datagram, kind, foreign);
        push(&mut datagram, RTM_NEWLINK, &link(b"behind-\0"));
        push(&mut datagram, NLMSG_DONE, &0_i32.to_ne_bytes());
        let mut replies = Replies { messages: Vec::new(), interrupted: false };
        let mut is_done = false;
        for packet in packets::<Route>(&datagram) {
            is_done = packet.and_then(|packet| replies.take(packet)).expect("a foreign message ends no dump");
        }
        assert!(is_done, "the end of the dump was not seen");
        let names: Vec<_> = replies.messages.into_iter().filter_map(decode).collect();
        assert!(names.first().is_some_and(|name| name == "before-"), "{names:?}");
        assert!(names.last().is_some_and(|name| name == "behind-"), "{names:?}");
    }
}

/// Decodes a message; the name if it is a link's.
#[expect(clippy::wildcard_enum_match_arm, reason = "what nobody asks for")]
fn decode(message: Route) -> Option<String> {
    match message {
        Route::NewLink(link) | Route::DelLink(link) => return Some(crate::link::decode(link).name),
        Route::NewAddress(addr) | Route::DelAddress(addr) => drop(crate::addr::decode(addr)),
        Route::NewRoute(route) | Route::DelRoute(route) => drop(crate::route::decode(route)),
        Route::NewQueueDiscipline(qdisc) => drop(crate::Tbf::decode(&qdisc)),
        Route::NewRule(rule) | Route::DelRule(rule) => drop(crate::rule::decode(rule)),
        _ => {}
    }
    None
}

/// A link's message with nothing but a name of eight bytes.
fn link(name: &[u8; 8]) -> Vec<u8> {
    let mut body = vec![0; 16];
    body.extend_from_slice(&12_u16.to_ne_bytes());
    body.extend_from_slice(&libc::IFLA_IFNAME.to_ne_bytes());
    body.extend_from_slice(name);
    body
}

fn push(datagram: &mut Vec<u8>, kind: u16, body: &[u8]) {
    let length = u32::try_from(super::NETLINK_HEADER + body.len()).unwrap_or(u32::MAX);
    datagram.extend_from_slice(&length.to_ne_bytes());
    datagram.extend_from_slice(&kind.to_ne_bytes());
    datagram.extend_from_slice(&netlink_packet_core::NLM_F_MULTIPART.to_ne_bytes());
    datagram.extend_from_slice(&[0; 8]);
    datagram.extend_from_slice(body);
    datagram.resize(datagram.len().next_multiple_of(4), 0);
}

const NLMSG_DONE: u16 = 3;
const KINDS: [u16; 5] = [RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWRULE, RTM_NEWQDISC];
