// SPDX-License-Identifier: Apache-2.0
//! Whole calls beside the Go plugin: texts of refused configurations, and random sequences of calls that must leave
//! the same files, alone and taking turns on one directory. `CNIBOX_REFERENCE` names the directory of the Go plugins.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cnibox_testkit::{Sandbox, sandbox, skip};
use serde_json::{Value, json};

/// The Go plugin's executable.
fn reference() -> Option<PathBuf> {
    let dir = std::env::var_os("CNIBOX_REFERENCE").map(PathBuf::from);
    let plugin = dir.map(|dir| dir.join("host-local")).filter(|plugin| plugin.exists());
    if plugin.is_none() {
        skip("CNIBOX_REFERENCE names no directory with the Go host-local");
    }
    plugin
}

/// One call; the answer is whether it succeeded and what it printed.
fn call(plugin: &Path, (verb, container, args): (&str, &str, &str), conf: &Value) -> (bool, Value) {
    let mut child = Command::new(plugin)
        .arg0("host-local")
        .env_clear()
        .envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", container),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", args),
        ])
        .envs([("CNI_NETNS", "/nowhere"), ("CNI_PATH", "/nowhere")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(conf.to_string().as_bytes());
    let output = child.wait_with_output().unwrap();
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

fn files(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

/// A small generator, so that failures repeat.
struct Random(u64);
impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Configurations that are refused, with `CNI_ARGS` and the code that the specification has for the case.
fn refused() -> Vec<(u64, &'static str, Value)> {
    let conf = |version: &str, rest: Value| {
        let mut conf = json!({"cniVersion": version, "name": "n"});
        conf.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        conf
    };
    let ipam = |ipam: Value| conf("1.0.0", json!({"ipam": ipam}));
    let ranges = |ranges: Value| ipam(json!({"dataDir": "/run/d", "ranges": ranges}));
    let range = |range: Value| ranges(json!([[range]]));
    let v4 = |more: Value| {
        let mut v4 = json!({"subnet": "10.0.0.0/24", "dataDir": "/run/d"});
        v4.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        v4
    };
    vec![
        (7, "", conf("1.0.0", json!({}))),
        (7, "", ipam(json!({}))),
        (7, "", ipam(json!({"gateway": "10.0.0.1"}))),
        (6, "", ipam(json!({"subnet": "x"}))),
        (6, "", ipam(v4(json!({"rangeStart": "x"})))),
        (6, "", ipam(json!({"dataDir": 6}))),
        (7, "", ranges(json!([[]]))),
        (7, "", range(json!({"rangeStart": "10.0.0.1"}))),
        (7, "", ranges(json!([[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]))),
        (7, "", ranges(json!([[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/25"}]]))),
        (7, "", ranges(json!([[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.0.0/25"}]]))),
        (7, "", range(json!({"subnet": "10.0.0.0/31"}))),
        (7, "", range(json!({"subnet": "fd00::/127"}))),
        (7, "", range(json!({"subnet": "::ffff:10.0.0.0/112"}))),
        (7, "", range(json!({"subnet": "::ffff:10.0.0.0/127"}))),
        (7, "", range(json!({"subnet": "10.0.0.9/24"}))),
        (7, "", range(json!({"subnet": "fd00:0:0:1:0:1::/64"}))),
        (7, "", range(v4(json!({"rangeStart": "10.1.0.1"})))),
        (7, "", range(v4(json!({"rangeStart": "fd00::1"})))),
        (7, "", range(v4(json!({"rangeEnd": "10.1.0.1"})))),
        (7, "", range(v4(json!({"rangeEnd": "10.0.0.0"})))),
        (7, "", range(v4(json!({"rangeStart": "10.0.0.5", "rangeEnd": "10.0.0.4"})))),
        (
            7,
            "",
            conf(
                "0.2.0",
                json!({"ipam": {"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.1.0/24"}]]}}),
            ),
        ),
        (
            7,
            "",
            conf("", json!({"ipam": {"ranges": [[{"subnet": "fd00::/64"}], [{"subnet": "fd01::/64"}]]}})),
        ),
        (6, "", conf("1.0.0", json!({"args": {"cni": {"ips": ["x"]}}}))),
        (7, "", conf("1.0.0", json!({"args": {"cni": {"ips": [""]}}, "ipam": v4(json!({}))}))),
        (4, "IP=x", ipam(v4(json!({})))),
        (4, "IP=10.0.0.4/33", ipam(v4(json!({})))),
        (4, "K8S=x", ipam(v4(json!({})))),
        (5, "", ipam(v4(json!({"resolvConf": "/nonexist"})))),
        (5, "", ipam(v4(json!({"dataDir": "/proc/1/comm"})))),
        (999, "IP=10.0.0.1", ipam(v4(json!({})))),
        (999, "IP=10.1.0.1", ipam(v4(json!({})))),
    ]
}

#[test]
fn refused_configurations_are_told_in_the_reference_words() {
    let Some(go) = reference() else { return };
    sandbox(|net| {
        let ours = net.cni_path().join("host-local");
        for (code, args, conf) in refused() {
            let (_, theirs) = call(&go, ("ADD", "c1", args), &conf);
            let (_, answer) = call(&ours, ("ADD", "c1", args), &conf);
            assert_eq!(answer["msg"], theirs["msg"], "{conf}");
            assert_eq!((&answer["code"], &theirs["code"]), (&json!(code), &json!(999)), "{conf}");
            if code == 7 {
                let (done, answer) = call(&ours, ("DEL", "c1", args), &conf);
                assert_eq!((done, &answer["msg"]), (false, &theirs["msg"]), "DEL {conf}");
            }
        }
    });
}

/// What a container does next, the same in every lane.
struct Step {
    verb: &'static str,
    container: String,
    args: String,
}

fn next_step(random: &mut Random, attached: &mut Vec<String>) -> Step {
    let container = format!("c{}", random.below(24));
    let known = attached.iter().position(|known| *known == container);
    let verb = ["ADD", "ADD", "ADD", "DEL", "DEL", "CHECK"][random.below(6)];
    let mut args = String::new();
    // With Go an attachment that does not get what it asks for loses its older addresses, here it keeps them: only
    // new ones ask.
    if verb == "ADD" && known.is_none() && random.below(4) == 0 {
        args = format!("IP=10.7.{}.{}", random.below(2), random.below(16));
    }
    if let ("DEL", Some(at)) = (verb, known) {
        attached.remove(at);
    }
    Step { verb, container, args }
}

fn lanes(net: &Sandbox, go: &Path, (seed, version): (u64, &str)) {
    let ours = net.cni_path().join("host-local");
    let mut random = Random(seed);
    let dirs = ["go", "ours", "mixed"].map(|lane| net.dir().join(format!("{lane}-{seed}")));
    let mut attached = Vec::new();
    for turn in 0..250 {
        let step = next_step(&mut random, &mut attached);
        let mixed = if random.below(2) == 0 { go } else { &ours };
        let mut answers = Vec::new();
        for (dir, plugin) in dirs.iter().zip([go, &ours, mixed]) {
            let conf = json!({"cniVersion": version, "name": "net", "ipam": {"dataDir": dir, "ranges": [
                [{"subnet": "10.7.0.0/28"}, {"subnet": "10.7.1.0/28", "gateway": "10.7.1.9", "rangeEnd": "10.7.1.12"}],
                [{"subnet": "fd00:0:0:1::/64", "rangeStart": "fd00:0:0:1::10", "rangeEnd": "fd00:0:0:1::20"}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd00::/8", "gw": "fd00::1", "mtu": 1400}]}});
            let (done, mut answer) = call(plugin, (step.verb, &step.container, &step.args), &conf);
            if let Some(answer) = answer.as_object_mut() {
                answer.remove("details");
            }
            // DEL of nothing makes the directory and the lock with Go only.
            let mut found = files(&dir.join("net"));
            found.remove("lock");
            answers.push((done, answer, found));
        }
        let what = format!("seed {seed} turn {turn}: {} {} {}", step.verb, step.container, step.args);
        assert_eq!(answers[0], answers[1], "{what}");
        assert_eq!(answers[0], answers[2], "mixed, {what}");
        if step.verb == "ADD" && answers[0].0 {
            attached.push(step.container);
        }
    }
}

#[test]
fn random_calls_leave_the_same_files_and_answers() {
    let Some(go) = reference() else { return };
    sandbox(|net| {
        for lane in [(1, "0.3.1"), (22, "0.4.0"), (333, "1.0.0"), (4444, "1.1.0")] {
            lanes(net, &go, lane);
        }
    });
}

#[test]
fn plugins_of_both_kinds_at_once_never_share_an_address() {
    let Some(go) = reference() else { return };
    sandbox(|net| {
        let ours = net.cni_path().join("host-local");
        let conf = json!({"cniVersion": "1.0.0", "name": "net",
            "ipam": {"dataDir": net.dir().join("many"), "subnet": "10.7.0.0/24"}});
        let worker = |number: usize| {
            let (mut random, mut held) = (Random(number as u64 + 77), BTreeMap::new());
            for turn in 0..40 {
                let plugin = if random.below(2) == 0 { &go } else { &ours };
                let container = format!("w{number}-{turn}");
                let (done, answer) = call(plugin, ("ADD", &container, ""), &conf);
                assert!(done, "{answer}");
                held.insert(container, answer["ips"][0]["address"].as_str().unwrap().to_owned());
                if random.below(3) > 0 {
                    let (container, _) = held.pop_first().unwrap();
                    assert!(call(&ours, ("CHECK", &container, ""), &conf).0, "{container}");
                    let plugin = if random.below(2) == 0 { &go } else { &ours };
                    assert!(call(plugin, ("DEL", &container, ""), &conf).0);
                    assert!(!call(&ours, ("CHECK", &container, ""), &conf).0, "{container}");
                }
            }
            held
        };
        let held: Vec<BTreeMap<_, _>> = std::thread::scope(|scope| {
            let worker = &worker;
            let workers: Vec<_> = (0..8).map(|number| scope.spawn(move || worker(number))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let mut found = files(&net.dir().join("many/net"));
        found.retain(|name, _| name != "lock" && !name.starts_with("last_reserved"));
        let expected = held.into_iter().flatten().map(|(container, address)| {
            (address.trim_end_matches("/24").to_owned(), format!("{container}\r\neth0"))
        });
        let expected: Vec<_> = expected.collect();
        assert_eq!(found.len(), expected.len(), "an address was given twice, or one was leaked");
        assert_eq!(found, expected.into_iter().collect());
    });
}
