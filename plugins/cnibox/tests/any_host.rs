// SPDX-License-Identifier: Apache-2.0
//! What docs/hosts.md has a column for: each test is what an operator wants to know of a host, in one network with real
//! packets. `scripts/conformance hosts` runs them on many hosts, some also with the Go plugins, and keeps what they say.

#[path = "nomad/world.rs"]
mod world;

use std::net::SocketAddr;

use cnibox_testkit::{Chain, ask_tcp, ping, sandbox, serve_tcp};
use serde_json::{Value, json};

use world::{World, add, address, live, steady, wait_for_addresses};

const DEFAULT: &str = include_str!("nomad/default.conflist");
const DUAL_STACK: &str = include_str!("nomad/ipv6.conflist");
const VERSION: &str = "1.0.0";

#[test]
fn nomads_network() {
    sandbox(|net| live(net, DEFAULT, VERSION, &[false]));
}

#[test]
fn nomads_dual_stack() {
    sandbox(|net| live(net, DUAL_STACK, VERSION, &[false, true]));
}

/// Nomad's network with every plugin told to use nftables.
#[test]
fn nftables_backends() {
    let mut conflist: Value = serde_json::from_str(DEFAULT).expect("a conflist");
    let plugins = &mut conflist["plugins"];
    plugins[1]["ipMasqBackend"] = json!("nftables");
    plugins[2]["backend"] = json!("nftables");
    plugins[3]["backend"] = json!("nftables");
    sandbox(|net| live(net, &conflist.to_string(), VERSION, &[false]));
}

/// The kernel labels a device as the process that makes it. Without a policy its own names for labels are all there are;
/// without SELinux there are none, which is said.
#[test]
fn tap_with_an_selinux_label() {
    let tap = json!({"type": "tap", "selinuxContext": "kernel"});
    let conflist = json!({"cniVersion": VERSION, "name": "tap", "plugins": [tap]});
    sandbox(|net| {
        let chain = Chain::new(net, &conflist.to_string());
        let pod = net.container();
        if !std::fs::read_to_string("/proc/filesystems").expect("the kernel's").contains("selinuxfs") {
            let Err(outcome) = chain.add(&pod, "eth0") else { panic!("no label can be set") };
            let (_, message) = outcome.failure();
            assert!(message.starts_with("failed set socket label: "), "{message}");
            return;
        }
        let attachment = add(&chain, &pod);
        let link = net.run_in(&pod, "ip", &["-d", "link", "show", "eth0"]);
        assert!(link.contains("tun type tap"), "{link}");
        attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
    });
}

/// A routed container with its own sysctls and limits.
#[test]
fn routed_and_limited() {
    let conflist = json!({
        "cniVersion": VERSION, "name": "routed",
        "plugins": [
            {"type": "ptp", "ipMasq": true,
             "ipam": {"type": "host-local", "subnet": "172.26.80.0/24", "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "tuning", "sysctl": {"net.ipv4.conf.all.log_martians": "1"}, "mtu": 1400},
            {"type": "bandwidth", "ingressRate": 100_000_000, "ingressBurst": 10_000_000,
             "egressRate": 100_000_000, "egressBurst": 10_000_000},
        ],
    });
    sandbox(|net| {
        let world = World::new(net);
        if net.succeeds("iptables", &["-S"]) {
            net.run("iptables", &["-P", "FORWARD", "ACCEPT"]);
        }
        let chain = Chain::new(net, &conflist.to_string());
        let (pod, other) = (net.container(), net.container());
        add(&chain, &other).del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        wait_for_addresses(net);
        let before = steady(net);
        let attachment = add(&chain, &pod);
        let _outside = serve_tcp(&world.outside, SocketAddr::new([0; 4].into(), 9000));
        let seen = ask_tcp(&pod.netns, SocketAddr::new([192, 0, 2, 9].into(), 9000)).expect("egress");
        assert_eq!(seen, world.host_ip, "egress is masqueraded");
        assert!(ping(net.netns(), address(&attachment.result, false)), "the host reaches the container");
        assert!(net.run_in(&pod, "ip", &["link", "show", "eth0"]).contains("mtu 1400"), "tuned");
        attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
        for _ in 0..2 {
            attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        }
        before.assert_same(&steady(net));
    });
}
