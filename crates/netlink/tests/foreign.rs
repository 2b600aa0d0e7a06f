// SPDX-License-Identifier: Apache-2.0
//! What others put into their namespaces: names that are no text, more of everything than fits a buffer, and changes
//! that never end. Whatever it is, the rest is seen.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::fs;
use std::process::{Child, Command};

use cnibox_netlink::{Family, LinkChange, Rtnl, TABLE_MAIN};
use cnibox_testkit::{Container, Sandbox, sandbox};

/// A pod with two ends of a pair in it, `eth0` up with an address; its socket.
fn pod(net: &Sandbox) -> (Container, Rtnl) {
    let pod = net.container();
    let made = "ip link add eth0 type veth peer name eth1; ip link set eth1 up; \
        ip link set eth0 up; ip address add 10.0.0.2/24 dev eth0";
    net.run_in(&pod, "sh", &["-ec", made]);
    let rtnl = pod.netns.run(Rtnl::open_foreign).unwrap().unwrap();
    (pod, rtnl)
}

/// As the shell says it; `\377` is a byte that no text has.
fn plant(net: &Sandbox, pod: &Container, script: &str) {
    net.run_in(pod, "bash", &["-ec", script]);
}

#[test]
fn names_that_are_no_text_hide_nothing() {
    sandbox(|net| {
        let (pod, mut rtnl) = pod(net);
        plant(net, &pod, r"ip link add $'br\377' type bridge; ip link set eth1 master $'br\377'");
        plant(net, &pod, r"ip link property add dev eth0 altname $'alt\377'");
        plant(net, &pod, r"ip link set eth0 alias $'ours?\377'; ip link set eth1 alias $'ours\n'");
        let eth0 = rtnl.link_by_name("eth0").unwrap();
        assert_eq!(
            (eth0.alias.as_deref(), eth0.is_up(), eth0.is_kind("veth")),
            (Some("ours?\u{fffd}"), true, true)
        );
        assert_eq!(rtnl.link_by_index(eth0.index).unwrap(), eth0);
        let names: Vec<_> = rtnl.links().unwrap().into_iter().map(|link| link.name).collect();
        for name in ["lo", "eth0", "eth1", "br\u{fffd}"] {
            assert!(names.iter().any(|known| known == name), "{name} of {names:?}");
        }
        let bridge = rtnl.links().unwrap().into_iter().find(|link| link.is_kind("bridge")).unwrap();
        let ports = rtnl.links_of_master(bridge.index).unwrap();
        assert_eq!((ports.len(), ports[0].alias.as_deref()), (1, Some("ours\n")));
        // The name as it was read is nobody's.
        assert!(rtnl.link_by_name_if_present(&bridge.name).unwrap().is_none());
    });
}

#[test]
fn labels_and_rules_that_are_no_text_hide_nothing() {
    sandbox(|net| {
        let (pod, mut rtnl) = pod(net);
        plant(net, &pod, r"ip address add 10.0.1.2/24 dev eth0 label $'eth0:\377'");
        let index = rtnl.link_by_name("eth0").unwrap().index;
        let addrs = rtnl.addrs(index, Some(Family::V4)).unwrap();
        let nets: Vec<_> = addrs.iter().map(|addr| addr.net.to_string()).collect();
        assert_eq!(nets, ["10.0.0.2/24", "10.0.1.2/24"]);
        plant(net, &pod, r"ip rule add from 10.0.0.2 iif $'i\377' lookup 77 priority 9");
        plant(net, &pod, r"ip -6 rule add oif $'o\377' lookup 78 priority 9");
        for (family, table) in [(Family::V4, 77), (Family::V6, 78)] {
            assert!(rtnl.rules(family).unwrap().iter().any(|rule| (rule.table, rule.priority) == (table, 9)));
        }
    });
}

