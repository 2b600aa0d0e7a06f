// SPDX-License-Identifier: Apache-2.0
//! The rules that ADD and DEL leave are those of the Go plugin, byte for byte and in its order. `CNIBOX_REFERENCE` names
//! the directory of the Go plugins.

#![expect(clippy::unwrap_used, reason = "a test panics")]

use std::io::Write;
use std::path::PathBuf;
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
    let dir = std::env::var_os("CNIBOX_REFERENCE").map(PathBuf::from);
    dir.map(|dir| dir.join("firewall")).filter(|program| program.exists())
}

fn call(net: &Sandbox, by: By, verb: &str, conf: &Value) -> (i32, Value) {
    if by == By::Ours {
        let outcome = net
            .call("firewall", verb, &conf.to_string())
            .env("CNI_CONTAINERID", container(conf))
            .env("CNI_NETNS", "/proc/1/ns/net")
            .env("CNI_IFNAME", "eth0")
            .run();
        return (outcome.status, outcome.json);
    }
    let mut command = Command::new(reference().expect("asked before"));
    command
        .envs([("CNI_COMMAND", verb), ("CNI_NETNS", "/proc/1/ns/net"), ("CNI_IFNAME", "eth0")])
        .envs([("CNI_CONTAINERID", container(conf).as_str()), ("CNI_PATH", "/nowhere")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = net.netns().run(|| command.spawn()).unwrap().unwrap();
    child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

/// A container for each address.
fn container(conf: &Value) -> String {
    conf["prevResult"]["ips"][0]["address"].as_str().unwrap_or("none").replace(['/', ':'], "-")
}

/// What `iptables-save` of both families shows, and how nft sees the same rules.
fn rules(net: &Sandbox) -> String {
    let all =
        [net.run("iptables-save", &[]), net.run("ip6tables-save", &[]), net.run("nft", &["list", "ruleset"])];
    all.concat().lines().filter(|line| !line.starts_with('#')).map(|line| steady(line) + "\n").collect()
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

fn conf(extra: &Value, ips: &[&str]) -> Value {
    let ips: Vec<_> = ips.iter().map(|ip| json!({"address": ip, "interface": 2})).collect();
    let mut conf = json!({
        "cniVersion": "1.0.0", "name": "mynet", "type": "firewall", "backend": "iptables",
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "cni0"}, {"name": "veth0"}, {"name": "eth0", "sandbox": "/var/run/netns/x"}],
            "ips": ips,
        },
    });
    for (key, value) in extra.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf
}

/// ADD of two containers with `conf` and of one with `other`, twice each, CHECK by both, then DEL.
fn run(confs: &[Value], add: By, del: By) -> Vec<String> {
    let mut seen = Vec::new();
    sandbox(|net| {
        for conf in confs.iter().chain(confs) {
            let (status, json) = call(net, add, "ADD", conf);
            assert_eq!(status, 0, "{add:?} ADD: {json}");
            seen.push(format!("{json}\n{}", rules(net)));
            for checker in [By::Go, By::Ours] {
                let (status, json) = call(net, checker, "CHECK", conf);
                assert_eq!(status, 0, "{checker:?} CHECK after ADD by {add:?}: {json}");
            }
        }
        for conf in confs.iter().chain(confs) {
            let (status, json) = call(net, del, "DEL", conf);
            assert_eq!(status, 0, "{del:?} DEL: {json}");
            seen.push(rules(net));
        }
    });
    seen
}

#[test]
fn rules_are_those_of_the_reference() {
    if reference().is_none() {
        return skip("CNIBOX_REFERENCE names no directory with the Go plugins");
    }
    let policy = |policy: &str, ips: &[&str]| conf(&json!({"ingressPolicy": policy}), ips);
    let cases = [
        (
            "open",
            vec![conf(&json!({}), &["10.22.0.2/16"]), conf(&json!({}), &["10.22.0.3/16", "10.23.0.3/16"])],
        ),
        ("IPv6", vec![conf(&json!({"backend": ""}), &["fd22::2/64"])]),
        ("no addresses", vec![conf(&json!({}), &[])]),
        (
            "admin chains",
            vec![
                conf(&json!({"iptablesAdminChainName": "NOMAD-ADMIN"}), &["10.22.0.2/16"]),
                conf(&json!({}), &["10.22.0.3/16"]),
            ],
        ),
        ("same-bridge", vec![policy("same-bridge", &["10.22.0.2/16"]), policy("open", &["10.22.0.3/16"])]),
        ("isolated", vec![policy("isolated", &["10.22.0.2/16"]), policy("same-bridge", &["10.22.0.3/16"])]),
    ];
    let mut differing = Vec::new();
    for (name, confs) in &cases {
        let want = run(confs, By::Go, By::Go);
        for (add, del) in [(By::Ours, By::Ours), (By::Go, By::Ours), (By::Ours, By::Go)] {
            let got = run(confs, add, del);
            for (step, (want, got)) in want.iter().zip(&got).enumerate() {
                if want != got {
                    differing.push(format!("{name}, {add:?} {del:?}, step {step}:\n{}", diff(want, got)));
                }
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Both families at once: the reference takes them in a random order, so only the families are compared.
#[test]
fn dual_stack_has_the_rules_of_the_reference() {
    if reference().is_none() {
        return skip("CNIBOX_REFERENCE names no directory with the Go plugins");
    }
    let conf = conf(&json!({"ingressPolicy": "isolated"}), &["10.22.0.2/16", "fd22::2/64"]);
    let saved = |by: By| {
        let mut saved = String::new();
        sandbox(|net| {
            assert_eq!(call(net, by, "ADD", &conf).0, 0);
            let plain = |text: String| {
                text.lines()
                    .filter(|line| line.starts_with('-'))
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            saved = plain(net.run("iptables-save", &[])) + "\n" + &plain(net.run("ip6tables-save", &[]));
        });
        saved
    };
    assert_eq!(saved(By::Go), saved(By::Ours));
}

#[test]
fn wrong_input_gets_the_references_text_and_changes_nothing() {
    if reference().is_none() {
        return skip("CNIBOX_REFERENCE names no directory with the Go plugins");
    }
    let cases = [
        conf(&json!({"ingressPolicy": "foo"}), &["10.22.0.2/16"]),
        conf(&json!({"backend": 1}), &["10.22.0.2/16"]),
        conf(&json!({"prevResult": null}), &[]),
        conf(&json!({"cniVersion": "0.3.1"}), &["10.22.0.2/16"]),
        conf(
            &json!({"ingressPolicy": "isolated", "prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/8"}]}}),
            &[],
        ),
        conf(
            &json!({"ingressPolicy": "isolated", "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": ""}], "ips": [{"address": "10.0.0.2/8"}]}}),
            &[],
        ),
    ];
    for conf in cases {
        sandbox(|net| {
            let before = net.snapshot();
            let (status, ours) = call(net, By::Ours, "ADD", &conf);
            before.assert_same(&net.snapshot());
            let (_, want) = call(net, By::Go, "ADD", &conf);
            assert_eq!(
                (status, &ours["msg"], &ours["details"]),
                (1, &want["msg"], &want["details"]),
                "{conf}"
            );
        });
    }
}
