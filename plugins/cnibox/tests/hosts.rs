// SPDX-License-Identifier: Apache-2.0
//! Hosts that are not as others: without what iptables' rules need in the kernel, without an `iptables` program, with
//! others' native rules in iptables' tables, and such as become one of these in a container's life.

#[path = "nomad/world.rs"]
mod world;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cnibox_testkit::{Chain, Container, Sandbox, ask_tcp, has, sandbox, serve_tcp};
use serde_json::{Value, json};

use world::{HOST_PORT, POD_PORT, World, add, chain, live};

const DEFAULT: &str = include_str!("nomad/default.conflist");
const IPV6: &str = include_str!("nomad/ipv6.conflist");

/// The kernel counts as one that cannot hold iptables' rules, until it is said to be another.
fn forget_extensions() {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the boot's number");
    fs::create_dir_all("/run/cnibox").expect("make the directory");
    fs::set_permissions("/run/cnibox", fs::Permissions::from_mode(0o700)).expect("make it private");
    fs::write("/run/cnibox/kernel", format!("{} nft_compat\n", boot.trim())).expect("write the note");
}

fn remember_extensions() {
    fs::remove_file("/run/cnibox/kernel").expect("remove the note");
}

/// The names of the native tables that plugins write, as far as they have rules of a container.
fn native_rules(net: &Sandbox) -> String {
    let listed = net.run("nft", &["list", "ruleset"]);
    let of_container = |line: &&str| line.contains("172.26.") && !line.contains("10.");
    listed.lines().filter(of_container).collect::<Vec<_>>().join("\n")
}

/// A port of the host leads into the container.
fn assert_reachable(world: &World, pod: &Container) {
    let _server = serve_tcp(&pod.netns, SocketAddr::new([0; 4].into(), POD_PORT));
    ask_tcp(&world.outside, SocketAddr::new(world.host_ip, HOST_PORT)).expect("through the host port");
}

#[test]
fn what_iptables_cannot_say_is_said_natively() {
    for (conflist, families) in [(DEFAULT, &[false][..]), (IPV6, &[false, true])] {
        sandbox(|net| {
            forget_extensions();
            live(net, conflist, "1.0.0", families);
            assert_eq!(native_rules(net), "");
        });
    }
}

#[test]
fn what_a_kernel_can_hold_may_change_in_a_containers_life() {
    for native_first in [true, false] {
        sandbox(|net| {
            let world = World::new(net);
            let change =
                |to_native: bool| if to_native { forget_extensions() } else { remember_extensions() };
            if native_first {
                forget_extensions();
            }
            let chain = chain(net, DEFAULT, "1.1.0");
            let (pod, other) = (net.container(), net.container());
            let attachment = add(&chain, &pod);
            assert_reachable(&world, &pod);
            change(!native_first);
            attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
            assert_reachable(&world, &pod);
            attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
            let again = add(&chain, &other);
            assert_reachable(&world, &other);
            change(native_first);
            // A lost attachment is collected whichever way it was made.
            drop(again);
            chain.gc(&[]).unwrap_or_else(|outcome| panic!("GC: {}", outcome.stdout));
            assert_eq!(native_rules(net), "");
        });
    }
}

#[test]
fn without_an_iptables_program_everything_works_the_same() {
    sandbox(|net| {
        let world = World::new(net);
        for keeps_nft in [true, false] {
            let path = net.dir().join(if keeps_nft { "with-nft" } else { "with-nothing" });
            fs::create_dir_all(&path).expect("make a directory");
            if keeps_nft {
                let nft = String::from_utf8(Command::new("which").arg("nft").output().expect("which").stdout);
                std::os::unix::fs::symlink(nft.expect("a path").trim(), path.join("nft")).expect("link nft");
            }
            let chain = chain(net, DEFAULT, "1.0.0").env("PATH", &path);
            let pod = net.container();
            let attachment = add(&chain, &pod);
            assert_reachable(&world, &pod);
            attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
            attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
            assert_eq!(native_rules(net), "");
        }
    });
}

