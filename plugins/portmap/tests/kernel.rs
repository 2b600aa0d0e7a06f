// SPDX-License-Identifier: Apache-2.0
//! What the plugin does in a real kernel beyond what the reference does.

#![expect(clippy::unwrap_used, reason = "a test panics")]

use cnibox_testkit::nftables::{expr::Expression, stmt::Statement};
use cnibox_testkit::{Call, Sandbox, sandbox};
use serde_json::{Value, json};

fn prepare(net: &Sandbox) {
    for args in [
        &["link", "add", "br0", "type", "bridge"][..],
        &["address", "add", "10.22.0.1/16", "dev", "br0"],
        &["link", "set", "br0", "up"],
    ] {
        net.run("ip", args);
    }
}

fn conf(backend: &str, network: &str, ips: &[&str]) -> Value {
    let ips: Vec<_> = ips.iter().map(|ip| json!({"address": ip, "interface": 0})).collect();
    json!({
        "cniVersion": "1.1.0", "name": network, "type": "portmap", "backend": backend,
        "runtimeConfig": {"portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 8080, "containerPort": 80, "protocol": "udp"},
        ]},
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": ips},
    })
}

/// What a runtime that has lost everything but the network's configuration sends.
fn bare(backend: &str, network: &str) -> Value {
    let mut conf = conf(backend, network, &[]);
    for key in ["prevResult", "runtimeConfig"] {
        conf.as_object_mut().unwrap().remove(key);
    }
    conf
}

fn call<'a>(net: &'a Sandbox, verb: &str, container: &str, conf: &Value) -> Call<'a> {
    net.call("portmap", verb, &conf.to_string())
        .env("CNI_CONTAINERID", container)
        .env("CNI_NETNS", "/proc/1/ns/net")
        .env("CNI_IFNAME", "eth0")
}

/// DNAT rules of either backend, as `nft` lists them.
fn dnat(net: &Sandbox) -> Vec<String> {
    let listed = net.run("iptables-save", &["-t", "nat"]) + &net.run("ip6tables-save", &["-t", "nat"]);
    let native = net.run("nft", &["list", "ruleset"]);
    let native = native.lines().filter(|line| line.contains("comment \"") && line.contains("dnat to"));
    listed
        .lines()
        .filter(|line| line.contains("DNAT --to"))
        .chain(native)
        .map(|line| line.trim().to_owned())
        .collect()
}

const DUAL: &[&str] = &["10.22.0.2/16", "fd22::2/64"];

#[test]
fn del_needs_neither_result_nor_ports_and_can_be_repeated() {
    for backend in ["iptables", "nftables"] {
        sandbox(|net| {
            prepare(net);
            call(net, "ADD", "other", &conf(backend, "mynet", &["10.22.0.9/16"])).run().success();
            let before = net.snapshot();
            call(net, "ADD", "one", &conf(backend, "mynet", DUAL)).run().success();
            for _ in 0..2 {
                call(net, "DEL", "one", &bare(backend, "mynet")).run().success();
                let left: Vec<_> = dnat(net).into_iter().filter(|rule| !rule.contains("10.22.0.9")).collect();
                assert!(left.is_empty(), "{left:?}");
            }
            assert_eq!(before.lines("other"), net.snapshot().lines("other"));
        });
    }
}

#[test]
fn del_cleans_the_backend_that_is_no_longer_configured() {
    for (was, is) in [("iptables", "nftables"), ("nftables", "iptables")] {
        sandbox(|net| {
            prepare(net);
            call(net, "ADD", "one", &conf(was, "mynet", DUAL)).run().success();
            assert!(!dnat(net).is_empty());
            call(net, "DEL", "one", &bare(is, "mynet")).run().success();
            assert!(dnat(net).is_empty());
        });
    }
}

/// How many flows to the port connection tracking knows in the sandbox.
fn flows(net: &Sandbox) -> usize {
    net.run("cat", &["/proc/net/nf_conntrack"]).lines().filter(|line| line.contains("dport=8080 ")).count()
}

/// Sends a datagram, which need not arrive.
fn send(net: &Sandbox, to: &str) {
    net.run("bash", &["-c", &format!("echo x > /dev/udp/{to}/8080")]);
}

