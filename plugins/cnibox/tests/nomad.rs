// SPDX-License-Identifier: Apache-2.0
//! Nomad's bridge networks, run as Nomad runs them: loopback first, all under `CNI_IFNAME=eth0`, `CNI_ARGS` full of
//! its own keys, two ports for tcp and udp, and its admin chain made by itself beforehand.

#[path = "nomad/world.rs"]
mod world;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cnibox_testkit::{Container, Sandbox, ask_tcp, sandbox, serve_tcp};
use serde_json::{Value, json};

use world::{ARGS, HOST_PORT, POD_PORT, World, add, address, chain, live, steady};

const DEFAULT: &str = include_str!("nomad/default.conflist");
const IPV6: &str = include_str!("nomad/ipv6.conflist");
const MACVLAN: &str = include_str!("nomad/macvlan.conflist");
const TRANSPARENT_PROXY: &str = include_str!("nomad/transparent-proxy.conflist");

/// Every version that the whole chain speaks: firewall starts with 0.4.0.
const VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];

#[test]
fn the_default_network_lives_in_every_version() {
    for version in VERSIONS {
        sandbox(|net| live(net, DEFAULT, version, &[false]));
    }
}

/// Frames that cross a bridge are no business of the packet filter there, so answers to a neighbour take the short way.
#[test]
fn the_default_network_lives_without_br_netfilter() {
    sandbox(|net| {
        for switch in
            ["iptables", "ip6tables"].map(|tool| format!("/proc/sys/net/bridge/bridge-nf-call-{tool}"))
        {
            if Path::new(&switch).exists() {
                fs::write(&switch, "0").unwrap_or_else(|error| panic!("write {switch}: {error}"));
            }
        }
        live(net, IPV6, "1.0.0", &[false, true]);
    });
}

#[test]
fn the_ipv6_network_lives_in_every_version() {
    for version in VERSIONS {
        sandbox(|net| live(net, IPV6, version, &[false, true]));
    }
}

/// The network as configured, and with the one address that a job asks for.
#[test]
fn the_macvlan_network_puts_jobs_on_the_machines_own_network() {
    let ipam = |conflist: &str, ipam: Value| {
        let mut conflist: Value = serde_json::from_str(conflist).expect("a conflist");
        conflist["plugins"][1]["ipam"] = ipam;
        conflist.to_string()
    };
    let route = json!([{"dst": "0.0.0.0/0", "gw": "192.0.2.9"}]);
    let fixed = ipam(MACVLAN, json!({"type": "static", "routes": route}));
    for version in VERSIONS {
        // The second address of the range: host-local hands out the one released last when all others are taken.
        neighbours(MACVLAN, version, "192.0.2.101", "");
        neighbours(&fixed, version, "192.0.2.77", ";IP=192.0.2.77/24;GATEWAY=192.0.2.9");
    }
}

/// A job with this address on the uplink's network talks to its neighbour there and goes without a trace.
fn neighbours(conflist: &str, version: &str, expected: &str, asked: &str) {
    sandbox(|net| {
        let world = World::new(net);
        let args = format!("{ARGS}{asked}");
        let chain = chain(net, conflist, version).args(&args);
        let pod = net.container();
        add(&chain, &pod).del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        let before = steady(net);
        let attachment = add(&chain, &pod);
        let ip = address(&attachment.result, false);
        assert_eq!(ip.to_string(), expected);
        let _pod = serve_tcp(&pod.netns, SocketAddr::new([0; 4].into(), POD_PORT));
        let seen = ask_tcp(&world.outside, SocketAddr::new(ip, POD_PORT)).expect("the neighbour to the job");
        assert_eq!(seen.to_string(), "192.0.2.9");
        let _outside = serve_tcp(&world.outside, SocketAddr::new([0; 4].into(), 9000));
        let neighbour = SocketAddr::new([192, 0, 2, 9].into(), 9000);
        assert_eq!(ask_tcp(&pod.netns, neighbour).expect("the job to the neighbour"), ip);
        attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
        for _ in 0..2 {
            attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        }
        before.assert_same(&steady(net));
    });
}

/// The third-party plugin of the transparent proxy network: notes what it was given and passes prevResult on.
const RECORDER: &str = r#"#!/bin/sh
config=$(cat)
printf '%s\n' "$config" >>/run/testkit/consul.stdin
printf '%s %s\n' "$CNI_COMMAND" "$CNI_ARGS" >>/run/testkit/consul.env
[ "$CNI_COMMAND" != ADD ] || printf '%s' "$config" | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["prevResult"]))'
"#;

#[test]
fn a_chained_third_party_plugin_gets_what_nomad_promises_it() {
    sandbox(|net| {
        let world = World::new(net);
        let recorder = net.cni_path().join("consul-cni");
        fs::write(&recorder, RECORDER).expect("write the recorder");
        fs::set_permissions(&recorder, fs::Permissions::from_mode(0o755)).expect("make it executable");
        let chain = chain(net, TRANSPARENT_PROXY, "0.4.0");
        let pod = net.container();
        let attachment = add(&chain, &pod);
        let _server = serve_tcp(&pod.netns, SocketAddr::new([0; 4].into(), POD_PORT));
        ask_tcp(&world.outside, SocketAddr::new(world.host_ip, HOST_PORT)).expect("through the host port");
        attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
        attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));

        let env = fs::read_to_string(net.dir().join("consul.env")).expect("the recorder ran");
        let verbs: Vec<_> = env.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(verbs, ["ADD", "CHECK", "DEL"]);
        assert!(env.contains("CONSUL_IPTABLES_CONFIG={\"ProxyUserID\""), "{env}");
        let stdin = fs::read_to_string(net.dir().join("consul.stdin")).expect("the recorder ran");
        let given: Value =
            serde_json::from_str(stdin.lines().next().expect("a configuration")).expect("JSON");
        let interfaces = given["prevResult"]["interfaces"].as_array().expect("interfaces");
        assert_eq!(interfaces[0]["name"], "nomad");
        assert_eq!(interfaces[2]["name"], "eth0");
        assert_eq!(given["prevResult"]["cniVersion"], "0.4.0");
    });
}

