// SPDX-License-Identifier: Apache-2.0
//! The rules that ADD and DEL leave are those of the Go plugin, byte for byte and in its order. `CNIBOX_REFERENCE` names
//! the directory of the Go plugins.

#![expect(clippy::unwrap_used, reason = "a test panics")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cnibox_testkit::{Sandbox, diff, sandbox, skip};
use serde_json::{Value, json};

/// Who runs a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Go,
    Ours,
}

fn reference() -> Option<PathBuf> {
    std::env::var_os("CNIBOX_REFERENCE").map(PathBuf::from).filter(|dir| dir.join("portmap").exists())
}

/// A bridge with the address of the pods' gateway.
fn prepare(net: &Sandbox) {
    for args in [
        &["link", "add", "br0", "type", "bridge"][..],
        &["address", "add", "10.22.0.1/16", "dev", "br0"],
        &["address", "add", "fd22::1/64", "dev", "br0", "nodad"],
        &["link", "set", "br0", "up"],
    ] {
        net.run("ip", args);
    }
}

fn call(net: &Sandbox, by: By, verb: &str, container: &str, conf: &Value) -> (i32, Value) {
    if by == By::Ours {
        let outcome = net
            .call("portmap", verb, &conf.to_string())
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", "/proc/1/ns/net")
            .env("CNI_IFNAME", "eth0")
            .run();
        return (outcome.status, outcome.json);
    }
    let program = reference().expect("asked before").join("portmap");
    go(net, &program, verb, container, conf)
}

