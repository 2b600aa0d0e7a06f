// SPDX-License-Identifier: Apache-2.0
//! Option interactions.

use cnibox_spec::parse_cidr;

use super::*;

fn config() -> Config {
    Config {
        bridge: "br0".into(),
        gateway: false,
        default_gateway: false,
        force_address: false,
        masquerade: None,
        mtu: None,
        hairpin: false,
        promisc: false,
        vlan: None,
        trunk: None,
        preserve_default_vlan: false,
        spoof_check: false,
        dad: false,
        leave_down: false,
        isolated: false,
        mac: None,
    }
}

fn ipam(addresses: &[&str]) -> CniResult {
    let ip = |text: &&str| IpConfig { interface: None, address: parse_cidr(text).unwrap(), gateway: None };
    CniResult { ips: addresses.iter().map(ip).collect(), ..CniResult::default() }
}

#[test]
fn a_gateway_is_the_first_address_of_the_subnet() {
    let config = Config { gateway: true, ..config() };
    let result = completed(&config, ipam(&["10.1.2.9/24", "fd00::9/64"]));
    let gateways: Vec<_> = gateways(&config, &result).iter().map(ToString::to_string).collect();
    assert_eq!(gateways, ["10.1.2.1/24", "fd00::1/64"]);
    assert_eq!(result.ips[0].interface, Some(2));
}

#[test]
fn a_default_gateway_adds_one_route_per_family() {
    let wanted = Config { gateway: true, default_gateway: true, ..config() };
    let result = completed(&wanted, ipam(&["10.1.2.9/24", "10.1.3.9/24", "fd00::9/64"]));
    let routes: Vec<_> = result.routes.iter().map(|r| format!("{} {}", r.dst, r.gw.unwrap())).collect();
    assert_eq!(routes, ["0.0.0.0/0 10.1.2.1", "::/0 fd00::1"]);
}

#[test]
fn a_default_route_without_gateway_is_not_doubled() {
    let wanted = Config { gateway: true, default_gateway: true, ..config() };
    let mut answer = ipam(&["10.1.2.9/24"]);
    answer.routes.push(Route::new(parse_cidr("0.0.0.0/0").unwrap(), None));
    let result = completed(&wanted, answer);
    assert_eq!(result.routes.len(), 1);
}

/// The kernel takes both, so the reference has both.
#[test]
fn a_default_route_of_another_metric_is_another_route() {
    let wanted = Config { gateway: true, default_gateway: true, ..config() };
    let number_of = |address: &str, change: &dyn Fn(&mut Route)| {
        let mut answer = ipam(&[address]);
        let mut route = Route::new(everywhere(answer.ips[0].address.is_ipv4()), None);
        change(&mut route);
        answer.routes = vec![route];
        completed(&wanted, answer).routes.len()
    };
    let both =
        |change: &dyn Fn(&mut Route)| (number_of("10.1.2.9/24", change), number_of("fd00::9/64", change));
    assert_eq!(both(&|_| {}), (1, 1));
    assert_eq!(both(&|route| route.priority = 100), (2, 2));
    assert_eq!(both(&|route| route.priority = 1024), (2, 1));
    assert_eq!(both(&|route| route.scope = Some(253)), (2, 1));
    assert_eq!(both(&|route| route.mtu = 1400), (1, 1));
    assert_eq!(both(&|route| route.table = Some(254)), (1, 1));
    assert_eq!(both(&|route| route.table = Some(100)), (2, 2));
    assert_eq!(both(&|route| route.gw = Some([10, 1, 2, 3].into())), (1, 1));
}

#[test]
fn a_trunk_without_access_vlan_keeps_untagged_packets_in_vlan_1() {
    let config = Config { trunk: Some(vec![7]), ..config() };
    let port = port(&config);
    assert!(filters_vlans(&config) && port.leave_default_vlan);
    assert_eq!(
        port.vlans,
        [
            BridgeVlan { id: 7, pvid: false, untagged: false },
            BridgeVlan { id: 1, pvid: true, untagged: true }
        ]
    );
}

#[test]
fn an_empty_trunk_only_turns_filtering_on() {
    let config = Config { trunk: Some(vec![]), ..config() };
    assert_eq!(port(&config), PortPlan::default());
    assert!(filters_vlans(&config));
}

#[test]
fn a_gateway_lasts_unless_a_later_one_is_in_its_way() {
    let ipam = ipam(&["10.1.0.2/24", "10.2.0.2/24", "fd00:1::2/64", "fd00:2::2/64", "fd00:2:0:0:1::2/80"]);
    let config = Config { gateway: true, force_address: true, ..config() };
    let gateways = gateways(&config, &completed(&config, ipam));
    let lasting: Vec<_> = lasting(&gateways).map(|gateway| gateway.to_string()).collect();
    assert_eq!(lasting, ["10.2.0.1/24", "fd00:1::1/64", "fd00:2::1:0:0:1/80"]);
}
