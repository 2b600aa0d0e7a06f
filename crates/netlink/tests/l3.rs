// SPDX-License-Identifier: Apache-2.0
//! Addresses, routes and rules in the running kernel.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cnibox_netlink::{
    Addr, Family, IFA_F_NODAD, IFA_F_NOPREFIXROUTE, Lifetime, Monitor, Multicast, Route, RouteSpec, Rtnl,
    RuleSpec, Settled, TABLE_MAIN, VethSpec,
};
use cnibox_testkit::{Sandbox, sandbox};

/// `a` and `b`, connected and up, in the sandbox.
fn cable(_: &Sandbox) -> (Rtnl, u32, u32) {
    let mut rtnl = Rtnl::open().unwrap();
    let spec = VethSpec { name: "a", mac: None, peer_name: "b", peer_netns: None, mtu: None };
    rtnl.link_add_veth(&spec).unwrap();
    let (a, b) = (rtnl.link_by_name("a").unwrap().index, rtnl.link_by_name("b").unwrap().index);
    rtnl.link_set_up(a).unwrap();
    rtnl.link_set_up(b).unwrap();
    (rtnl, a, b)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn to(dst: &str) -> RouteSpec {
    RouteSpec::new(dst.parse().unwrap())
}

fn destinations(routes: &[Route]) -> Vec<String> {
    routes.iter().map(|route| route.dst.to_string()).collect()
}

#[test]
fn addresses_are_added_listed_and_deleted() {
    sandbox(|net| {
        let (mut rtnl, a, b) = cable(net);
        let v4 = Addr::new(a, "10.1.0.7/24".parse().unwrap());
        rtnl.addr_add(&v4).unwrap();
        rtnl.addr_add(&Addr { flags: IFA_F_NODAD, ..Addr::new(a, "fd00::7/64".parse().unwrap()) }).unwrap();
        rtnl.addr_add(&Addr::new(b, "10.2.0.7/32".parse().unwrap())).unwrap();
        let listed = rtnl.addrs(a, Some(Family::V4)).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].net, listed[0].broadcast, listed[0].scope), (v4.net, v4.broadcast, 0));
        assert!(net.run("ip", &["address", "show", "dev", "a"]).contains("scope global a\n"));
        let all = rtnl.addrs(a, None).unwrap();
        assert!(all.iter().all(|addr| addr.index == a));
        assert!(all.iter().any(|addr| addr.net.ip() == ip("fd00::7") && !addr.is_tentative()));
        let again = rtnl.addr_add(&v4).unwrap_err();
        assert!(again.is_exists());
        assert_eq!(again.to_string(), "file exists");
        rtnl.addr_del(a, v4.net).unwrap();
        assert!(rtnl.addrs(a, Some(Family::V4)).unwrap().is_empty());
        assert!(rtnl.addr_del(a, v4.net).unwrap_err().is_addr_not_found());
        assert!(rtnl.addrs(4711, None).unwrap_err().is_not_found());
    });
}

#[test]
fn routes_are_listed_by_table_and_link() {
    sandbox(|net| {
        let (mut rtnl, a, b) = cable(net);
        rtnl.addr_add(&Addr::new(a, "10.1.0.7/24".parse().unwrap())).unwrap();
        rtnl.addr_add(&Addr::new(b, "10.2.0.7/24".parse().unwrap())).unwrap();
        let gw = Some(ip("10.1.0.1"));
        rtnl.route_add(&RouteSpec { gw, oif: Some(a), ..to("0.0.0.0/0") }).unwrap();
        let far = RouteSpec { gw, oif: Some(a), table: Some(1000), priority: Some(5), ..to("10.9.0.0/16") };
        let far = RouteSpec { mtu: Some(1400), advmss: Some(1300), src: Some(ip("10.1.0.7")), ..far };
        rtnl.route_add(&far).unwrap();
        let main = rtnl.routes(Family::V4, TABLE_MAIN, Some(a)).unwrap();
        assert_eq!(destinations(&main), ["0.0.0.0/0", "10.1.0.0/24"]);
        assert_eq!((main[0].gw, main[0].oif, main[0].scope), (gw, Some(a), 0));
        assert_eq!(rtnl.routes(Family::V4, TABLE_MAIN, None).unwrap().len(), 3);
        let other = rtnl.routes(Family::V4, 1000, None).unwrap();
        let [other] = &other[..] else { panic!("not one route: {other:?}") };
        assert_eq!((other.dst, other.gw, other.oif, other.scope), (far.dst, gw, Some(a), 0));
        assert_eq!((other.table, other.src), (1000, far.src));
        let shown = net.run("ip", &["-d", "route", "show", "table", "1000"]);
        for want in ["unicast 10.9.0.0/16", "proto boot", "metric 5 ", "mtu 1400 ", "advmss 1300"] {
            assert!(shown.contains(want), "{want} is missing: {shown}");
        }
        let both = rtnl.link_routes(TABLE_MAIN, a).unwrap();
        assert!(both.starts_with(&main) && both.iter().any(|route| route.dst.is_ipv6()), "{both:?}");
        assert!(rtnl.routes(Family::V4, 4711, None).unwrap().is_empty());
        assert!(rtnl.routes(Family::V6, 4711, None).unwrap().is_empty());
    });
}

