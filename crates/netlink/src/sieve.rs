// SPDX-License-Identifier: Apache-2.0
//! What of the kernel's messages is decoded: the attributes that this crate asks about, and no others.
//!
//! Whoever owns a namespace has a say in the messages about it. Names and aliases are bytes to the kernel, and the
//! decoder, which wants UTF-8 and knows the attributes of its day, refuses a whole message for one attribute that it does
//! not understand. What nobody asks about never gets there. Texts do as UTF-8: one that is none can be none of ours, and
//! all that matters is that everything around it is read.
//!
//! Invariant: what is decoded without the sieve says the same with it.

use std::borrow::Cow;

use libc::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_DELRULE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWQDISC,
    RTM_NEWROUTE, RTM_NEWRULE,
};

use Keep::{Inside, OfKind, Text, Whole};

/// The payload of a message, less what nobody asks about. Messages that nobody else has a say in pass as they are.
pub(crate) fn sieve(message: u16, payload: &[u8]) -> Cow<'_, [u8]> {
    let (header, table) = match (message, payload.first()) {
        (RTM_NEWLINK | RTM_DELLINK, Some(&AF_BRIDGE)) => (16, BRIDGE_LINK),
        (RTM_NEWLINK | RTM_DELLINK, _) => (16, LINK),
        (RTM_NEWADDR | RTM_DELADDR, _) => (8, ADDR),
        (RTM_NEWROUTE | RTM_DELROUTE, _) => (12, ROUTE),
        (RTM_NEWRULE | RTM_DELRULE, _) => (12, RULE),
        (RTM_NEWQDISC, _) => (20, QDISC),
        _ => return Cow::Borrowed(payload),
    };
    let Some((header, attributes)) = payload.split_at_checked(header) else { return Cow::Borrowed(payload) };
    let mut kept = Vec::with_capacity(USUAL);
    kept.extend_from_slice(header);
    take(attributes, table, &mut kept);
    Cow::Owned(kept)
}

/// What is kept of the attributes of one level, by number.
type Table = &'static [(u16, Keep)];

#[derive(Clone, Copy)]
enum Keep {
    /// As it is.
    Whole,
    /// As UTF-8.
    Text,
    /// The attributes inside.
    Inside(Table),
    /// As the kind says that the attribute of this number, on the same level, names.
    OfKind(u16, &'static [(&'static [u8], Keep)]),
}

fn take(attributes: &[u8], table: Table, kept: &mut Vec<u8>) {
    for (number, value) in each(attributes) {
        if let Some((_, keep)) = table.iter().find(|(known, _)| *known == number) {
            let start = kept.len();
            kept.extend_from_slice(&[0, 0]);
            kept.extend_from_slice(&number.to_ne_bytes());
            let is_kept = take_value(value, *keep, attributes, kept);
            finish(kept, start, is_kept);
        }
    }
}

/// Appends what is kept of an attribute's value; false if that is nothing.
fn take_value(value: &[u8], keep: Keep, siblings: &[u8], kept: &mut Vec<u8>) -> bool {
    match keep {
        Whole => kept.extend_from_slice(value),
        Text => kept.extend_from_slice(String::from_utf8_lossy(value).as_bytes()),
        Inside(table) => {
            let before = kept.len();
            take(value, table, kept);
            return kept.len() > before;
        }
        OfKind(number, kinds) => {
            let named = attribute(siblings, number).unwrap_or_default();
            let named = named.strip_suffix(&[0]).unwrap_or(named);
            let Some((_, keep)) = kinds.iter().find(|(known, _)| *known == named) else { return false };
            // A bridge's port that says nothing that anybody asks about is one.
            take_value(value, *keep, siblings, kept);
        }
    }
    true
}

/// Gives the attribute that begins at `start` its length, or takes it back.
fn finish(kept: &mut Vec<u8>, start: usize, is_kept: bool) {
    match u16::try_from(kept.len() - start).map(u16::to_ne_bytes) {
        Ok(length) if is_kept => {
            if let Some(place) = kept.get_mut(start..start + length.len()) {
                place.copy_from_slice(&length);
            }
            kept.resize(kept.len().next_multiple_of(ALIGNED), 0);
        }
        // A text of replacements can be longer than an attribute.
        Ok(_) | Err(_) => kept.truncate(start),
    }
}