#[test]
fn del_ends_the_flows_of_its_ports_and_no_others() {
    for backend in ["iptables", "nftables"] {
        sandbox(|net| {
            prepare(net);
            let conf = conf(backend, "mynet", &["10.22.0.2/16"]);
            call(net, "ADD", "one", &conf).run().success();
            // One goes to the container, the other one to another machine's port of that number.
            send(net, "10.22.0.1");
            send(net, "10.22.0.77");
            assert_eq!(flows(net), 2, "{backend}");
            call(net, "DEL", "one", &conf).run().success();
            assert_eq!(flows(net), 1, "{backend}");
            // As with the Go plugin ADD ends all of them.
            call(net, "ADD", "two", &conf).run().success();
            assert_eq!(flows(net), 0, "{backend}");
            send(net, "10.22.0.1");
            call(net, "DEL", "one", &conf).run().success();
            assert_eq!(flows(net), 1, "{backend}: repeated DEL");
        });
    }
}

/// As the Go plugin's does.
#[test]
fn del_leaves_nothing_behind_a_strangers_rule() {
    sandbox(|net| {
        prepare(net);
        let conf = conf("iptables", "mynet", &["10.22.0.2/16"]);
        call(net, "ADD", "one", &conf).run().success();
        let saved = net.run("iptables-save", &["-t", "nat"]);
        let chain = saved.lines().find_map(|line| line.strip_prefix(":CNI-DN-")).unwrap();
        let chain = format!("CNI-DN-{}", chain.split(' ').next().unwrap());
        for rule in ["-N MY", "-A MY -j", "-A CNI-HOSTPORT-DNAT -p tcp --dport 8080 -j"] {
            let target = if rule == "-N MY" { "" } else { &chain };
            net.run("sh", &["-c", &format!("iptables -t nat {rule} {target}")]);
        }
        call(net, "DEL", "one", &conf).run().success();
        assert_eq!(dnat(net), Vec::<String>::new());
        let saved = net.run("iptables-save", &["-t", "nat"]);
        assert!(!saved.contains("--dport 8080"), "{saved}");
    });
}

#[test]
fn del_works_on_a_host_without_rules_or_tools() {
    sandbox(|net| {
        let before = net.snapshot();
        call(net, "DEL", "one", &conf("iptables", "mynet", DUAL)).env("PATH", "/nowhere").run().success();
        before.assert_same(&net.snapshot());
    });
}

#[test]
fn a_repeated_add_doubles_nothing_and_the_last_address_wins() {
    for backend in ["iptables", "nftables"] {
        sandbox(|net| {
            prepare(net);
            call(net, "ADD", "one", &conf(backend, "mynet", DUAL)).run().success();
            let before = net.snapshot();
            call(net, "ADD", "one", &conf(backend, "mynet", DUAL)).run().success();
            before.assert_same(&net.snapshot());
            call(net, "ADD", "one", &conf(backend, "mynet", &["10.22.0.3/16"])).run().success();
            let rules = dnat(net);
            let v4: Vec<_> = rules.iter().filter(|rule| rule.contains("10.22.")).collect();
            assert!(
                v4.len() == 2 && v4.iter().all(|rule| rule.contains("10.22.0.3")),
                "{backend}: {rules:?}"
            );
            call(net, "CHECK", "one", &conf(backend, "mynet", &["10.22.0.3/16"])).run().success();
        });
    }
}

#[test]
fn a_second_interface_leaves_the_first_one_its_ports() {
    for backend in ["iptables", "nftables"] {
        sandbox(|net| {
            prepare(net);
            let first = conf(backend, "mynet", &["10.22.0.2/16"]);
            let mut second = conf(backend, "mynet", &["10.22.0.3/16"]);
            second["prevResult"]["interfaces"][0]["name"] = json!("eth1");
            let of_second = |verb| call(net, verb, "one", &second).env("CNI_IFNAME", "eth1");
            call(net, "ADD", "one", &first).run().success();
            of_second("ADD").run().success();
            of_second("ADD").run().success();
            let rules = dnat(net);
            let order: Vec<_> = rules.iter().map(|rule| rule.contains("10.22.0.2")).collect();
            assert_eq!(order, [true, true, false, false], "{backend}: {rules:?}");
            call(net, "CHECK", "one", &first).run().success();
            of_second("CHECK").run().success();
            of_second("DEL").run().success();
            call(net, "DEL", "one", &first).run().success();
            assert!(dnat(net).is_empty() && !std::fs::exists("/run/cnibox/attachments").unwrap());
        });
    }
}

