// SPDX-License-Identifier: Apache-2.0
//! The sandbox itself: isolation, pods, probes, snapshots.

use std::net::IpAddr;

use cnibox_testkit::{anonymous, ask_tcp, ask_udp, in_netns, ping, sandbox, serve_tcp, serve_udp};

#[test]
fn sandboxes_and_pods_are_namespaces_of_their_own() {
    sandbox(|net| {
        let (one, two) = (net.container(), net.container());
        let ids = [net.netns(), &one.netns, &two.netns].map(|ns| ns.identity().unwrap());
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert!(net.netns().same_as_current().unwrap());
        assert!(cnibox_netns::NetNs::open(&one.path).is_ok());
        assert!(net.run("ip", &["netns", "list"]).contains(&one.id));
        assert!(net.run("ip", &["-o", "link"]).lines().count() >= 1);
    });
    assert!(!std::path::Path::new("/run/testkit").exists());
}

#[test]
fn anonymous_namespaces_are_new_and_do_not_move_the_caller() {
    sandbox(|net| {
        let (one, two) = (anonymous(), anonymous());
        assert_ne!(one.identity().unwrap(), two.identity().unwrap());
        assert!(net.netns().same_as_current().unwrap());
    });
}

#[test]
fn probes_go_through_the_network_and_tell_the_source() {
    sandbox(|net| {
        let pod = net.container();
        net.run("ip", &["link", "add", "h0", "type", "veth", "peer", "name", "p0", "netns", &pod.id]);
        net.run("ip", &["address", "add", "10.0.0.1/24", "dev", "h0"]);
        net.run("ip", &["link", "set", "h0", "up"]);
        net.run_in(&pod, "ip", &["address", "add", "10.0.0.2/24", "dev", "p0"]);
        net.run_in(&pod, "ip", &["link", "set", "p0", "up"]);
        let host: IpAddr = "10.0.0.1".parse().unwrap();
        let tcp = serve_tcp(&pod.netns, "10.0.0.2:0".parse().unwrap());
        let udp = serve_udp(&pod.netns, "10.0.0.2:0".parse().unwrap());
        assert!(ping(net.netns(), tcp.addr.ip()));
        assert_eq!(ask_tcp(net.netns(), tcp.addr).unwrap(), host);
        assert_eq!(ask_udp(net.netns(), udp.addr).unwrap(), host);
        let port = tcp.addr.port();
        drop(tcp);
        assert!(ask_tcp(net.netns(), ([10, 0, 0, 2], port).into()).is_err());
        assert!(in_netns(&pod.netns, || pod.netns.same_as_current().unwrap()));
    });
}

#[test]
fn snapshots_show_what_changed() {
    sandbox(|net| {
        let before = net.snapshot();
        before.assert_same(&net.snapshot());
        net.run("ip", &["link", "add", "h0", "type", "veth", "peer", "name", "p0"]);
        net.run("iptables", &["-A", "INPUT", "-s", "10.9.9.9/32", "-j", "ACCEPT"]);
        std::fs::create_dir_all("/var/lib/cni/networks/n").unwrap();
        std::fs::write("/var/lib/cni/networks/n/10.0.0.2", "pod\r\neth0").unwrap();
        let after = net.snapshot();
        assert_ne!(before, after);
        assert_eq!(after.lines("-s 10.9.9.9/32").len(), 1);
        assert_eq!(after.lines(r#"/10.0.0.2: "pod\r\neth0""#).len(), 1);
        assert!(!after.lines(r#""ifname":"h0""#).is_empty());
        assert!(after.without("10.0.0.2: ").lines("/var/lib/cni/").len() < 2);
    });
}