#[test]
fn one_link_can_have_more_to_say_than_a_buffer_holds() {
    sandbox(|net| {
        let (pod, mut rtnl) = pod(net);
        // 300 times 120 bytes.
        let names =
            r"for n in {1..300}; do printf 'link property add dev eth0 altname x%0119d\n' $n; done | ip -b -";
        plant(net, &pod, names);
        let eth0 = rtnl.link_by_name("eth0").unwrap();
        assert!(eth0.is_kind("veth") && eth0.is_up());
        assert_eq!(rtnl.link_by_name(&format!("x{:0119}", 300)).unwrap(), eth0);
        assert!(rtnl.links().unwrap().contains(&eth0));
        rtnl.link_set(LinkChange::new(eth0.index).mtu(1300)).unwrap();
        assert!(rtnl.link_del_by_name_if_present("eth0").unwrap());
    });
}

#[test]
fn routes_are_read_and_copied_whatever_is_beside_them() {
    sandbox(|net| {
        let (pod, mut rtnl) = pod(net);
        plant(
            net,
            &pod,
            "ip route add 10.7.0.0/16 via 10.0.0.1 dev eth0 mtu lock 1300 rto_min 5s congctl reno features ecn; \
             ip route add unreachable 10.8.0.0/16; ip route add 10.9.0.0/16 proto 77 realm 5 via 10.0.0.1; \
             ip nexthop add id 9 via 10.0.0.1 dev eth0; ip route add 10.10.0.0/16 nhid 9",
        );
        let index = rtnl.link_by_name("eth0").unwrap().index;
        let routes = rtnl.routes(Family::V4, TABLE_MAIN, Some(index)).unwrap();
        let of = |net: &str| routes.iter().find(|route| route.dst == net.parse().unwrap()).unwrap();
        for net in ["10.7.0.0/16", "10.9.0.0/16", "10.10.0.0/16"] {
            rtnl.route_copy(of(net), 100).unwrap();
        }
        let copies = net.run_in(&pod, "ip", &["route", "show", "table", "100"]);
        assert!(copies.contains("mtu lock 1300") && copies.contains("proto 77"), "{copies}");
        // That of a next hop of its own goes with it only.
        for route in routes.iter().filter(|route| route.dst != "10.10.0.0/16".parse().unwrap()) {
            rtnl.route_del_exact(route).unwrap();
        }
        assert_eq!(rtnl.routes(Family::V4, TABLE_MAIN, Some(index)).unwrap().len(), 1);
    });
}

/// Somebody who adds and deletes an address for as long as this lives.
struct Restless {
    child: Child,
}

impl Restless {
    fn start(net: &Sandbox, pod: &Container, address: &str) -> Self {
        let file = net.dir().join(address);
        let both = format!("address add {address}/32 dev eth1\naddress del {address}/32 dev eth1\n");
        fs::write(&file, both.repeat(500)).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "while ip -b \"$1\"; do :; done", "sh"]).arg(&file);
        Self { child: pod.netns.run(|| command.spawn()).unwrap().unwrap() }
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn lists_come_to_an_end_where_nothing_stays_as_it_is() {
    sandbox(|net| {
        let (pod, mut rtnl) = pod(net);
        let many = r"for a in {0..9}; do for b in {1..200}; do echo address add 10.2.$a.$b/32 dev eth0; done; done | ip -b -";
        plant(net, &pod, many);
        let index = rtnl.link_by_name("eth0").unwrap().index;
        let mut restless = ["10.3.0.1", "10.3.0.2"].map(|address| Restless::start(net, &pod, address));
        for _ in 0..20 {
            assert_eq!(rtnl.addrs(index, Some(Family::V4)).unwrap().len(), 2001);
        }
        for restless in &mut restless {
            assert!(restless.child.try_wait().unwrap().is_none(), "it has rested");
        }
    });
}

#[test]
fn nobody_but_the_kernel_is_heard() {
    sandbox(|net| {
        let pod = net.container();
        let answer = pod.netns.run(|| {
            let _rtnl = Rtnl::open_foreign().unwrap();
            // The only sockets of the namespace are the kernel's and ours.
            let listed = fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
            let port = |line: &str| line.split_whitespace().nth(2).and_then(|port| port.parse().ok());
            let port = listed.lines().skip(1).filter_map(port).find(|port| *port != 0_u32).unwrap();
            let stranger = netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_ROUTE).unwrap();
            stranger.send_to(&[0; 64], &netlink_sys::SocketAddr::new(port, 0), 0)
        });
        assert_eq!(answer.unwrap().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    });
}