/// The value of the first attribute of this number.
pub(crate) fn attribute(attributes: &[u8], number: u16) -> Option<&[u8]> {
    each(attributes).find(|(known, _)| *known == number).map(|(_, value)| value)
}

/// The numbers and values of the attributes of one level, up to the first that says something impossible about its length.
pub(crate) fn each(mut attributes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let ([l0, l1, k0, k1], _) = attributes.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let value = attributes.get(ATTRIBUTE_HEADER..length)?;
        attributes = attributes.get(length.next_multiple_of(ALIGNED)..).unwrap_or_default();
        Some((u16::from_ne_bytes([*k0, *k1]) & NLA_TYPE_MASK, value))
    })
}

/// `linux/if_link.h`.
const LINK: Table = &[
    (1, Whole),                                         // IFLA_ADDRESS
    (3, Text),                                          // IFLA_IFNAME
    (4, Whole),                                         // IFLA_MTU
    (5, Whole),                                         // IFLA_LINK
    (10, Whole),                                        // IFLA_MASTER
    (13, Whole),                                        // IFLA_TXQLEN
    (16, Whole),                                        // IFLA_OPERSTATE
    (18, Inside(LINK_INFO)),                            // IFLA_LINKINFO
    (20, Text),                                         // IFLA_IFALIAS
    (26, Inside(&[(AF_INET6, Inside(&[(2, Whole)]))])), // IFLA_AF_SPEC: IFLA_INET6_CONF
    (30, Whole),                                        // IFLA_PROMISCUITY
    (37, Whole),                                        // IFLA_LINK_NETNSID
    (52, Inside(&[(53, Text)])),                        // IFLA_PROP_LIST: IFLA_ALT_IFNAME
    (54, Whole),                                        // IFLA_PERM_ADDRESS
];

const LINK_INFO: Table = &[
    (1, Text),                      // IFLA_INFO_KIND
    (2, OfKind(1, LINK_DATA)),      // IFLA_INFO_DATA
    (4, Text),                      // IFLA_INFO_SLAVE_KIND
    (5, OfKind(4, LINK_PORT_DATA)), // IFLA_INFO_SLAVE_DATA
];

const LINK_DATA: &[(&[u8], Keep)] = &[
    (b"vlan", Inside(&[(1, Whole)])),    // IFLA_VLAN_ID
    (b"macvlan", Inside(&[(1, Whole)])), // IFLA_MACVLAN_MODE
    (b"ipvlan", Inside(&[(1, Whole)])),  // IFLA_IPVLAN_MODE
    (b"vrf", Inside(&[(1, Whole)])),     // IFLA_VRF_TABLE
];

/// IFLA_BRPORT_MODE, IFLA_BRPORT_ISOLATED.
const LINK_PORT_DATA: &[(&[u8], Keep)] = &[(b"bridge", Inside(&[(4, Whole), (33, Whole)]))];

/// IFLA_AF_SPEC: IFLA_BRIDGE_VLAN_INFO.
const BRIDGE_LINK: Table = &[(26, Inside(&[(2, Whole)]))];

/// `linux/if_addr.h`.
const ADDR: Table = &[
    (1, Whole), // IFA_ADDRESS
    (2, Whole), // IFA_LOCAL
    (4, Whole), // IFA_BROADCAST
    (6, Whole), // IFA_CACHEINFO
    (8, Whole), // IFA_FLAGS
];

/// `linux/rtnetlink.h`.
const ROUTE: Table = &[
    (1, Whole),  // RTA_DST
    (4, Whole),  // RTA_OIF
    (5, Whole),  // RTA_GATEWAY
    (6, Whole),  // RTA_PRIORITY
    (7, Whole),  // RTA_PREFSRC
    (8, Whole),  // RTA_METRICS
    (9, Whole),  // RTA_MULTIPATH
    (15, Whole), // RTA_TABLE
    (18, Whole), // RTA_VIA
];

