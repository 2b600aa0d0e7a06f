// SPDX-License-Identifier: Apache-2.0
//! Which addresses get a table, which tables are free, and which routes go where. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cnibox_netlink::{Route, RouteSpec, RuleSpec};
use cnibox_spec::{CniResult, IpConfig, everywhere};
use ipnetwork::IpNetwork;

use crate::config::Config;

/// An address that gets a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The address.
    pub(crate) ip: IpAddr,
    /// Its subnet, host bits and all.
    pub(crate) subnet: IpNetwork,
    /// Where its packets go that go nowhere else.
    pub(crate) gateway: Option<IpAddr>,
}

/// The interface's addresses. One that belongs to no interface belongs to this one.
pub(crate) fn addresses(previous: &CniResult, ifname: &str, config: &Config) -> Vec<Address> {
    let ours = |ip: &&IpConfig| previous.interface_of(ip).is_none_or(|interface| interface.name == ifname);
    let address = |ip: &IpConfig| {
        let own = ip.address.ip();
        let fixed = config.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == own.is_ipv4());
        Address { ip: own, subnet: ip.address, gateway: fixed.or(ip.gateway) }
    };
    previous.ips.iter().filter(ours).map(address).collect()
}

impl Address {
    /// The address alone.
    pub(crate) fn host(&self) -> IpNetwork {
        IpNetwork::from(self.ip)
    }

    /// `from ADDRESS lookup TABLE`; the kernel chooses the priority.
    pub(crate) fn rule(&self, table: u32) -> RuleSpec {
        RuleSpec { src: self.host(), table, priority: None }
    }

    /// The default route of the address's table.
    pub(crate) fn default_route(&self, table: u32, oif: u32) -> Option<RouteSpec> {
        let gw = Some(self.gateway?);
        Some(RouteSpec {
            gw,
            oif: Some(oif),
            table: Some(table),
            ..RouteSpec::new(everywhere(self.ip.is_ipv4()))
        })
    }

    /// Whether a route of the interface is copied into the address's table: one of its subnet, or one that names
    /// neither source nor gateway, of whatever family.
    pub(crate) fn takes(&self, route: &Route) -> bool {
        let in_subnet = |ip: Option<IpAddr>| ip.is_some_and(|ip| self.subnet.contains(ip));
        in_subnet(route.src) || in_subnet(route.gw) || (route.src.is_none() && route.gw.is_none())
    }

    /// Whether a route is that of the address's own subnet.
    pub(crate) fn is_subnet_route(&self, route: &Route) -> bool {
        route.gw.is_none()
            && route.dst.ip() == self.subnet.network()
            && route.dst.prefix() == self.subnet.prefix()
    }
}

/// The first table from `from` on that is not in use.
pub(crate) fn free_table(used: &BTreeSet<u32>, from: u32) -> u32 {
    (from..=u32::MAX).find(|table| !used.contains(table)).unwrap_or(from)
}

/// Smaller numbers are left to people.
pub(crate) const FIRST_TABLE: u32 = 100;

#[cfg(test)]
mod tests {
    use cnibox_spec::Interface;

    use super::*;

    fn previous() -> CniResult {
        let interface = |name: &str| Interface { name: name.to_owned(), ..Interface::default() };
        let ip = |interface, address: &str, gateway: Option<&str>| IpConfig {
            interface,
            address: address.parse().unwrap(),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        };
        CniResult {
            interfaces: vec![interface("eth0"), interface("net1")],
            ips: vec![
                ip(Some(0), "10.0.0.5/24", None),
                ip(Some(1), "10.1.0.5/24", Some("10.1.0.1")),
                ip(None, "fd00::5/64", Some("fd00::1")),
                ip(Some(7), "10.7.0.5/24", None),
            ],
            ..CniResult::default()
        }
    }

    #[test]
    fn addresses_of_other_interfaces_are_left_alone() {
        let config = Config { gateways: vec!["fd00::9".parse().unwrap()], ..Config::default() };
        let found: Vec<_> = addresses(&previous(), "net1", &config)
            .into_iter()
            .map(|address| (address.host().to_string(), address.gateway.map(|gateway| gateway.to_string())))
            .collect();
        let want =
            [("10.1.0.5/32", Some("10.1.0.1")), ("fd00::5/128", Some("fd00::9")), ("10.7.0.5/32", None)];
        assert_eq!(found, want.map(|(ip, gateway)| (ip.to_owned(), gateway.map(str::to_owned))));
    }

    #[test]
    fn tables_in_use_are_passed_over() {
        assert_eq!(free_table(&BTreeSet::from([100, 101, 103]), FIRST_TABLE), 102);
        assert_eq!(free_table(&BTreeSet::from([100, 101, 103]), 103), 104);
    }

    #[test]
    fn a_default_route_needs_a_gateway() {
        let config = Config::default();
        let all = addresses(&previous(), "net1", &config);
        let route = all[0].default_route(100, 3).unwrap();
        assert_eq!(
            (route.dst.to_string().as_str(), route.table, route.oif),
            ("0.0.0.0/0", Some(100), Some(3))
        );
        assert_eq!(all[1].default_route(100, 3).unwrap().dst.to_string(), "::/0");
        assert_eq!(all[2].default_route(100, 3), None);
    }
}
