// SPDX-License-Identifier: Apache-2.0
//! The networks of README.md and docs/networks.md, each of them run as it stands there.

use std::collections::BTreeSet;
use std::process::Command;

use cnibox_testkit::{Chain, Process, Sandbox, Snapshot, has_ipv6, lacks, sandbox};
use serde_json::Value;

const PAGES: [&str; 2] = [include_str!("../../../README.md"), include_str!("../../../docs/networks.md")];
const HEADING: &str = "# Networks to start from";
/// Kinds of links that a kernel may lack, and how to find out.
const KINDS: [(&str, &str); 4] =
    [("dummy", ""), ("ipvlan", "link probe1"), ("vlan", "link probe1"), ("vrf", "")];

/// The configurations below the heading of each page.
fn networks() -> Vec<Value> {
    PAGES.into_iter().flat_map(networks_of).collect()
}

fn networks_of(page: &str) -> Vec<Value> {
    let (_, section) = page.split_once(HEADING).expect("the heading");
    let section = section.split("\n##").next().expect("a section");
    let blocks = section.split("```json\n").skip(1);
    let text = |block: &str| block.split("```").next().expect("a block").to_owned();
    blocks.map(|block| serde_json::from_str(&text(block)).expect("JSON")).collect()
}

fn types(network: &Value) -> Vec<String> {
    let plugins = network["plugins"].as_array().expect("plugins");
    plugins.iter().map(|plugin| plugin["type"].as_str().expect("a type").to_owned()).collect()
}

/// The host has an interface `eth1` whose other end answers.
fn uplink(net: &Sandbox) {
    net.run("ip", &["link", "add", "eth1", "type", "veth", "peer", "name", "far1"]);
    for link in ["eth1", "far1"] {
        if has_ipv6() {
            net.run("ip", &["link", "set", link, "addrgenmode", "none"]);
        }
        net.run("ip", &["link", "set", link, "up"]);
    }
}

/// The first kind of link that the network needs and this kernel lacks.
fn missing(net: &Sandbox, network: &Value) -> Option<&'static str> {
    let wanted = types(network);
    let mut kinds = KINDS.iter().filter(|(kind, _)| wanted.iter().any(|plugin| plugin == kind));
    net.run("ip", &["link", "add", "probe1", "type", "veth", "peer", "name", "probe2"]);
    let lacking = kinds.find(|(kind, over)| {
        let more = match *kind {
            "vlan" => " id 9",
            "vrf" => " table 9",
            _ => "",
        };
        let args = format!("link add probe0 {over} type {kind}{more}");
        let made = Command::new("ip").args(args.split_whitespace()).output().expect("run ip");
        if made.status.success() {
            net.run("ip", &["link", "del", "probe0"]);
        }
        !made.status.success()
    });
    net.run("ip", &["link", "del", "probe1"]);
    lacking.map(|(kind, _)| *kind)
}

/// firewalld's part of the sandbox's system bus, the conformance lab's.
fn firewalld() -> Process {
    std::fs::create_dir("/run/dbus").expect("make the bus's directory");
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "conformance.side_by_side.firewalld", BUS]);
    python.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    Process::start(&mut python).expect("start python3").listening(BUS)
}

const BUS: &str = "/run/dbus/system_bus_socket";

/// Without what is to differ: the memory of the last address, the index that says so, and what firewalld notes.
fn steady(net: &Sandbox) -> Snapshot {
    net.snapshot()
        .without("last_reserved_ip")
        .without("/run/cnibox/host-local/")
        .without("/run/firewalld.log")
}

#[test]
fn every_network_of_the_documents_lives() {
    for network in networks() {
        sandbox(|net| {
            uplink(net);
            if let Some(kind) = missing(net, &network) {
                lacks(kind);
                return;
            }
            let _firewalld = types(&network).contains(&"firewall".to_owned()).then(firewalld);
            let chain = Chain::new(net, &network.to_string());
            let name = &network["name"];
            let pod = net.container();
            let add = || chain.add(&pod, "eth0").unwrap_or_else(|bad| panic!("{name}: ADD: {}", bad.stdout));
            // What all containers share is there afterwards.
            add().del().unwrap_or_else(|bad| panic!("{name}: DEL: {}", bad.stdout));
            let before = (steady(net), net.snapshot_of(&pod));
            let attachment = add();
            let link = net.run_in(&pod, "ip", &["-d", "link", "show", "eth0"]);
            assert!(link.contains("eth0"), "{name}: {link}");
            // sbr and vrf move the routes that the interface plugin's CHECK looks for, with either implementation.
            if !types(&network).iter().any(|kind| kind == "sbr" || kind == "vrf") {
                attachment.check().unwrap_or_else(|bad| panic!("{name}: CHECK: {}", bad.stdout));
            }
            for _ in 0..2 {
                attachment.del().unwrap_or_else(|bad| panic!("{name}: DEL: {}", bad.stdout));
            }
            before.0.assert_same(&steady(net));
            if !types(&network).contains(&"tuning".to_owned()) {
                // Sysctls stay until the namespace goes, as with the reference.
                before.1.assert_same(&net.snapshot_of(&pod));
            }
        });
    }
}

#[test]
fn every_interface_and_meta_plugin_has_an_example() {
    let shown: BTreeSet<_> = networks().iter().flat_map(types).collect();
    let wanted = [
        "bandwidth",
        "bridge",
        "dummy",
        "firewall",
        "host-device",
        "ipvlan",
        "macvlan",
        "ptp",
        "sbr",
        "tap",
        "tuning",
        "vlan",
        "vrf",
    ];
    assert_eq!(shown.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
}
