// SPDX-License-Identifier: Apache-2.0
//! What must be, computed from configuration, arguments and the IPAM plugin's answer. Pure: option interactions end
//! here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cnibox_netlink::{BridgePort, BridgeVlan};
use cnibox_spec::{CniResult, IpConfig, Route, everywhere};
use ipnetwork::IpNetwork;

use crate::config::{Config, MasqueradeChoice};

/// The attachment without addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer2 {
    /// The bridge.
    pub(crate) bridge: BridgePlan,
    /// The bridge port.
    pub(crate) port: PortPlan,
    /// Whether only the container's own MAC may send.
    pub(crate) spoof_check: bool,
    /// Whether the container's interface goes up, and the port with it.
    pub(crate) up: bool,
}

/// The bridge as far as this network cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgePlan {
    /// Its name.
    pub(crate) name: String,
    /// MTU in bytes, if the bridge has to be made.
    pub(crate) mtu: Option<u32>,
    /// Whether it keeps its MAC from the start, if the bridge has to be made: gateway addresses will pin it, and of ADDs
    /// that begin together each must answer with the same one.
    pub(crate) fixed_mac: bool,
    /// Whether to make it promiscuous.
    pub(crate) promisc: bool,
    /// VLAN filtering, if the bridge has to be made.
    pub(crate) vlan_filtering: bool,
}

/// A bridge port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortPlan {
    /// Its flags.
    pub(crate) flags: BridgePort,
    /// Whether it leaves the VLANs that the bridge put it into.
    pub(crate) leave_default_vlan: bool,
    /// The VLANs that it joins, in order.
    pub(crate) vlans: Vec<BridgeVlan>,
}

/// What addresses add to the attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer3 {
    /// The IPAM plugin's answer, completed.
    pub(crate) result: CniResult,
    /// Whether IPv6 addresses go through duplicate address detection.
    pub(crate) dad: bool,
    /// The host's gateway addresses, IPv4 before IPv6.
    pub(crate) gateways: Vec<IpNetwork>,
    /// The VLAN that the gateway addresses belong to.
    pub(crate) gateway_vlan: Option<u16>,
    /// Whether the port of a VLAN's gateway stays in its default VLAN.
    pub(crate) preserve_default_vlan: bool,
    /// Whether conflicting addresses are replaced.
    pub(crate) force_address: bool,
    /// Masquerade of the container's addresses.
    pub(crate) masquerade: Option<MasqueradeChoice>,
}

/// The attachment's layer 2.
pub(crate) fn layer2(config: &Config) -> Layer2 {
    Layer2 {
        bridge: BridgePlan {
            name: config.bridge.clone(),
            mtu: config.mtu,
            fixed_mac: config.gateway && config.vlan.is_none(),
            promisc: config.promisc,
            vlan_filtering: config.vlan.is_some() || config.trunk.is_some(),
        },
        port: port(config),
        spoof_check: config.spoof_check,
        up: !config.leave_down,
    }
}

fn port(config: &Config) -> PortPlan {
    let trunk = config.trunk.as_deref().unwrap_or_default();
    let tagged = config.vlan.is_some() || !trunk.is_empty();
    let mut vlans: Vec<_> = config.vlan.into_iter().map(access).collect();
    vlans.extend(trunk.iter().map(|id| BridgeVlan { id: *id, pvid: false, untagged: false }));
    // "Backwards compatibility with users that did not specify a vlanID": untagged packets of a trunk are in VLAN 1.
    if config.vlan.is_none() && !trunk.is_empty() {
        vlans.push(access(DEFAULT_VLAN));
    }
    PortPlan {
        flags: BridgePort { hairpin: config.hairpin, isolated: config.isolated },
        leave_default_vlan: tagged && !config.preserve_default_vlan,
        vlans,
    }
}

/// The port behind which a VLAN's gateway addresses live.
pub(crate) fn gateway_port(vlan: u16, preserve_default_vlan: bool) -> PortPlan {
    PortPlan {
        flags: BridgePort::default(),
        leave_default_vlan: !preserve_default_vlan,
        vlans: vec![access(vlan)],
    }
}

fn access(id: u16) -> BridgeVlan {
    BridgeVlan { id, pvid: true, untagged: true }
}