/// `iptables` refuses to work with such a table ("incompatible, use 'nft' tool").
#[test]
fn native_rules_of_others_in_iptables_tables_are_no_hindrance() {
    sandbox(|net| {
        let world = World::new(net);
        for rule in [
            "add table ip nat",
            "add chain ip nat POSTROUTING { type nat hook postrouting priority 100; }",
            "add set ip nat others { type ipv4_addr; }",
            "add rule ip nat POSTROUTING ip saddr @others ct state new meta cgroup 7 counter accept",
            "add rule ip filter FORWARD ct state invalid counter drop",
        ] {
            net.run("nft", &rule.split(' ').collect::<Vec<_>>());
        }
        let before = net.run("nft", &["-s", "list", "table", "ip", "nat"]);
        let chain = chain(net, DEFAULT, "1.0.0");
        let pod = net.container();
        let attachment = add(&chain, &pod);
        assert_reachable(&world, &pod);
        attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
        attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        let after = net.run("nft", &["-s", "list", "table", "ip", "nat"]);
        for line in before.lines().filter(|line| line.contains("others") || line.contains("cgroup")) {
            assert!(after.contains(line), "{line} is gone from {after}");
        }
        assert_eq!(native_rules(net), "");
    });
}

/// What a host may hide or forbid, and nobody needs.
#[test]
fn what_is_hidden_or_forbidden_and_not_needed_is_no_hindrance() {
    for made_so in [
        "mount -t proc -o hidepid=2 proc /proc",
        "umount -l /sys",
        "mkdir /run/cnibox; mount -t tmpfs -o ro,mode=700 tmpfs /run/cnibox",
    ] {
        sandbox(|net| {
            let world = World::new(net);
            net.run("sh", &["-ec", made_so]);
            let chain = chain(net, DEFAULT, "1.0.0");
            let pod = net.container();
            let attachment = add(&chain, &pod);
            assert_reachable(&world, &pod);
            attachment.check().unwrap_or_else(|outcome| panic!("CHECK, {made_so}: {}", outcome.stdout));
            attachment.del().unwrap_or_else(|outcome| panic!("DEL, {made_so}: {}", outcome.stdout));
            assert_eq!(native_rules(net), "");
        });
    }
}

/// As in a container that may configure networks, but no sysctls.
#[test]
fn sysctls_that_cannot_be_written_are_named() {
    sandbox(|net| {
        let _world = World::new(net);
        net.run("sh", &["-ec", "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys"]);
        let chain = chain(net, DEFAULT, "1.0.0");
        let pod = net.container();
        let (_, message) = chain.add(&pod, "eth0").expect_err("ADD where nothing forwards").failure();
        assert!(message.contains("/proc/sys/net/ipv4/"), "{message}");
        assert!(message.contains("read-only file system"), "{message}");
        chain.del(&pod, "eth0", &Value::Null).unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        assert_eq!(native_rules(net), "");
    });
}

/// The firewall plugin alone behind a bridge.
fn firewall(backend: &str, policy: &str, bridge: &str, subnet: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": bridge,
        "plugins": [
            {"type": "bridge", "bridge": bridge, "isGateway": true, "ipMasq": true,
             "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "firewall", "backend": backend, "ingressPolicy": policy},
        ],
    })
}

