// SPDX-License-Identifier: Apache-2.0
//! STATUS says when ADD cannot work: no permission, no address left, a part of kernel or host that is missing.

use std::process::Command;

use cnibox_testkit::{Sandbox, sandbox};
use serde_json::{Value, json};

use crate::fixture::{Answer, Call, Side, Target, World, on_each};
use crate::networks::{self, Network};

/// STATUS of every plugin of the network, run under a command.
fn status(network: &Network, under: &[&str]) -> Vec<Answer> {
    (0..network.plugins.len()).map(|index| call(network, index, under).run()).collect()
}

fn call(network: &Network, index: usize, under: &[&str]) -> Call {
    let mut conf = network.conf(index, &Value::Null);
    if conf["vlanId"] == "@" {
        conf["vlanId"] = json!(100);
    }
    let call = Call {
        side: Side::Ours,
        plugin: network.kind(index).to_owned(),
        env: Vec::new(),
        stdin: conf.to_string(),
        under: under.iter().map(|word| (*word).to_owned()).collect(),
    };
    call.env("CNI_COMMAND", "STATUS")
}

fn code(answer: &Answer) -> u64 {
    if answer.ok() { 0 } else { answer.json()["code"].as_u64().expect("an error object") }
}

#[test]
fn a_network_without_addresses_left_is_not_available() {
    sandbox(|net| {
        let mut network = networks::v4();
        network.plugins[0]["ipam"]["ranges"] = json!([[{"subnet": "10.61.0.0/29"}]]);
        let world = World::new(net, network, Side::Ours);
        let status = || code(&status(&world.network, &[])[0]);
        assert_eq!(status(), 0);
        let mut plain = world.with(world.network.clone());
        plain.network.ports = Value::Null;
        let mut pods = Vec::new();
        loop {
            let pod = Target::of(&net.container());
            match plain.add(&pod) {
                Ok(result) => pods.push((pod, result)),
                Err(answer) => {
                    assert!(answer.stdout.contains("no IP addresses available"), "{answer:?}");
                    break;
                }
            }
        }
        assert_eq!(pods.len(), 4, "addresses of a /29 without gateway and neighbour");
        assert_eq!(status(), 50);
        let (pod, result) = &pods[0];
        plain.del(pod, result).expect("DEL");
        assert_eq!(status(), 0);
    });
}

#[test]
fn plugins_are_available_with_permission_only() {
    let unprivileged = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"];
    on_each(networks::all(), Side::Ours, |_, world| {
        for answer in status(&world.network, &[]) {
            assert!(answer.ok(), "{}: {answer:?}", world.network.label);
        }
        for (index, answer) in status(&world.network, &unprivileged).iter().enumerate() {
            let kind = world.network.kind(index);
            // What loopback does is asked of the container's namespace.
            assert!(code(answer) == 50 || kind == "loopback", "{kind}: {answer:?}");
        }
    });
}

#[test]
fn plugins_say_what_their_ipam_plugin_says() {
    on_each(networks::all(), Side::Ours, |_, world| {
        let mut network = world.network.clone();
        let main = network.main();
        if network.plugins[main]["ipam"]["type"] != "host-local" {
            return;
        }
        let dir = "/run/testkit/read-only";
        world.net.run("sh", &["-ec", &format!("mkdir {dir}; mount -t tmpfs -o ro tmpfs {dir}")]);
        network.plugins[main]["ipam"]["dataDir"] = json!(dir);
        let answer = call(&network, main, &[]).run();
        assert_eq!(code(&answer), 50, "{answer:?}");
        assert!(answer.stdout.contains("read-only file system"), "{answer:?}");
        let answer = call(&network, main, &[]).env("CNI_PATH", "/nowhere").run();
        assert!(answer.stdout.contains("failed to find plugin"), "{answer:?}");
    });
}

/// Whether the kernel can make such a link, as `ip` finds out.
fn kernel_has(kind: &str) -> bool {
    let args = ["link", "add", "probe0", "type", kind];
    let made = Command::new("ip").args(args).output().expect("start ip");
    if made.status.success() {
        let deleted = Command::new("ip").args(["link", "del", "probe0"]).status();
        assert!(deleted.is_ok_and(|status| status.success()));
    }
    !String::from_utf8_lossy(&made.stderr).contains("Unknown device type")
}

#[test]
fn plugins_whose_kind_of_link_the_kernel_lacks_are_not_available() {
    for network in networks::rare() {
        let kind = network.needs[0];
        if kind == "filtering" {
            continue;
        }
        sandbox(|net| {
            crate::fixture::install();
            net.run("sh", &["-ec", network.host]);
            let index = if kind == "vrf" { 1 } else { 0 };
            let answer = call(&network, index, &[]).run();
            assert_eq!(code(&answer), if kernel_has(kind) { 0 } else { 50 }, "{kind}: {answer:?}");
        });
    }
}

fn without(lost: &str, network: Network, index: usize) -> Answer {
    let mut answer = None;
    sandbox(|net: &Sandbox| {
        crate::fixture::install();
        net.run("sh", &["-ec", network.host]);
        let before = call(&network, index, &[]).run();
        assert!(before.ok(), "{before:?}");
        net.run("sh", &["-ec", lost]);
        answer = Some(call(&network, index, &[]).run());
    });
    answer.expect("an answer")
}

#[test]
fn what_the_host_lacks_is_told() {
    // Those who have an interface on the link have lost it, too.
    let answer = without("ip link del up0", networks::stacked(), 0);
    assert_eq!(code(&answer), 51, "{answer:?}");
    let answer = without("mount -t tmpfs tmpfs /dev/net", networks::tap(), 0);
    assert_eq!(code(&answer), 50, "{answer:?}");
    let answer = without("ip link add br-v4 type veth peer name other", networks::v4(), 0);
    assert_eq!(code(&answer), 50, "{answer:?}");
    sandbox(|_| {
        crate::fixture::install();
        for index in [1, 2] {
            let call = call(&networks::v4(), index, &[]).env("CNIBOX_NETFILTER", "exec");
            let answer = call.clone().run();
            assert!(answer.ok(), "{answer:?}");
            let answer = call.env("PATH", "/nowhere").run();
            assert_eq!(code(&answer), 50, "without iptables: {answer:?}");
        }
    });
}
