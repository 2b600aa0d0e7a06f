// SPDX-License-Identifier: Apache-2.0
use ipnet::Ipv4Net;

use super::*;

fn granted(options: Vec<DhcpOption>) -> Lease {
    let server = DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 1, 2, 1));
    Lease::granted(Ipv4Addr::new(10, 1, 2, 9), Some([2; 6]), &[vec![server], options].concat())
}

fn mask() -> DhcpOption {
    DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0))
}

fn routes(options: Vec<DhcpOption>) -> Vec<String> {
    let mut options = options;
    options.push(mask());
    let result = granted(options).result(0, false).unwrap();
    let text = |route: &Route| {
        let scope = route.scope.map(|scope| format!(" scope {scope}")).unwrap_or_default();
        format!("{} via {}{scope}", route.dst, route.gw.unwrap())
    };
    result.routes.iter().map(text).collect()
}

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

#[test]
fn the_address_has_the_servers_mask_and_first_router() {
    let router = DhcpOption::Router(vec![ip("10.1.2.1"), ip("10.1.2.2")]);
    let result = granted(vec![mask(), router]).result(7, false).unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.1.2.9/24");
    assert_eq!(result.ips[0].gateway.unwrap().to_string(), "10.1.2.1");
    assert_eq!((result.routes.len(), result.routes[0].priority), (1, 7));
    let error = granted(vec![]).result(0, false).unwrap_err();
    assert_eq!(error.to_string(), "DHCP option Subnet Mask not found in DHCPACK");
    let odd = DhcpOption::SubnetMask(ip("255.0.255.0"));
    assert!(granted(vec![odd]).network().is_err());
}

#[test]
fn classless_routes_replace_all_others() {
    let router = DhcpOption::Router(vec![ip("10.1.2.1")]);
    let classful = DhcpOption::StaticRoutingTable(vec![
        (ip("10.0.0.0"), ip("10.1.2.3")),
        (ip("192.168.1.0"), ip("192.168.2.3")),
        (ip("172.16.0.0"), ip("10.1.2.4")),
        (ip("224.0.0.0"), ip("10.1.2.4")),
    ]);
    let want = [
        "10.0.0.0/8 via 10.1.2.3",
        "192.168.1.0/24 via 192.168.2.3",
        "172.16.0.0/16 via 10.1.2.4",
        "0.0.0.0/0 via 10.1.2.1",
    ];
    assert_eq!(routes(vec![router.clone(), classful.clone()]), want);
    let net = |text: &str, prefix| Ipv4Net::new(ip(text), prefix).unwrap();
    let classless = DhcpOption::ClasslessStaticRoute(vec![
        (net("10.9.0.0", 16), ip("10.1.2.5")),
        (net("169.254.0.0", 16), ip("0.0.0.0")),
    ]);
    let want = ["10.9.0.0/16 via 10.1.2.5", "169.254.0.0/16 via 0.0.0.0 scope 253"];
    assert_eq!(routes(vec![router, classful, classless]), want);
    assert_eq!(routes(vec![]), [""; 0]);
}

#[test]
fn times_have_defaults() {
    let seconds = |options: Vec<DhcpOption>| {
        let lease = granted(options);
        [lease.renew, lease.rebind, lease.lasts]
    };
    assert_eq!(seconds(vec![]), [1800, 3060, 3600]);
    assert_eq!(seconds(vec![DhcpOption::AddressLeaseTime(120)]), [60, 102, 120]);
    let all = vec![DhcpOption::Rebinding(9), DhcpOption::Renewal(3), DhcpOption::AddressLeaseTime(u32::MAX)];
    assert_eq!(seconds(all), [3, 9, u64::from(u32::MAX)]);
    assert_eq!(seconds(vec![DhcpOption::AddressLeaseTime(0), DhcpOption::Renewal(0)]), [1, 1, 1]);
    let odd = vec![DhcpOption::AddressLeaseTime(100), DhcpOption::Renewal(90), DhcpOption::Rebinding(200)];
    assert_eq!(seconds(odd), [50, 85, 100]);
}

#[test]
fn times_are_the_boots_and_no_step_of_the_wall_clock_changes_them() {
    let lease = granted(vec![DhcpOption::AddressLeaseTime(100)]);
    let since_boot = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap());
    let age = since_boot.checked_sub(Duration::from_millis(lease.granted)).unwrap();
    assert!(age < Duration::from_secs(10), "{age:?}");
    // As a daemon wrote it that went by the wall clock.
    let older = serde_json::to_string(&lease).unwrap().replace("granted_since_boot", "granted");
    let older: Lease = serde_json::from_str(&older).unwrap();
    assert!(older.granted >= lease.granted && older.until_expiry() > Duration::from_secs(90));
}

#[test]
fn names_are_in_the_result_if_wanted() {
    let options = vec![
        mask(),
        DhcpOption::DomainNameServer(vec![ip("10.1.2.1"), ip("1.1.1.1")]),
        DhcpOption::DomainName("example.org\0".into()),
    ];
    let lease = granted(options);
    assert!(lease.result(0, false).unwrap().dns.is_empty());
    let dns = lease.result(0, true).unwrap().dns;
    assert_eq!((dns.nameservers.len(), dns.domain.as_str()), (2, "example.org"));
}

#[test]
fn only_domains_are_taken_for_one() {
    let named = |name: &str| {
        let mut lease = granted(vec![mask(), DhcpOption::DomainName(name.into())]);
        lease.search = vec![name.to_owned(), "good.example".to_owned()];
        lease.result(0, true).unwrap().dns
    };
    let long = "a.".repeat(127) + "a";
    for name in ["example", "a-b.example.org.", "_msdcs.example", long.trim_end_matches(".a")] {
        let dns = named(name);
        assert_eq!((dns.domain.as_str(), dns.search.len()), (name, 2));
    }
    let label = "a".repeat(64);
    let wrong =
        ["a\nnameserver 6.6.6.6", "a\0b", "\u{1b}[2J", "a b", "a..b", ".", "ä.example", &label, &long];
    for name in wrong {
        let dns = named(name);
        assert_eq!((dns.domain.as_str(), dns.search), ("", vec!["good.example".to_owned()]), "{name:?}");
    }
}

#[test]
fn an_extension_keeps_what_it_does_not_say() {
    let router = DhcpOption::Router(vec![ip("10.1.2.1")]);
    let first = granted(vec![mask(), router, DhcpOption::DomainName("x".into())]);
    let bare = Lease { server: None, hop: None, ..granted(vec![DhcpOption::AddressLeaseTime(5)]) };
    let second = bare.after(&first);
    assert_eq!(second.result(0, true), first.result(0, true));
    assert_eq!((second.server, second.hop, second.lasts), (first.server, first.hop, 5));
    let json = serde_json::to_string(&second).unwrap();
    assert_eq!(serde_json::from_str::<Lease>(&json).unwrap(), second);
}