#[test]
fn adding_a_route_is_as_exclusive_as_the_go_plugins_are() {
    sandbox(|net| {
        let (mut rtnl, a, _) = cable(net);
        rtnl.addr_add(&Addr::new(a, "10.1.0.7/24".parse().unwrap())).unwrap();
        let by = |gw| RouteSpec { gw: Some(ip(gw)), oif: Some(a), ..to("10.9.0.0/16") };
        rtnl.route_add(&by("10.1.0.1")).unwrap();
        assert_eq!(rtnl.route_add(&by("10.1.0.1")).unwrap_err().to_string(), "file exists");
        assert!(rtnl.route_add_exclusive(&by("10.1.0.2")).unwrap_err().is_exists());
        rtnl.route_add(&by("10.1.0.2")).unwrap();
        assert_eq!(rtnl.routes(Family::V4, TABLE_MAIN, Some(a)).unwrap().len(), 3);
        rtnl.route_del(&by("10.1.0.2")).unwrap();
        let routes = rtnl.routes(Family::V4, TABLE_MAIN, Some(a)).unwrap();
        assert_eq!(routes.iter().filter_map(|route| route.gw).collect::<Vec<_>>(), [ip("10.1.0.1")]);
        let gone = rtnl.route_del(&by("10.1.0.2")).unwrap_err();
        assert_eq!((gone.is_not_found(), gone.to_string().as_str()), (true, "no such process"));
    });
}

#[test]
fn link_scope_routes_are_deleted_without_saying_the_scope() {
    sandbox(|net| {
        let (mut rtnl, a, _) = cable(net);
        let route = RouteSpec { oif: Some(a), scope: Some(253), ..to("10.9.0.1/32") };
        rtnl.route_add(&route).unwrap();
        assert_eq!(rtnl.routes(Family::V4, TABLE_MAIN, Some(a)).unwrap()[0].scope, 253);
        rtnl.route_del(&RouteSpec { scope: None, ..route }).unwrap();
        assert!(rtnl.routes(Family::V4, TABLE_MAIN, Some(a)).unwrap().is_empty());
    });
}

#[test]
fn an_address_can_be_had_again_as_it_was() {
    sandbox(|net| {
        let (mut rtnl, a, _) = cable(net);
        let spec = Addr {
            flags: IFA_F_NODAD | IFA_F_NOPREFIXROUTE,
            lifetime: Some(Lifetime { preferred: 0, valid: 600 }),
            ..Addr::new(a, "fd00::7/64".parse().unwrap())
        };
        rtnl.addr_add(&spec).unwrap();
        for _ in 0..2 {
            let listed = rtnl.addrs(a, Some(Family::V6)).unwrap();
            let again = listed.iter().find(|addr| addr.net == spec.net).unwrap().again();
            let left = again.lifetime.unwrap();
            assert!(left.preferred == 0 && (500..=600).contains(&left.valid), "{left:?}");
            assert_eq!(Addr { lifetime: spec.lifetime, ..again.clone() }, spec);
            rtnl.addr_del(a, spec.net).unwrap();
            rtnl.addr_add(&again).unwrap();
        }
    });
}

