// SPDX-License-Identifier: Apache-2.0
//! Bridge ports: their flags and VLANs, the verbs of `bridge link` and `bridge vlan`.

mod vlandb;

use netlink_packet_route::link::{
    AfSpecBridge, BridgeFlag, BridgeVlanInfoFlags, LinkAttribute, LinkExtentMask, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{LinkBridgePort, LinkBridgeVlan};

use crate::{Error, Rtnl};

/// Flags of a bridge port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BridgePort {
    /// Packets may leave through the port they came in by.
    pub hairpin: bool,
    /// The port cannot talk to other isolated ports.
    pub isolated: bool,
}

/// A VLAN that a bridge port is a member of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgeVlan {
    /// VLAN id.
    pub id: u16,
    /// Untagged packets that come in belong to this VLAN.
    pub pvid: bool,
    /// Packets of this VLAN go out without a tag.
    pub untagged: bool,
}

impl Rtnl {
    /// `bridge link set dev INDEX hairpin on|off isolated on|off`.
    ///
    /// # Errors
    /// What the kernel says, for example if the link is no bridge port.
    pub fn bridge_port_set(&mut self, port: u32, flags: BridgePort) -> Result<(), Error> {
        let message = LinkBridgePort::new(port).hairpin(flags.hairpin).isolated(flags.isolated).build();
        // The data of a port is only looked at in RTM_NEWLINK; without NLM_F_CREATE that changes the existing link.
        self.change(RouteNetlinkMessage::NewLink(message), 0)
    }

    /// `bridge vlan add dev INDEX vid ID [pvid] [untagged] master`.
    ///
    /// # Errors
    /// What the kernel says, `operation not supported` if it has no VLAN filtering.
    pub fn bridge_vlan_add(&mut self, port: u32, vlan: BridgeVlan) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::SetLink(vlan_message(port, vlan)), 0)
    }

    /// `bridge vlan del dev INDEX vid ID [pvid] [untagged] master`.
    ///
    /// # Errors
    /// What the kernel says; a VLAN that the port is not in is no error.
    pub fn bridge_vlan_del(&mut self, port: u32, vlan: BridgeVlan) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::DelLink(vlan_message(port, vlan)), 0)
    }

    /// `bridge vlan show dev INDEX`: the VLANs of one port, sorted by id, ranges taken apart.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bridge_vlans(&mut self, port: u32) -> Result<Vec<BridgeVlan>, Error> {
        match self.dump(&vlandb::VlanDbMessage { port, vlans: Vec::new() }) {
            Ok(dump) => Ok(dump.into_iter().flat_map(|message| message.into_vlans_of(port)).collect()),
            // Before Linux 5.6 there is no such question.
            Err(error) if error.is_unsupported() => self.bridge_vlans_by_links(port),
            Err(error) => Err(error),
        }
    }

    /// As [`Rtnl::bridge_vlans`], from a list of all ports of the namespace: the only way before Linux 5.6, and one whose
    /// cost grows with the node.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bridge_vlans_by_links(&mut self, port: u32) -> Result<Vec<BridgeVlan>, Error> {
        let mut request = LinkMessage::default();
        request.header.interface_family = AddressFamily::Bridge;
        request.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::Brvlan])];
        let dump = self.dump(&RouteNetlinkMessage::GetLink(request))?;
        Ok(dump.into_iter().flat_map(|message| vlans_of(message, port)).collect())
    }
}

/// The VLANs in a message about `port`.
fn vlans_of(message: RouteNetlinkMessage, port: u32) -> Vec<BridgeVlan> {
    let mut vlans = Vec::new();
    let RouteNetlinkMessage::NewLink(link) = message else { return vlans };
    for attribute in link.attributes {
        let LinkAttribute::AfSpecBridge(specs) = attribute else { continue };
        for spec in specs {
            let AfSpecBridge::VlanInfo(info) = spec else { continue };
            let is = |flag| info.flags.contains(flag);
            let (pvid, untagged) = (is(BridgeVlanInfoFlags::Pvid), is(BridgeVlanInfoFlags::Untagged));
            vlans.push(BridgeVlan { id: info.vid, pvid, untagged });
        }
    }
    if link.header.index == port { vlans } else { Vec::new() }
}

fn vlan_message(port: u32, vlan: BridgeVlan) -> LinkMessage {
    let mut flags = BridgeVlanInfoFlags::empty();
    flags.set(BridgeVlanInfoFlags::Pvid, vlan.pvid);
    flags.set(BridgeVlanInfoFlags::Untagged, vlan.untagged);
    LinkBridgeVlan::new(port)
        .append_af_spec(AfSpecBridge::Flags(BridgeFlag::Controller))
        .vlan(vlan.id, flags)
        .build()
}
