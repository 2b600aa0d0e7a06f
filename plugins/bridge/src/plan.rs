// SPDX-License-Identifier: Apache-2.0
//! What must be, computed from configuration, arguments and the IPAM plugin's answer. Pure: option interactions end
//! here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cnibox_netlink::{BridgePort, BridgeVlan};
use cnibox_spec::{CniResult, IpConfig, Route, everywhere};
use ipnetwork::IpNetwork;

use crate::config::Config;

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

/// Whether a bridge that has to be made keeps its MAC from the start: gateway addresses will pin it, and of ADDs that begin
/// together each must answer with the same one.
pub(crate) fn keeps_mac(config: &Config) -> bool {
    config.gateway && config.vlan.is_none()
}

/// Whether a bridge that has to be made filters by VLAN.
pub(crate) fn filters_vlans(config: &Config) -> bool {
    config.vlan.is_some() || config.trunk.is_some()
}

/// The container's port.
pub(crate) fn port(config: &Config) -> PortPlan {
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
pub(crate) fn gateway_port(vlan: u16, config: &Config) -> PortPlan {
    PortPlan {
        flags: BridgePort::default(),
        leave_default_vlan: !config.preserve_default_vlan,
        vlans: vec![access(vlan)],
    }
}

fn access(id: u16) -> BridgeVlan {
    BridgeVlan { id, pvid: true, untagged: true }
}

/// The IPAM plugin's answer with gateways and default routes filled in.
pub(crate) fn completed(config: &Config, ipam: CniResult) -> CniResult {
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
    result
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

/// A device has one IPv4 gateway, and IPv6 gateways whose networks do not overlap.
pub(crate) fn conflicts(present: IpNetwork, wanted: IpNetwork) -> bool {
    wanted.is_ipv4() || present.contains(wanted.ip()) || wanted.contains(present.ip())
}

/// The gateway addresses that the host is given, IPv4 before IPv6.
pub(crate) fn gateways(config: &Config, result: &CniResult) -> Vec<IpNetwork> {
    let of_family = |v4: bool| result.ips.iter().filter(move |ip| ip.address.is_ipv4() == v4);
    let with_prefix = |ip: &IpConfig| IpNetwork::new(ip.gateway?, ip.address.prefix()).ok();
    let of_host = of_family(true).chain(of_family(false)).filter(|_| config.gateway);
    of_host.filter_map(with_prefix).collect()
}

/// Those that the host has in the end: one that is in a later one's way is replaced.
pub(crate) fn lasting(gateways: &[IpNetwork]) -> impl Iterator<Item = IpNetwork> + '_ {
    let lasts = |at: usize, gateway: IpNetwork| {
        let mut later = gateways.iter().skip(at + 1).filter(|later| later.is_ipv4() == gateway.is_ipv4());
        later.all(|later| *later == gateway || !conflicts(gateway, *later))
    };
    let all = gateways.iter().copied().enumerate();
    all.filter(move |(at, gateway)| lasts(*at, *gateway)).map(|(_, gateway)| gateway)
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