#[test]
fn v6_routes_and_gateways_of_the_other_family_work() {
    sandbox(|net| {
        let (mut rtnl, a, _) = cable(net);
        rtnl.addr_add(&Addr { flags: IFA_F_NODAD, ..Addr::new(a, "fd00::7/64".parse().unwrap()) }).unwrap();
        let gw = Some(ip("fd00::1"));
        rtnl.route_add(&RouteSpec { gw, oif: Some(a), ..to("::/0") }).unwrap();
        rtnl.route_add(&RouteSpec { gw, oif: Some(a), ..to("10.9.0.0/16") }).unwrap();
        let v6 = rtnl.routes(Family::V6, TABLE_MAIN, Some(a)).unwrap();
        assert!(v6.iter().any(|route| route.is_default() && route.gw == gw));
        assert_eq!(rtnl.routes(Family::V4, TABLE_MAIN, Some(a)).unwrap()[0].gw, gw);
    });
}

#[test]
fn lookups_answer_with_the_way_a_packet_takes() {
    sandbox(|net| {
        let (mut rtnl, a, _) = cable(net);
        rtnl.addr_add(&Addr::new(a, "10.1.0.7/24".parse().unwrap())).unwrap();
        let route = rtnl.route_lookup(ip("10.1.0.9")).unwrap();
        assert_eq!((route.oif, route.src), (Some(a), Some(ip("10.1.0.7"))));
        let unreachable = rtnl.route_lookup(ip("10.9.0.9")).unwrap_err();
        assert_eq!(unreachable.to_string(), "network is unreachable");
    });
}

#[test]
fn rules_are_added_listed_and_deleted() {
    sandbox(|_| {
        let mut rtnl = Rtnl::open().unwrap();
        let rule = RuleSpec { src: "10.1.0.7/32".parse().unwrap(), table: 1000, priority: None };
        rtnl.rule_add(&rule).unwrap();
        let found: Vec<_> =
            rtnl.rules(Family::V4).unwrap().into_iter().filter(|r| r.src == Some(rule.src)).collect();
        assert_eq!((found.len(), found[0].table), (1, 1000));
        assert!(rtnl.rules(Family::V6).unwrap().iter().all(|r| r.src.is_none_or(|src| src.is_ipv6())));
        rtnl.rule_del(&rule).unwrap();
        assert!(rtnl.rule_del(&rule).unwrap_err().is_not_found());
    });
}

#[test]
fn waiting_for_addresses_ends_when_detection_does() {
    sandbox(|net| {
        let (mut rtnl, a, _) = cable(net);
        let mut monitor = Monitor::of(Multicast::Ipv6Addr).unwrap();
        rtnl.addr_add(&Addr::new(a, "fd00::7/64".parse().unwrap())).unwrap();
        assert!(rtnl.addrs(a, Some(Family::V6)).unwrap().iter().any(Addr::is_tentative));
        let start = Instant::now();
        let deadline = start + Duration::from_secs(10);
        assert_eq!(monitor.wait_addrs_settled(&mut rtnl, a, deadline).unwrap(), Settled::All);
        assert!(rtnl.addrs(a, Some(Family::V6)).unwrap().iter().all(|addr| !addr.is_tentative()));
        assert!(start.elapsed() > Duration::from_millis(100));
    });
}

#[test]
fn waiting_for_addresses_ends_when_one_is_in_use_elsewhere() {
    sandbox(|net| {
        let (mut rtnl, a, b) = cable(net);
        let addr = Addr::new(a, "fd00::7/64".parse().unwrap());
        rtnl.addr_add(&Addr { index: b, flags: IFA_F_NODAD, ..addr.clone() }).unwrap();
        let mut monitor = Monitor::of(Multicast::Ipv6Addr).unwrap();
        rtnl.addr_add(&addr).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let settled = monitor.wait_addrs_settled(&mut rtnl, a, deadline).unwrap();
        assert!(matches!(settled, Settled::DadFailed(failed) if failed.net == addr.net));
    });
}

#[test]
fn waiting_for_addresses_ends_at_the_deadline() {
    sandbox(|net| {
        let (mut rtnl, a, _) = cable(net);
        rtnl.addr_add(&Addr::new(a, "fd00::7/64".parse().unwrap())).unwrap();
        let deadline = Instant::now() + Duration::from_millis(20);
        let mut monitor = Monitor::of(Multicast::Ipv6Addr).unwrap();
        assert_eq!(monitor.wait_addrs_settled(&mut rtnl, a, deadline).unwrap(), Settled::TimedOut);
    });
}