#[test]
fn the_native_firewall_lets_through_and_isolates_as_the_other_does() {
    for backend in ["iptables", "nftables"] {
        for policy in ["open", "same-bridge", "isolated"] {
            sandbox(|net| {
                let world = World::new(net);
                let conf = |bridge, subnet| firewall(backend, policy, bridge, subnet).to_string();
                let one = Chain::new(net, &conf("br1", "172.26.1.0/24"));
                let two = Chain::new(net, &conf("br2", "172.26.2.0/24"));
                let pods = [net.container(), net.container(), net.container()];
                let added = [add(&one, &pods[0]), add(&one, &pods[1]), add(&two, &pods[2])];
                let ip = |at: usize| world::address(&added[at].result, false);
                let reaches = |from: usize, to: usize| {
                    let _server = serve_tcp(&pods[to].netns, SocketAddr::new(ip(to), POD_PORT));
                    ask_tcp(&pods[from].netns, SocketAddr::new(ip(to), POD_PORT)).is_ok()
                };
                let _outside = serve_tcp(&world.outside, SocketAddr::new([0; 4].into(), 9000));
                ask_tcp(&pods[0].netns, SocketAddr::new([192, 0, 2, 9].into(), 9000))
                    .expect("egress and answers");
                // FORWARD drops by policy: a container lets itself out and nobody in, but for its own bridge.
                assert_eq!(reaches(0, 2), policy == "open", "{backend} {policy}: from bridge to bridge");
                for attachment in &added {
                    attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
                }
                for attachment in &added {
                    attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
                }
                assert_eq!(native_rules(net), "");
                // The admin's own tool still reads its tables.
                if net.holds_iptables() {
                    net.run("iptables", &["-S"]);
                }
            });
        }
    }
}

#[test]
fn the_admin_chain_of_the_native_firewall_is_kept() {
    sandbox(|net| {
        let conf = firewall("nftables", "open", "br1", "172.26.1.0/24").to_string();
        let chain = Chain::new(net, &conf);
        let pod = net.container();
        add(&chain, &pod).del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        net.run(
            "nft",
            &["add", "rule", "ip", "cni_firewall", "CNI-ADMIN", "ip", "saddr", "198.51.100.1", "drop"],
        );
        add(&chain, &pod).del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        assert!(
            net.run("nft", &["list", "chain", "ip", "cni_firewall", "CNI-ADMIN"]).contains("198.51.100.1")
        );
    });
}

/// Run by `scripts/test full-kernel` in a kernel that was built so.
#[test]
fn where_the_reference_fails_the_missing_part_is_named_or_not_needed() {
    sandbox(|net| {
        if net.holds_iptables() {
            return has("nft_compat");
        }
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "ipMasq": true, "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "172.26.1.0/24"}]]},
        });
        let pod = net.container();
        if let Some(reference) = std::env::var_os("CNIBOX_REFERENCE") {
            let theirs = Command::new(Path::new(&reference).join("bridge"))
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_default())
                .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "theirs"), ("CNI_IFNAME", "eth0")])
                .env("CNI_NETNS", &pod.path)
                .env("CNI_PATH", &reference)
                .stdin(stdin_of(net, &conf))
                .output()
                .expect("run the Go plugin");
            assert!(!theirs.status.success(), "the Go plugin works here");
        }
        let pod = net.container();
        net.cni("bridge", "STATUS", &pod, &conf.to_string()).success();
        net.cni("bridge", "ADD", &pod, &conf.to_string()).success();
        net.cni("bridge", "DEL", &pod, &conf.to_string()).success();
        // Who insists on iptables is told what is missing.
        conf["ipMasqBackend"] = json!("iptables");
        for verb in ["STATUS", "ADD"] {
            let (code, message) = net.cni("bridge", verb, &pod, &conf.to_string()).failure();
            assert!(message.contains("the kernel has no nft_compat"), "{verb}: {message}");
            assert_eq!(code == 50, verb == "STATUS", "{verb}: {code}");
        }
        net.cni("bridge", "DEL", &pod, &conf.to_string()).success();
        let portmap = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "portmap", "backend": "iptables",
            "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
            "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "172.26.1.2/24"}]},
        });
        for verb in ["STATUS", "ADD"] {
            let (code, message) = net.cni("portmap", verb, &pod, &portmap.to_string()).failure();
            assert!(message.contains("the kernel has no nft_compat"), "{verb}: {message}");
            assert_eq!(code == 50, verb == "STATUS", "{verb}: {code}");
        }
        net.cni("portmap", "DEL", &pod, &portmap.to_string()).success();
    });
}

fn stdin_of(net: &Sandbox, conf: &Value) -> fs::File {
    let path = net.dir().join("conf.json");
    fs::write(&path, conf.to_string()).expect("write the configuration");
    fs::File::open(path).expect("open the configuration")
}
