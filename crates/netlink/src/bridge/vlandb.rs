// SPDX-License-Identifier: Apache-2.0
//! `RTM_GETVLAN` and `RTM_NEWVLAN` (`linux/if_bridge.h`), which `netlink-packet-route` lacks.
//!
//! The older way, a dump of links with `RTEXT_FILTER_BRVLAN`, cannot be limited to one port.

use netlink_packet_core::{
    DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlaBuffer, NlasIterator,
};

use super::BridgeVlan;

/// One message of the VLAN database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VlanDbMessage {
    kind: u16,
    port: u32,
    ranges: Vec<Range>,
}

/// Consecutive VLANs with the same flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    flags: u16,
}

impl VlanDbMessage {
    /// The dump request for one port.
    pub(super) fn request(port: u32) -> Self {
        Self { kind: RTM_GETVLAN, port, ranges: Vec::new() }
    }

    /// The VLANs, if the message is about `port`.
    pub(super) fn into_vlans_of(self, port: u32) -> Vec<BridgeVlan> {
        let ranges = if self.port == port { self.ranges } else { Vec::new() };
        ranges.into_iter().flat_map(Range::vlans).collect()
    }
}

impl Range {
    fn vlans(self) -> impl Iterator<Item = BridgeVlan> {
        (self.first..=self.last).map(move |id| BridgeVlan {
            id,
            pvid: self.flags & BRIDGE_VLAN_INFO_PVID != 0,
            untagged: self.flags & BRIDGE_VLAN_INFO_UNTAGGED != 0,
        })
    }

    /// `BRIDGE_VLANDB_ENTRY`: `struct bridge_vlan_info` of the first VLAN, and the last id if there is more than one.
    fn parse(entry: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut range = None;
        for attribute in NlasIterator::new(entry) {
            let attribute: NlaBuffer<&[u8]> = attribute?;
            match (attribute.kind(), attribute.value(), &mut range) {
                (BRIDGE_VLANDB_ENTRY_INFO, [f0, f1, v0, v1, ..], _) => {
                    let id = u16::from_ne_bytes([*v0, *v1]);
                    range = Some(Self { first: id, last: id, flags: u16::from_ne_bytes([*f0, *f1]) });
                }
                (BRIDGE_VLANDB_ENTRY_RANGE, [v0, v1, ..], Some(range)) => {
                    range.last = u16::from_ne_bytes([*v0, *v1]);
                }
                _ => {}
            }
        }
        Ok(range)
    }
}

impl NetlinkSerializable for VlanDbMessage {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        HEADER
    }

    /// `struct br_vlan_msg`: family, three bytes of padding, index.
    fn serialize(&self, buffer: &mut [u8]) {
        let [a, b, c, d] = self.port.to_ne_bytes();
        buffer.copy_from_slice(&[AF_BRIDGE, 0, 0, 0, a, b, c, d]);
    }
}

impl NetlinkDeserializable for VlanDbMessage {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let Some(([.., a, b, c, d], entries)) = payload.split_first_chunk::<HEADER>() else {
            return Err(DecodeError::from("br_vlan_msg is too short"));
        };
        let mut ranges = Vec::new();
        for entry in NlasIterator::new(entries) {
            let entry: NlaBuffer<&[u8]> = entry?;
            if entry.kind() == BRIDGE_VLANDB_ENTRY {
                ranges.extend(Range::parse(entry.value())?);
            }
        }
        Ok(Self { kind: header.message_type, port: u32::from_ne_bytes([*a, *b, *c, *d]), ranges })
    }
}

const RTM_GETVLAN: u16 = 114;
const AF_BRIDGE: u8 = 7;
const HEADER: usize = 8;
const BRIDGE_VLANDB_ENTRY: u16 = 1;
const BRIDGE_VLANDB_ENTRY_INFO: u16 = 1;
const BRIDGE_VLANDB_ENTRY_RANGE: u16 = 2;
const BRIDGE_VLAN_INFO_PVID: u16 = 1 << 1;
const BRIDGE_VLAN_INFO_UNTAGGED: u16 = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux 7.2 answers for port 4 after `bridge vlan add dev eth7 vid 100-102`, without the netlink header,
    /// in the byte order of that machine.
    #[cfg(target_endian = "little")]
    const DUMPED: &[u8] = &[
        7, 0, 0, 0, 4, 0, 0, 0, 44, 0, 1, 128, 8, 0, 1, 0, 6, 0, 1, 0, 5, 0, 3, 0, 3, 0, 0, 0, 5, 0, 9, 0, 0,
        0, 0, 0, 5, 0, 10, 0, 0, 0, 0, 0, 5, 0, 6, 0, 1, 0, 0, 0, 52, 0, 1, 128, 8, 0, 1, 0, 0, 0, 100, 0, 6,
        0, 2, 0, 102, 0, 0, 0, 5, 0, 3, 0, 3, 0, 0, 0, 5, 0, 9, 0, 0, 0, 0, 0, 5, 0, 10, 0, 0, 0, 0, 0, 5, 0,
        6, 0, 1, 0, 0, 0,
    ];

    #[cfg(target_endian = "little")]
    #[test]
    fn ranges_are_taken_apart() {
        let header = NetlinkHeader::default();
        let vlans = VlanDbMessage::deserialize(&header, DUMPED).unwrap().into_vlans_of(4);
        let plain = |id| BridgeVlan { id, pvid: false, untagged: false };
        let first = BridgeVlan { id: 1, pvid: true, untagged: true };
        assert_eq!(vlans, [first, plain(100), plain(101), plain(102)]);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn other_ports_are_left_out() {
        let header = NetlinkHeader::default();
        assert!(VlanDbMessage::deserialize(&header, DUMPED).unwrap().into_vlans_of(6).is_empty());
        assert!(VlanDbMessage::deserialize(&header, &[7, 0]).is_err());
    }

    #[test]
    fn request_names_the_port() {
        let mut buffer = [0xff; HEADER];
        VlanDbMessage::request(0x0102).serialize(&mut buffer);
        assert_eq!(buffer, [[7, 0, 0, 0], 0x0102u32.to_ne_bytes()].concat()[..]);
    }
}
