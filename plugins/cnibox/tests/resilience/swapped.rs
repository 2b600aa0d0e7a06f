// SPDX-License-Identifier: Apache-2.0
//! The Go plugins and ours take turns on one host. What Go attaches is in no record, and a record stays when Go detaches:
//! neither is a reason to take anything from what lives.

use cnibox_testkit::{Container, sandbox};
use serde_json::{Value, json};

use crate::fixture::{Side, Target, World};
use crate::networks::{self, Network};

/// Runs the scenario with the network as ours see it and as the Go plugins do.
fn by_both(network: Network, scenario: impl FnOnce(&World<'_>, &World<'_>) + Send) {
    if Side::Go.dir().is_none() {
        return cnibox_testkit::skip("CNIBOX_REFERENCE names no directory with the Go plugins");
    }
    sandbox(|net| {
        let ours = World::new(net, network, Side::Ours);
        let mut go = ours.with(ours.network.clone());
        go.side = Side::Go;
        scenario(&ours, &go);
    });
}

/// The same network under another name, on other ports.
fn renamed<'a>(world: &World<'a>, ports: usize) -> World<'a> {
    let mut network = world.network.clone().with_ports(ports);
    network.name = format!("{}-other", network.name);
    world.with(network)
}

fn second(target: &Target) -> Target {
    Target { ifname: "eth1".to_owned(), ..target.clone() }
}

/// Lines of the ruleset, of either dialect, that name a port.
fn rules_of(world: &World<'_>, port: usize) -> usize {
    let script =
        "iptables-save; ip6tables-save; nft list ruleset 2>/dev/null | grep cni_hostport -A 60 || true";
    world.net.run("sh", &["-c", script]).matches(&format!("dport {port}")).count()
}

fn without_ports<'a>(world: &World<'a>) -> World<'a> {
    let mut network = world.network.clone();
    network.ports = Value::Null;
    world.with(network)
}

fn target(world: &World<'_>) -> (Container, Target) {
    let pod = world.net.container();
    let target = Target::of(&pod);
    (pod, target)
}

/// Both networks' rules have the container's comment, and within a network both interfaces share a chain.
#[test]
fn del_without_ports_leaves_the_ports_that_go_gave_another_interface() {
    for network in [networks::native(), networks::v4()] {
        by_both(network, |ours, go| {
            let (_pod, first) = target(ours);
            let mut made_by_go = go.with(go.network.clone().with_ports(31_000));
            let result = made_by_go.add(&first).expect("ADD by Go");
            let before = rules_of(ours, 31_000);
            for other in [without_ports(ours), without_ports(&renamed(ours, 32_000))] {
                let other_result = other.add(&second(&first)).expect("ADD");
                for prev in [Value::Null, other_result] {
                    other.del(&second(&first), &prev).expect("DEL");
                    assert_eq!(rules_of(ours, 31_000), before, "{} {prev}", ours.network.label);
                }
            }
            made_by_go.check(&first, &result).expect("CHECK by Go");
            made_by_go.side = Side::Ours;
            made_by_go.del(&first, &result).expect("DEL");
            assert_eq!(rules_of(ours, 31_000), 0, "{}", ours.network.label);
        });
    }
}

/// A stale record of the container's does not make its other rules an ADD that was cut off.
#[test]
fn add_and_gc_leave_the_native_ports_that_go_gave_another_interface() {
    let mut network = networks::native();
    // The Go plugin's own DEL of such a masquerade asks iptables for what was never there, and fails.
    network.plugins[0]["ipMasq"] = json!(false);
    by_both(network, |ours, go| {
        let (_pod, first) = target(ours);
        let result = ours.add(&first).expect("ADD");
        go.del(&first, &result).expect("DEL by Go");
        let beside = renamed(go, 33_000);
        let other = beside.add(&second(&first)).expect("ADD by Go");
        let before = rules_of(ours, 33_000);
        let again = ours.add(&first).expect("ADD again");
        assert_eq!(rules_of(ours, 33_000), before);
        // With its ports it would take the other interface's along.
        without_ports(go).del(&first, &again).expect("DEL by Go");
        assert_eq!(rules_of(ours, 33_000), before, "DEL by Go");
        // As many ports as the record has.
        ours.gc(Some(&[&ours.neighbour])).expect("GC");
        assert_eq!(rules_of(ours, 33_000), before);
        beside.check(&second(&first), &other).expect("CHECK by Go");
        beside.del(&second(&first), &other).expect("DEL by Go");
    });
}

/// What no record has is no part of the attachment that one has, although the container is the same.
#[test]
fn gc_keeps_the_address_of_another_interface_that_go_made() {
    for network in [networks::v4(), networks::stacked()] {
        by_both(network, |ours, go| {
            let (_pod, first) = target(ours);
            ours.add(&first).expect("ADD");
            let result = without_ports(go).add(&second(&first)).expect("ADD by Go");
            let reserved = || ours.net.run("sh", &["-c", "cd /run/cni && find . -type f | sort"]);
            let before = reserved();
            // The runtime has lost the second one.
            ours.gc(Some(&[&first, &ours.neighbour])).expect("GC");
            assert_eq!(reserved(), before, "{}", ours.network.label);
            without_ports(ours).del(&second(&first), &result).expect("DEL");
            assert_ne!(reserved(), before, "{}", ours.network.label);
        });
    }
}