#[test]
fn check_fails_when_any_rule_is_gone() {
    sandbox(|net| {
        prepare(net);
        let conf = conf("iptables", "mynet", &["10.22.0.2/16"]);
        call(net, "ADD", "one", &conf).run().success();
        let rules = net.iptables_rules("nat");
        assert_eq!(rules.len(), 13);
        for rule in rules {
            net.run("sh", &["-c", &format!("iptables -t nat {}", rule.replacen("-A", "-D", 1))]);
            let (code, message) = call(net, "CHECK", "one", &conf).run().failure();
            assert!(
                code == 999 && message.starts_with("could not check ipv4 dnat: rule "),
                "{rule}: {message}"
            );
            call(net, "ADD", "one", &conf).run().success();
            call(net, "CHECK", "one", &conf).run().success();
        }
        call(net, "DEL", "one", &conf).run().success();
        let (_, message) = call(net, "CHECK", "one", &conf).run().failure();
        assert_eq!(message.split(" CNI-DN-").next(), Some("could not check ipv4 dnat: chain"));
    });
}

#[test]
fn nft_understands_every_native_rule() {
    sandbox(|net| {
        prepare(net);
        call(net, "ADD", "one", &conf("nftables", "mynet", &["10.22.0.2/16"])).run().success();
        let rules = net.nft_rules("ip", "cni_hostport");
        let own = rules.iter().filter(|rule| rule.comment.as_deref() == Some("one"));
        let nats: Vec<_> = own
            .filter_map(|rule| match rule.expr.last() {
                Some(Statement::DNAT(Some(nat))) => Some(nat),
                _ => None,
            })
            .collect();
        assert_eq!(nats.len(), 2);
        for nat in nats {
            assert_eq!(nat.addr, Some(Expression::String("10.22.0.2".into())));
            assert_eq!(nat.port, Some(Expression::Number(80)));
        }
    });
}

#[test]
fn native_check_fails_when_any_chain_is_emptied() {
    sandbox(|net| {
        prepare(net);
        let conf = conf("nftables", "mynet", &["10.22.0.2/16"]);
        for chain in ["hostports", "masquerading", "prerouting", "output", "hostports_all"] {
            call(net, "ADD", "one", &conf).run().success();
            call(net, "CHECK", "one", &conf).run().success();
            net.run("nft", &["flush", "chain", "ip", "cni_hostport", chain]);
            let (_, message) = call(net, "CHECK", "one", &conf).run().failure();
            assert_eq!(message, format!("missing hostport rules in \"{chain}\" chain"));
        }
    });
}

#[test]
fn gc_removes_what_belongs_to_dead_containers_of_the_network() {
    sandbox(|net| {
        prepare(net);
        let gc = |valid: Value| {
            let mut conf = bare("iptables", "mynet");
            conf["cni.dev/valid-attachments"] = valid;
            net.call("portmap", "GC", &conf.to_string()).run().success();
        };
        for backend in ["iptables", "nftables"] {
            call(net, "ADD", "dead", &conf(backend, "mynet", DUAL)).run().success();
            call(net, "ADD", "live", &conf(backend, "mynet", &["10.22.0.3/16"])).run().success();
            call(net, "ADD", "dead", &conf(backend, "elsewhere", &["10.22.0.4/16"]))
                .env("CNI_IFNAME", "eth0")
                .run()
                .success();
            call(net, "ADD", "alone", &conf(backend, "mynet", &["10.22.0.5/16"])).run().success();
        }
        gc(json!([{"containerID": "live", "ifname": "eth0"}]));
        let rules = dnat(net);
        let count = |text: &str| rules.iter().filter(|rule| rule.contains(text)).count();
        assert_eq!((count("10.22.0.3"), count("10.22.0.4"), count("10.22.0.5")), (4, 4, 0), "{rules:?}");
        // In the native tables nothing tells the two networks of "dead" apart.
        assert_eq!((count("10.22.0.2"), count("fd22::2")), (2, 2), "{rules:?}");
        gc(json!([]));
        assert!(dnat(net).iter().all(|rule| rule.contains("10.22.0.4") || rule.contains("dead")));
    });
}

