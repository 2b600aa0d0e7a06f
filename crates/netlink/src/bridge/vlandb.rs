// SPDX-License-Identifier: Apache-2.0
//! `RTM_GETVLAN` and `RTM_NEWVLAN` (`linux/if_bridge.h`), which `netlink-packet-route` lacks.
//!
//! The older way, a dump of links with `RTEXT_FILTER_BRVLAN`, cannot be limited to one port.

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};

use super::BridgeVlan;
use crate::sieve::{attribute, each};

/// One message of the VLAN database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VlanDbMessage {
    /// The port that it is about, or that is asked about.
    pub(super) port: u32,
    /// Its VLANs, sorted by id.
    pub(super) vlans: Vec<BridgeVlan>,
}

impl VlanDbMessage {
    /// The VLANs, if the message is about `port`.
    pub(super) fn into_vlans_of(self, port: u32) -> Vec<BridgeVlan> {
        if self.port == port { self.vlans } else { Vec::new() }
    }
}

impl NetlinkSerializable for VlanDbMessage {
    fn message_type(&self) -> u16 {
        RTM_GETVLAN
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

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let Some(([.., a, b, c, d], attributes)) = payload.split_first_chunk::<HEADER>() else {
            return Err(DecodeError::from("br_vlan_msg is too short"));
        };
        let entries = each(attributes).filter(|(number, _)| *number == BRIDGE_VLANDB_ENTRY);
        let vlans = entries.filter_map(|(_, entry)| vlans_in(entry)).flatten().collect();
        Ok(Self { port: u32::from_ne_bytes([*a, *b, *c, *d]), vlans })
    }
}

/// `BRIDGE_VLANDB_ENTRY`: `struct bridge_vlan_info` of the first VLAN, and the last id if there is more than one.
fn vlans_in(entry: &[u8]) -> Option<impl Iterator<Item = BridgeVlan>> {
    let [f0, f1, v0, v1] = *attribute(entry, BRIDGE_VLANDB_ENTRY_INFO)?.first_chunk()?;
    let (flags, first) = (u16::from_ne_bytes([f0, f1]), u16::from_ne_bytes([v0, v1]));
    let last = attribute(entry, BRIDGE_VLANDB_ENTRY_RANGE).and_then(|last| last.first_chunk().copied());
    let (pvid, untagged) = (flags & BRIDGE_VLAN_INFO_PVID != 0, flags & BRIDGE_VLAN_INFO_UNTAGGED != 0);
    let ids = first..=last.map_or(first, u16::from_ne_bytes);
    Some(ids.map(move |id| BridgeVlan { id, pvid, untagged }))
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
        VlanDbMessage { port: 0x0102, vlans: Vec::new() }.serialize(&mut buffer);
        assert_eq!(buffer, [[7, 0, 0, 0], 0x0102u32.to_ne_bytes()].concat()[..]);
    }
}