fn go(net: &Sandbox, program: &Path, verb: &str, container: &str, conf: &Value) -> (i32, Value) {
    let mut command = Command::new(program);
    command
        .envs([("CNI_COMMAND", verb), ("CNI_CONTAINERID", container), ("CNI_NETNS", "/proc/1/ns/net")])
        .envs([("CNI_IFNAME", "eth0"), ("CNI_PATH", "/nowhere")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = net.netns().run(|| command.spawn()).unwrap().unwrap();
    child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

/// What the tools show. The order of chains and rules counts, that of tables does not.
fn rules(net: &Sandbox) -> String {
    let saved = ["iptables-save", "ip6tables-save"].map(|tool| net.run(tool, &[]));
    let native = net.run("nft", &["list", "ruleset"]);
    // nft shows some targets of iptables' own tables in the first of two tables only.
    let tables = native.split("\n}").map(str::trim).filter(|table| table.contains("cni_hostport"));
    let mut tables: Vec<_> = tables.map(|table| format!("{table}\n")).collect();
    tables.sort();
    let localnet = net.run("sysctl", &["-n", "net.ipv4.conf.br0.route_localnet"]);
    let all =
        saved.into_iter().chain(tables).chain([format!("route_localnet={localnet}")]).collect::<String>();
    all.lines().filter(|line| !line.starts_with('#')).map(|line| steady(line) + "\n").collect()
}

/// Without counters, which packets of the kernel's own change.
fn steady(line: &str) -> String {
    let line = line.split(" [").next().unwrap_or(line);
    let mut words: Vec<_> = line.split(' ').collect();
    while let Some(at) = words.windows(3).position(|w| w[0] == "packets" && w[2] == "bytes") {
        words.drain(at..(at + 4).min(words.len()));
    }
    words.join(" ")
}

fn conf(extra: &Value, mappings: &Value, ips: &Value) -> Value {
    let mut conf = json!({
        "cniVersion": "1.0.0", "name": "mynet", "type": "portmap",
        "runtimeConfig": {"portMappings": mappings},
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/var/run/netns/x"}],
            "ips": ips,
        },
    });
    for (key, value) in extra.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf
}

fn ports(ports: std::ops::RangeInclusive<u16>, protocol: &str) -> Vec<Value> {
    ports.map(|port| json!({"hostPort": port, "containerPort": 80, "protocol": protocol})).collect()
}

fn v4() -> Value {
    json!([{"address": "10.22.0.2/16", "interface": 1}])
}

fn dual() -> Value {
    json!([{"address": "10.22.0.2/16", "interface": 1}, {"address": "fd22::2/64", "interface": 1}])
}

/// Configurations with their names.
fn cases() -> Vec<(&'static str, Value)> {
    let one = || json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let mixed = || {
        json!([
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 8080, "containerPort": 81, "protocol": "udp", "hostIP": "10.22.0.1"},
            {"hostPort": 8082, "containerPort": 82, "protocol": "sctp", "hostIP": "0.0.0.0"},
            {"hostPort": 8083, "containerPort": 83, "protocol": "tcp", "hostIP": "fd22::1"},
            {"hostPort": 8084, "containerPort": 84, "protocol": "udp", "hostIP": "::"},
        ])
    };
    let many: Vec<_> = ports(1000..=1032, "tcp").into_iter().chain(ports(2000..=2003, "udp")).collect();
    let nft = |extra: Value| {
        let mut extra = extra;
        extra["backend"] = json!("nftables");
        extra
    };
    vec![
        ("one port", conf(&json!({}), &one(), &v4())),
        ("explicit backend", conf(&json!({"backend": "iptables"}), &one(), &v4())),
        ("mixed, dual stack", conf(&json!({}), &mixed(), &dual())),
        ("many", conf(&json!({}), &json!(many), &dual())),
        ("upper case", conf(&json!({}), &json!(ports(1..=2, "TCP")), &v4())),
        ("masqAll", conf(&json!({"masqAll": true}), &mixed(), &dual())),
        ("no snat", conf(&json!({"snat": false}), &mixed(), &dual())),
        ("mark bit", conf(&json!({"markMasqBit": 5}), &one(), &dual())),
        ("mark bit 31", conf(&json!({"markMasqBit": 31}), &one(), &v4())),
        (
            "conditions",
            conf(
                &json!({"conditionsV4": ["-s", "192.0.2.0/24"], "conditionsV6": ["!", "-s", "2001:db8::/32"]}),
                &one(),
                &dual(),
            ),
        ),
        (
            "odd conditions",
            conf(&json!({"conditionsV4": ["-m", "tcp", "--sport", "1024:65535"]}), &one(), &dual()),
        ),
        ("native, one port", conf(&nft(json!({})), &one(), &v4())),
        ("native, mixed", conf(&nft(json!({})), &mixed(), &dual())),
        ("native, no snat", conf(&nft(json!({"snat": false})), &mixed(), &dual())),
        ("native, masqAll", conf(&nft(json!({"masqAll": true})), &mixed(), &dual())),
        (
            "native, conditions",
            conf(&nft(json!({"conditionsV4": ["ip", "saddr", "192.0.2.0/24"]})), &one(), &dual()),
        ),
        (
            "native, odd conditions",
            conf(
                &nft(json!({"conditionsV4": ["ip saddr", "{ 192.0.2.0/24, 198.51.100.1 }"]})),
                &one(),
                &dual(),
            ),
        ),
        (
            "native, other protocols",
            conf(&nft(json!({})), &json!([ports(1..=1, "dccp"), ports(1..=1, "udplite")].concat()), &v4()),
        ),
    ]
}

/// The rules after each step: ADD by `first`, ADD of a second container by `second`, DEL of both by the other one.
fn run(conf: &Value, steps: [By; 4]) -> Vec<String> {
    let mut seen = Vec::new();
    sandbox(|net| {
        prepare(net);
        let calls = [("ADD", "one"), ("ADD", "two"), ("DEL", "one"), ("DEL", "two")];
        for (by, (verb, container)) in steps.into_iter().zip(calls) {
            let (status, json) = call(net, by, verb, container, conf);
            assert_eq!(status, 0, "{by:?} {verb}: {json}");
            seen.push(format!("{json}\n{}", rules(net)));
            if verb == "ADD" {
                for checker in [By::Go, By::Ours] {
                    let (status, json) = call(net, checker, "CHECK", container, conf);
                    assert_eq!(status, 0, "{checker:?} CHECK after ADD by {by:?}: {json}");
                }
            }
        }
    });
    seen
}

#[test]
fn rules_are_those_of_the_reference() {
    if reference().is_none() {
        return skip("CNIBOX_REFERENCE names no directory with the Go plugins");
    }
    let mut differing = Vec::new();
    for (name, conf) in cases() {
        let want = run(&conf, [By::Go; 4]);
        for steps in
            [[By::Ours; 4], [By::Go, By::Ours, By::Ours, By::Go], [By::Ours, By::Go, By::Go, By::Ours]]
        {
            let got = run(&conf, steps);
            for (step, (want, got)) in want.iter().zip(&got).enumerate() {
                if want != got {
                    differing.push(format!("{name}, {steps:?}, step {step}:\n{}", diff(want, got)));
                }
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Wrong input: the reference's text where it has one of its own, and nothing is changed.
#[test]
fn wrong_input_gets_the_references_text_and_changes_nothing() {
    if reference().is_none() {
        return skip("CNIBOX_REFERENCE names no directory with the Go plugins");
    }
    let one = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let cases = [
        (conf(&json!({"backend": "foo"}), &one, &v4()), true),
        (conf(&json!({"markMasqBit": 32}), &one, &v4()), true),
        (conf(&json!({"snat": "x"}), &one, &v4()), true),
        (conf(&json!({"runtimeConfig": {"portMappings": [{"hostPort": "80"}]}}), &one, &v4()), true),
        (conf(&json!({"backend": "iptables", "conditionsV4": ["ip"]}), &one, &v4()), true),
        (conf(&json!({"prevResult": null}), &one, &v4()), true),
        (conf(&json!({}), &json!(ports(0..=0, "tcp")), &v4()), true),
        (
            conf(&json!({}), &json!([{"hostPort": 70000, "containerPort": 1, "protocol": "tcp"}]), &v4()),
            false,
        ),
        (
            conf(&json!({}), &json!([{"hostPort": 1, "containerPort": 70000, "protocol": "tcp"}]), &v4()),
            false,
        ),
        (conf(&json!({}), &json!(ports(1..=1, "icmp")), &v4()), false),
        (conf(&json!({}), &json!(ports(1..=1, "")), &v4()), false),
        (
            conf(
                &json!({}),
                &json!([{"hostPort": 1, "containerPort": 1, "protocol": "tcp", "hostIP": "::g"}]),
                &v4(),
            ),
            false,
        ),
        (conf(&json!({"externalSetMarkChain": "NOT-THERE"}), &one, &v4()), false),
    ];
    for (conf, same_text) in cases {
        sandbox(|net| {
            prepare(net);
            let before = rules(net);
            let (status, ours) = call(net, By::Ours, "ADD", "one", &conf);
            assert_eq!(before, rules(net));
            let remembered = net.run("find", &["/run", "-path", "/run/cnibox/*", "-type", "f"]);
            assert_eq!(remembered, "");
            let (_, want) = call(net, By::Go, "ADD", "one", &conf);
            assert_eq!(status, 1, "{conf}: {ours}");
            assert!(ours["code"] == 6 || ours["code"] == 7, "{ours}");
            if same_text {
                assert_eq!(ours["msg"], want["msg"]);
            }
        });
    }
}