/// The device's name says no interface.
#[test]
fn gc_leaves_the_limit_of_another_interface_that_go_made() {
    by_both(networks::laden(), |ours, go| {
        let (_pod, first) = target(ours);
        let result = ours.add(&first).expect("ADD");
        go.del(&first, &result).expect("DEL by Go");
        let beside = go.with(go.network.clone().with_ports(34_000));
        let other = beside.add(&second(&first)).expect("ADD by Go");
        let limits = || ours.net.run("sh", &["-c", "ip -br link show type ifb | cut -d' ' -f1"]);
        let before = limits();
        assert!(before.contains("bwp"), "{before}");
        ours.gc(Some(&[&second(&first), &ours.neighbour])).expect("GC");
        assert_eq!(limits(), before);
        beside.del(&second(&first), &other).expect("DEL by Go");
    });
}

/// A record of an address that Go has given to somebody since.
#[test]
fn add_again_leaves_the_rules_of_an_address_that_go_gave_to_another() {
    let mut network = networks::v4();
    network.interface()["ipam"]["ranges"] =
        json!([[{"subnet": "10.61.0.0/16", "rangeStart": "10.61.0.2", "rangeEnd": "10.61.0.4"}]]);
    by_both(network, |ours, go| {
        let (_pod, first) = target(ours);
        let result = ours.add(&first).expect("ADD");
        let address = result["ips"][0]["address"].as_str().expect("an address").to_owned();
        go.del(&first, &result).expect("DEL by Go");
        // Until somebody has it.
        let mut others: Vec<(Container, Target, Value)> = Vec::new();
        loop {
            let (pod, other) = target(ours);
            let go = go.with(go.network.clone().with_ports(35_000 + 10 * others.len()));
            let given = go.add(&other).expect("ADD by Go");
            let is_it = given["ips"][0]["address"] == *address;
            others.push((pod, other, given));
            if is_it {
                break;
            }
        }
        let (_, released, given) = others.remove(0);
        if given["ips"][0]["address"] == *address {
            others.push((_pod, released, given));
            return;
        }
        go.del(&released, &given).expect("DEL by Go");
        let rules = || {
            let ip = address.split('/').next().unwrap_or_default().to_owned();
            ours.net.run("iptables-save", &["-t", "filter"]).matches(&format!(" {ip}/32")).count()
        };
        let before = rules();
        assert!(before > 0);
        ours.add(&first).expect("ADD again");
        assert_eq!(rules(), before);
    });
}

/// The record's interface is gone, and another has its name.
#[test]
fn del_without_a_namespace_leaves_the_interface_that_go_made_under_the_same_name() {
    for network in [networks::v4(), networks::stacked()] {
        by_both(network, |ours, go| {
            let (_pod, first) = target(ours);
            let result = ours.add(&first).expect("ADD");
            go.del(&first, &result).expect("DEL by Go");
            let beside =
                if go.network.ports.is_null() { go.with(go.network.clone()) } else { renamed(go, 36_000) };
            let other = beside.add(&first).expect("ADD by Go");
            let lost = Target { netns: String::new(), ..first.clone() };
            ours.del(&lost, &result).expect("DEL without a namespace");
            assert!(ours.has_interface(&first), "{}", ours.network.label);
            beside.del(&first, &other).expect("DEL by Go");
        });
    }
}

/// Both interfaces of the container share the chain.
#[test]
fn del_without_a_namespace_leaves_the_masquerade_of_another_interface_that_go_made() {
    let mut network = networks::v4();
    network.plugins.truncate(1);
    network.ports = Value::Null;
    by_both(network, |ours, go| {
        let (_pod, first) = target(ours);
        let result = go.add(&first).expect("ADD by Go");
        let other = go.add(&second(&first)).expect("ADD by Go");
        let ip = other["ips"][0]["address"].as_str().and_then(|ip| ip.split('/').next()).expect("an address");
        // It says that the shared chain is busy, when everything else is done.
        let _ = go.del(&first, &result);
        let rules = || ours.net.run("iptables-save", &["-t", "nat"]).matches(&format!("-s {ip}/32")).count();
        assert_eq!(rules(), 1);
        let lost = Target { netns: String::new(), ..first.clone() };
        ours.del(&lost, &Value::Null).expect("DEL without a namespace");
        assert_eq!(rules(), 1);
        ours.del(&second(&first), &other).expect("DEL");
        assert_eq!(rules(), 0);
    });
}

/// The reference counts rules.
#[test]
fn a_mapping_that_is_given_twice_passes_either_check() {
    let mut network = networks::native();
    network.plugins[0]["ipam"]["ranges"] = json!([[{"subnet": "10.62.0.0/16"}]]);
    network.plugins[0]["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    by_both(network, |ours, go| {
        let (_pod, first) = target(ours);
        let mut twice = ours.network.clone();
        let mapping = json!({"hostPort": 37_000, "containerPort": 80, "protocol": "tcp"});
        twice.ports = json!([mapping, mapping]);
        let mut twice = ours.with(twice);
        let result = twice.add(&first).expect("ADD");
        twice.check(&first, &result).expect("CHECK");
        twice.side = go.side;
        let portmap = twice.network.plugins.len() - 1;
        let answer = twice.call(portmap, "CHECK", &first, &result).run();
        assert!(answer.ok(), "CHECK by Go: {answer:?}");
        twice.side = Side::Ours;
        twice.del(&first, &result).expect("DEL");
        assert_eq!(rules_of(ours, 37_000), 0);
    });
}