/// Removes one thing that ADD made.
type Damage = fn(&Sandbox, &Container, &Value);

fn shell(net: &Sandbox, command: &str) {
    net.run("sh", &["-c", command]);
}

fn delete_rule(net: &Sandbox, table: &str, pattern: &str) {
    let list = format!("iptables -t {table} -S | grep -- '{pattern}' | head -n 1 | sed 's/^-A/-D/'");
    shell(net, &format!("rule=$({list}); test -n \"$rule\"; echo \"iptables -t {table} $rule\" | sh"));
}

/// Deletes the first rule of a chain that has the word.
fn delete_native(net: &Sandbox, chain: &str, word: &str) {
    let find =
        format!("nft -a list chain {chain} | grep '{word}.*# handle' | head -n 1 | sed 's/.*# handle//'");
    shell(net, &format!("handle=$({find}); test -n \"$handle\"; nft delete rule {chain} handle $handle"));
}

#[test]
fn check_names_whatever_is_missing() {
    let interface: &[(&str, Damage)] = &[
        ("172.26.64.2", |net, pod, _| {
            net.run_in(pod, "ip", &["addr", "del", "172.26.64.2/20", "dev", "eth0"]);
        }),
        ("Route", |net, pod, _| {
            net.run_in(pod, "ip", &["route", "del", "default"]);
        }),
        ("eth0", |net, pod, _| {
            net.run_in(pod, "ip", &["link", "del", "eth0"]);
        }),
        ("loopback interface is down", |net, pod, _| {
            net.run_in(pod, "ip", &["link", "set", "lo", "down"]);
        }),
        ("nomad", |net, _, result| {
            let port = result["interfaces"][1]["name"].as_str().expect("a host veth").to_owned();
            net.run("ip", &["link", "set", &port, "nomaster"]);
        }),
        ("Failed to find address", |net, _, _| shell(net, "rm /run/cni/nomad/172.26.64.2")),
    ];
    let in_iptables: &[(&str, Damage)] = &[
        ("MASQUERADE", |net, _, _| delete_rule(net, "nat", "MASQUERADE.*")),
        ("172.26.64.2/32", |net, _, _| delete_rule(net, "nat", "POSTROUTING.*-s 172.26.64.2/32")),
        ("172.26.64.2/32", |net, _, _| delete_rule(net, "filter", "-s 172.26.64.2/32")),
        ("RELATED,ESTABLISHED", |net, _, _| delete_rule(net, "filter", "-d 172.26.64.2/32")),
        ("CNI firewall plugin rules", |net, _, _| delete_rule(net, "filter", "^-A FORWARD")),
        ("NOMAD-ADMIN", |net, _, _| delete_rule(net, "filter", "-j NOMAD-ADMIN")),
        ("CNI-DN-", |net, _, _| delete_rule(net, "nat", "-j DNAT")),
        ("CNI-HOSTPORT-DNAT", |net, _, _| delete_rule(net, "nat", "CNI-HOSTPORT-DNAT.*-j CNI-DN")),
    ];
    let native: &[(&str, Damage)] = &[
        ("masq_checks", |net, _, _| delete_native(net, "inet cni_plugins_masquerade masq_checks", "saddr")),
        ("masq_checks", |net, _, _| delete_native(net, "inet cni_plugins_masquerade postrouting", "goto")),
        ("hostports", |net, _, _| delete_native(net, "ip cni_hostport hostports", "dport")),
        ("prerouting", |net, _, _| delete_native(net, "ip cni_hostport prerouting", "jump")),
        ("172.26.64.2", |net, _, _| delete_native(net, "ip cni_firewall CNI-FORWARD", "saddr")),
        ("related", |net, _, _| delete_native(net, "ip cni_firewall CNI-FORWARD", "daddr")),
        ("172.26.64.2", |net, _, _| delete_native(net, "ip filter CNI-FORWARD", "saddr")),
        ("CNI firewall plugin rules", |net, _, _| delete_native(net, "ip filter FORWARD", "CNI-FORWARD")),
        ("NOMAD-ADMIN", |net, _, _| delete_native(net, "ip filter CNI-FORWARD", "NOMAD-ADMIN")),
    ];
    let mut rules = native;
    sandbox(|net| {
        if net.holds_iptables() {
            rules = in_iptables
        }
    });
    for (named, damage) in interface.iter().chain(rules) {
        sandbox(|net| {
            let _world = World::new(net);
            let chain = chain(net, DEFAULT, "1.0.0");
            let pod = net.container();
            let attachment = add(&chain, &pod);
            attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
            damage(net, &pod, &attachment.result);
            let outcome =
                attachment.check().expect_err(&format!("CHECK after removing what names {named:?}"));
            let (_, message) = outcome.failure();
            assert!(message.contains(named), "{message:?} does not name {named:?}");
            attachment
                .del()
                .unwrap_or_else(|outcome| panic!("DEL after damage {named:?}: {}", outcome.stdout));
        });
    }
}
