// SPDX-License-Identifier: Apache-2.0
//! From the kernel's `RTM_NEWLINK` to [`Link`].

use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, InfoBridgePort, InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoPortData,
    InfoVlan, InfoVrf, LinkAttribute, LinkInfo, LinkMessage, Prop, State,
};

use super::{Ipv6Conf, Link, LinkData, OperState};
use crate::{BridgePort, Mac};

/// Decodes one message; attributes nobody asks about are skipped.
pub(crate) fn decode(message: LinkMessage) -> Link {
    let mut link =
        Link { index: message.header.index, flags: message.header.flags.bits(), ..Link::default() };
    for attribute in message.attributes {
        take_attribute(&mut link, attribute);
    }
    link
}

#[expect(clippy::wildcard_enum_match_arm, reason = "sixty attributes nobody asks about")]
fn take_attribute(link: &mut Link, attribute: LinkAttribute) {
    match attribute {
        LinkAttribute::IfName(name) => link.name = name,
        LinkAttribute::Address(bytes) => {
            link.mac = Mac::try_from(bytes.as_slice()).ok();
            link.hardware_address = bytes;
        }
        LinkAttribute::PermAddress(bytes) => link.permanent_address = bytes,
        LinkAttribute::Mtu(mtu) => link.mtu = mtu,
        LinkAttribute::Promiscuity(count) => link.promiscuity = count,
        LinkAttribute::OperState(state) => link.operstate = operstate(state),
        LinkAttribute::Controller(index) => link.master = (index != 0).then_some(index),
        LinkAttribute::Link(index) => link.peer_index = (index != 0).then_some(index),
        LinkAttribute::LinkNetNsId(id) => link.peer_netns_id = Some(id),
        LinkAttribute::TxQueueLen(length) => link.txqlen = length,
        LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
        LinkAttribute::PropList(props) => {
            link.alternative_names.extend(props.into_iter().filter_map(alternative_name))
        }
        LinkAttribute::LinkInfo(infos) => infos.into_iter().for_each(|info| take_info(link, info)),
        LinkAttribute::AfSpecUnspec(families) => link.ipv6 = families.iter().find_map(ipv6_conf),
        _ => {}
    }
}

fn alternative_name(prop: Prop) -> Option<String> {
    if let Prop::AltIfName(name) = prop { Some(name) } else { None }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "other kinds of ports and counters")]
fn take_info(link: &mut Link, info: LinkInfo) {
    match info {
        LinkInfo::Kind(kind) => link.kind = Some(kind_name(kind)),
        LinkInfo::Data(data) => link.data = kind_data(data),
        LinkInfo::PortData(InfoPortData::BridgePort(infos)) => link.bridge_port = Some(bridge_port(&infos)),
        _ => {}
    }
}

fn ipv6_conf(family: &AfSpecUnspec) -> Option<Ipv6Conf> {
    let AfSpecUnspec::Inet6(attributes) = family else { return None };
    attributes.iter().find_map(|attribute| {
        let AfSpecInet6::DevConf(conf) = attribute else { return None };
        Some(Ipv6Conf { accept_ra: conf.accept_ra, disabled: conf.disable_ipv6 != 0 })
    })
}

fn kind_name(kind: InfoKind) -> String {
    if let InfoKind::Other(name) = kind { name } else { kind.to_string() }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "dozens of kinds that no plugin makes")]
fn kind_data(data: InfoData) -> LinkData {
    let data = match data {
        InfoData::Vlan(infos) => infos.into_iter().find_map(|info| match info {
            InfoVlan::Id(id) => Some(LinkData::Vlan { id }),
            _ => None,
        }),
        InfoData::MacVlan(infos) => infos.into_iter().find_map(|info| match info {
            InfoMacVlan::Mode(mode) => Some(LinkData::MacVlan { mode }),
            _ => None,
        }),
        InfoData::IpVlan(infos) => infos.into_iter().find_map(|info| match info {
            InfoIpVlan::Mode(mode) => Some(LinkData::IpVlan { mode }),
            _ => None,
        }),
        InfoData::Vrf(infos) => infos.into_iter().find_map(|info| match info {
            InfoVrf::TableId(table) => Some(LinkData::Vrf { table }),
            _ => None,
        }),
        _ => None,
    };
    data.unwrap_or_default()
}

fn bridge_port(infos: &[InfoBridgePort]) -> BridgePort {
    BridgePort {
        hairpin: infos.contains(&InfoBridgePort::HairpinMode(true)),
        isolated: infos.contains(&InfoBridgePort::Isolated(true)),
    }
}

fn operstate(state: State) -> OperState {
    match state {
        State::NotPresent => OperState::NotPresent,
        State::Down => OperState::Down,
        State::LowerLayerDown => OperState::LowerLayerDown,
        State::Testing => OperState::Testing,
        State::Dormant => OperState::Dormant,
        State::Up => OperState::Up,
        State::Unknown | State::Other(_) | _ => OperState::Unknown,
    }
}

// The capture is in the byte order of the machine that it was made on.
#[cfg(all(test, target_endian = "little"))]
mod tests {
    use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
    use netlink_packet_route::RouteNetlinkMessage;

    use super::*;

    /// A bridge port of Linux 7.2 (`RTM_NEWLINK` as answered to `RTM_GETLINK`).
    const PORT: &[u8] = include_bytes!("bridge-port.bin");

    #[test]
    fn bridge_ports_are_decoded() {
        let packet = NetlinkMessage::<RouteNetlinkMessage>::deserialize(PORT).unwrap();
        let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message)) = packet.payload else {
            panic!("no link");
        };
        let want = Link {
            index: 4,
            name: "eth7".to_owned(),
            mac: Some(Mac([2, 0, 0, 0, 0, 7])),
            hardware_address: vec![2, 0, 0, 0, 0, 7],
            mtu: 1400,
            flags: 0x11043,
            promiscuity: 1,
            operstate: OperState::Up,
            kind: Some("veth".to_owned()),
            master: Some(2),
            peer_index: Some(3),
            txqlen: 1000,
            alias: Some("n/pod/eth0".to_owned()),
            bridge_port: Some(BridgePort { hairpin: true, isolated: false }),
            ipv6: Some(Ipv6Conf { accept_ra: 1, disabled: false }),
            ..Link::default()
        };
        assert_eq!(decode(message), want);
    }
}