/// `linux/fib_rules.h`.
const RULE: Table = &[
    (2, Whole),  // FRA_SRC
    (6, Whole),  // FRA_PRIORITY
    (15, Whole), // FRA_TABLE
];

/// TCA_KIND, TCA_OPTIONS.
const QDISC: Table = &[(1, Text), (2, OfKind(1, &[(b"tbf", Whole)]))];

const AF_BRIDGE: u8 = 7;
const AF_INET6: u16 = 10;
const NLA_TYPE_MASK: u16 = 0x3fff;
const ATTRIBUTE_HEADER: usize = 4;
const ALIGNED: usize = 4;

/// Bytes that are kept of most links, in a namespace with IPv6.
const USUAL: usize = 512;

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader};
    use netlink_packet_route::RouteNetlinkMessage as Route;

    use super::*;
    use crate::link::Ipv6Conf;
    use crate::{BridgePort, Link, LinkData, Mac, OperState, Tbf};

    fn decoded(message: u16, payload: &[u8]) -> Result<Route, String> {
        let mut header = NetlinkHeader::default();
        header.message_type = message;
        Route::deserialize(&header, payload).map_err(|error| error.to_string())
    }

    /// All that this crate has to say about a message.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what nobody asks for")]
    fn said(message: u16, payload: &[u8]) -> String {
        match decoded(message, payload).unwrap() {
            Route::NewLink(link) => format!("{:?}", crate::link::decode(link)),
            Route::NewAddress(addr) => format!("{:?}", crate::addr::decode(addr).unwrap()),
            Route::NewRule(rule) => format!("{:?}", crate::rule::decode(rule)),
            Route::NewQueueDiscipline(qdisc) => format!("{:?}", Tbf::decode(&qdisc)),
            // Everything but the message as it was.
            Route::NewRoute(route) => {
                let text = format!("{:?}", crate::route::decode(route).unwrap());
                text.split(", message:").next().unwrap_or_default().to_owned()
            }
            other => panic!("{other:?}"),
        }
    }

    /// The corpus was recorded from a little-endian kernel; the other tests here are of any byte order.
    #[cfg(target_endian = "little")]
    #[test]
    fn what_is_asked_for_is_decoded_as_without_it() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/datagram");
        let mut seen = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let mut rest = bytes.as_slice();
            while let Some((header, _)) = rest.split_first_chunk::<16>() {
                let [l0, l1, l2, l3, t0, t1, ..] = *header;
                let (length, message) = (u32::from_ne_bytes([l0, l1, l2, l3]), u16::from_ne_bytes([t0, t1]));
                let payload = &rest[16..length as usize];
                if message >= RTM_NEWLINK {
                    assert_eq!(said(message, &sieve(message, payload)), said(message, payload));
                    seen += 1;
                }
                rest = rest.get(length.next_multiple_of(4) as usize..).unwrap_or_default();
            }
        }
        assert!(seen > 20, "{seen}");
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn link(attributes: &[Vec<u8>]) -> Link {
        let payload = [vec![0; 16], attributes.concat()].concat();
        match decoded(RTM_NEWLINK, &sieve(RTM_NEWLINK, &payload)) {
            Ok(Route::NewLink(message)) => crate::link::decode(message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_member_of_a_link_comes_through() {
        let info = [attribute(1, b"vrf\0"), attribute(2, &attribute(1, &8u32.to_ne_bytes()))];
        let port = [attribute(4, b"bridge\0"), attribute(5, &attribute(4, &[1]))];
        let mut conf = [0u32; 64];
        // DEVCONF_ACCEPT_RA, DEVCONF_DISABLE_IPV6.
        (conf[3], conf[26]) = (2, 1);
        let conf = conf.map(u32::to_ne_bytes).concat();
        let found = link(&[
            attribute(1, &[2, 0, 0, 0, 0, 1]),
            attribute(3, b"eth0\0"),
            attribute(4, &1280u32.to_ne_bytes()),
            attribute(5, &3u32.to_ne_bytes()),
            attribute(10, &4u32.to_ne_bytes()),
            attribute(13, &5u32.to_ne_bytes()),
            attribute(16, &[6]),
            attribute(18, &[info, port].concat().concat()),
            attribute(20, b"alias\0"),
            attribute(26, &attribute(AF_INET6, &attribute(2, &conf))),
            attribute(30, &7u32.to_ne_bytes()),
            attribute(37, &8u32.to_ne_bytes()),
            attribute(52, &attribute(53, b"other\0")),
            attribute(54, &[2, 0, 0, 0, 0, 9]),
        ]);
        let want = Link {
            index: 0,
            flags: 0,
            name: "eth0".to_owned(),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            hardware_address: vec![2, 0, 0, 0, 0, 1],
            permanent_address: vec![2, 0, 0, 0, 0, 9],
            mtu: 1280,
            promiscuity: 7,
            operstate: OperState::Up,
            kind: Some("vrf".to_owned()),
            master: Some(4),
            peer_index: Some(3),
            peer_netns_id: Some(8),
            txqlen: 5,
            alias: Some("alias".to_owned()),
            alternative_names: vec!["other".to_owned()],
            data: LinkData::Vrf { table: 8 },
            bridge_port: Some(BridgePort { hairpin: true, isolated: false }),
            ipv6: Some(Ipv6Conf { accept_ra: 2, disabled: true }),
        };
        assert_eq!(found, want);
    }

    #[test]
    fn foreign_bytes_become_text() {
        let found = link(&[
            attribute(3, b"a\xffb\0"),
            attribute(20, b"\xc3(\0"),
            attribute(4, &1280u32.to_ne_bytes()),
        ]);
        assert_eq!((found.name.as_str(), found.alias.as_deref()), ("a\u{fffd}b", Some("\u{fffd}(")));
        assert_eq!(found.mtu, 1280);
        // Longer as text than an attribute can be.
        let found = link(&[attribute(20, &[0xff; 30_000]), attribute(3, b"eth0\0")]);
        assert_eq!((found.name.as_str(), found.alias), ("eth0", None));
    }

    #[test]
    fn what_nobody_asks_about_is_not_decoded() {
        let garbage = [0xff; 7];
        let info = [attribute(1, b"vxlan\0"), attribute(2, &garbage), attribute(3, &garbage)].concat();
        let families = [attribute(2, &garbage), attribute(45, &garbage)].concat();
        let found = link(&[
            attribute(52, &garbage),
            attribute(18, &info),
            attribute(26, &families),
            attribute(3000, &garbage),
            attribute(3, b"eth0\0"),
            // Longer than there is.
            vec![0xff, 0xff, 4, 0],
        ]);
        assert_eq!((found.name.as_str(), found.kind.as_deref(), found.ipv6), ("eth0", Some("vxlan"), None));
    }

    #[test]
    fn links_of_a_kind_are_of_that_kind_whatever_they_say() {
        let info = [attribute(4, b"bridge\0"), attribute(5, &attribute(99, b"?"))].concat();
        assert_eq!(link(&[attribute(18, &info)]).bridge_port, Some(BridgePort::default()));
        let info = [attribute(4, b"bridge\0"), attribute(5, &attribute(33, &[1]))].concat();
        assert!(link(&[attribute(18, &info)]).bridge_port.unwrap().isolated);
        // A port of something else, with data of the same number.
        let info = [attribute(4, b"bond\0"), attribute(5, &attribute(33, b"??"))].concat();
        assert_eq!(link(&[attribute(18, &info)]).bridge_port, None);
    }

    #[test]
    fn too_short_messages_are_the_decoders_to_refuse() {
        for message in [RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWRULE, RTM_NEWQDISC] {
            for length in 0..8 {
                assert!(decoded(message, &sieve(message, &vec![0; length])).is_err());
            }
        }
    }
}