#[test]
fn a_container_id_of_any_length_works() {
    for backend in ["iptables", "nftables"] {
        for length in [128, 129, 230, 231, 400] {
            sandbox(|net| {
                prepare(net);
                let id = "c".repeat(length);
                let conf = conf(backend, "mynet", &["10.22.0.2/16"]);
                call(net, "ADD", &id, &conf).run().success();
                call(net, "CHECK", &id, &conf).run().success();
                call(net, "ADD", &"c".repeat(length + 1), &conf).run().success();
                call(net, "DEL", &id, &conf).run().success();
                assert_eq!(dnat(net).len(), 2, "{length}");
                call(net, "DEL", &"c".repeat(length + 1), &conf).run().success();
                assert!(dnat(net).is_empty());
            });
        }
    }
}

#[test]
fn an_add_that_fails_leaves_nothing() {
    sandbox(|net| {
        prepare(net);
        let before = net.snapshot();
        // A base chain with other parameters than ours.
        net.run("nft", &["add", "table", "ip6", "cni_hostport"]);
        net.run(
            "nft",
            &["add", "chain", "ip6", "cni_hostport", "prerouting", "{ type filter hook input priority 5; }"],
        );
        let (code, message) = call(net, "ADD", "one", &conf("nftables", "mynet", DUAL)).run().failure();
        assert_eq!(code, 999);
        assert!(message.starts_with("unable to set up nftables rules for port mappings: "), "{message}");
        net.run("nft", &["delete", "table", "ip6", "cni_hostport"]);
        before.assert_same(&net.snapshot());
    });
}

#[test]
fn a_result_without_addresses_is_passed_on_in_every_version() {
    sandbox(|net| {
        for version in ["0.1.0", "0.2.0", "0.3.1", "1.1.0"] {
            let mut conf = bare("iptables", "mynet");
            conf["cniVersion"] = json!(version);
            conf["prevResult"] = json!({"cniVersion": version, "dns": {"nameservers": ["10.0.0.1"]}});
            assert_eq!(call(net, "ADD", "one", &conf).run().success(), conf["prevResult"]);
        }
    });
}

#[test]
fn status_knows_what_is_missing() {
    sandbox(|net| {
        for backend in ["iptables", "nftables"] {
            net.call("portmap", "STATUS", &bare(backend, "mynet").to_string()).run().success();
        }
    });
}

#[test]
fn a_later_failure_takes_the_rules_back() {
    for backend in ["iptables", "nftables"] {
        sandbox(|net| {
            prepare(net);
            // The shared chains stay; they are there before.
            call(net, "ADD", "other", &conf(backend, "mynet", &["10.22.0.9/16"])).run().success();
            net.run("sh", &["-c", "echo 0 > /proc/sys/net/ipv4/conf/br0/route_localnet"]);
            net.run(
                "sh",
                &["-c", "mount -o bind,ro /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys"],
            );
            let before = net.snapshot();
            let (_, message) =
                call(net, "ADD", "one", &conf(backend, "mynet", &["10.22.0.2/16"])).run().failure();
            assert!(
                message.starts_with("unable to enable route_localnet: open /proc/sys/net/ipv4/conf/br0"),
                "{message}"
            );
            before.assert_same(&net.snapshot());
        });
    }
}

#[test]
fn a_later_failure_leaves_another_interface_its_entries() {
    sandbox(|net| {
        prepare(net);
        let of = |address: &str, ifname: &str| {
            let mut conf = conf("iptables", "mynet", &[address]);
            conf["prevResult"]["interfaces"][0]["name"] = json!(ifname);
            // Which only the tool can read.
            conf["conditionsV4"] = json!(["-m", "addrtype", "--src-type", "UNICAST"]);
            conf
        };
        call(net, "ADD", "one", &of("10.22.0.2/16", "eth0")).run().success();
        net.run("sh", &["-c", "echo 0 > /proc/sys/net/ipv4/conf/br0/route_localnet"]);
        net.run("sh", &["-c", "mount -o bind,ro /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys"]);
        let before = net.snapshot();
        let second = call(net, "ADD", "one", &of("10.22.0.3/16", "eth1")).env("CNI_IFNAME", "eth1");
        second.run().failure();
        before.assert_same(&net.snapshot());
    });
}