/// The attachment's layer 3: the IPAM plugin's answer with gateways and default routes filled in.
pub(crate) fn layer3(config: &Config, ipam: CniResult) -> Layer3 {
    let mut result = ipam;
    for ip in &mut result.ips {
        ip.interface = Some(POD_INDEX);
        if config.gateway {
            ip.gateway = ip.gateway.or_else(|| Some(next_address(ip.address.network())));
        }
    }
    if config.default_gateway {
        add_default_routes(&mut result);
    }
    Layer3 {
        dad: config.dad,
        gateways: if config.gateway { gateway_addresses(&result.ips) } else { Vec::new() },
        gateway_vlan: config.vlan,
        preserve_default_vlan: config.preserve_default_vlan,
        force_address: config.force_address,
        masquerade: config.masquerade,
        result,
    }
}

/// A default route per family by its first address's gateway, in the order of the addresses, unless the IPAM plugin gave
/// one. The reference overlooks one without gateway and then fails on its own second route; it gets the family's gateway
/// anyway.
fn add_default_routes(result: &mut CniResult) {
    let mut wanted: Vec<(IpNetwork, Option<IpAddr>)> = Vec::new();
    for ip in &result.ips {
        let everywhere = everywhere(ip.address.is_ipv4());
        if wanted.iter().all(|(network, _)| *network != everywhere) {
            wanted.push((everywhere, ip.gateway));
        }
    }
    for (everywhere, gateway) in wanted {
        let route = Route::new(everywhere, gateway);
        if !result.routes.iter().any(|given| replaces(given, &route)) {
            result.routes.push(route);
        }
    }
}

/// Whether a route of the IPAM plugin is the default route: it says by which gateway, or the kernel would not take both.
fn replaces(given: &Route, default: &Route) -> bool {
    // The metric tells them apart.
    let alike = match given.dst {
        // kernel net/ipv4/fib_trie.c: so does the scope; MTU and MSS would, but the reference ignores them
        IpNetwork::V4(_) => given.priority == 0 && given.scope.unwrap_or_default() == 0,
        // kernel net/ipv6/ip6_fib.c: a metric that is not set is this one
        IpNetwork::V6(_) => matches!(given.priority, 0 | IP6_RT_PRIO_USER),
    };
    let in_main = matches!(given.table, None | Some(0 | RT_TABLE_MAIN));
    given.dst == default.dst && (given.gw.is_some() || in_main && alike)
}

impl Layer3 {
    /// The gateway addresses that the host has in the end: one that is in a later one's way is replaced.
    pub(crate) fn lasting_gateways(&self) -> impl Iterator<Item = IpNetwork> + '_ {
        let lasts = |at: usize, gateway: IpNetwork| {
            let mut later =
                self.gateways.iter().skip(at + 1).filter(|later| later.is_ipv4() == gateway.is_ipv4());
            later.all(|later| *later == gateway || !conflicts(gateway, *later))
        };
        let gateways = self.gateways.iter().copied().enumerate();
        gateways.filter(move |(at, gateway)| lasts(*at, *gateway)).map(|(_, gateway)| gateway)
    }
}

/// A device has one IPv4 gateway, and IPv6 gateways whose networks do not overlap.
pub(crate) fn conflicts(present: IpNetwork, wanted: IpNetwork) -> bool {
    wanted.is_ipv4() || present.contains(wanted.ip()) || wanted.contains(present.ip())
}

fn gateway_addresses(ips: &[IpConfig]) -> Vec<IpNetwork> {
    let of_family = |v4: bool| ips.iter().filter(move |ip| ip.address.is_ipv4() == v4);
    let with_prefix = |ip: &IpConfig| IpNetwork::new(ip.gateway?, ip.address.prefix()).ok();
    of_family(true).chain(of_family(false)).filter_map(with_prefix).collect()
}

fn next_address(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits().wrapping_add(1))),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits().wrapping_add(1))),
    }
}

/// The container's place in the result's interfaces: bridge, host veth, container. Others count on it.
const POD_INDEX: i64 = 2;
const DEFAULT_VLAN: u16 = 1;
/// `linux/ipv6_route.h`
const IP6_RT_PRIO_USER: i64 = 1024;
/// `linux/rtnetlink.h`
const RT_TABLE_MAIN: i64 = 254;

#[cfg(test)]
mod tests;
