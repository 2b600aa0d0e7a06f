// SPDX-License-Identifier: Apache-2.0
//! Plugin calls and chains, with scripts for plugins.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::fs;

use cnibox_testkit::{Chain, Sandbox, sandbox};
use serde_json::json;

/// Says what it was called with, adds a line to a log, and fails on demand.
const PLUGIN: &str = r#"#!/bin/sh
conf=$(cat)
echo "$CNI_COMMAND ${0##*/}" >> /run/testkit/log
case $conf in *fail*) echo '{"code": 7, "msg": "as told"}'; echo note >&2; exit 1;; esac
echo "{\"plugin\": \"${0##*/}\", \"id\": \"$CNI_CONTAINERID\", \"ifname\": \"$CNI_IFNAME\", \"netns\": \"$CNI_NETNS\",
    \"args\": \"$CNI_ARGS\", \"home\": \"$HOME\", \"link\": \"$(readlink /proc/self/ns/net)\", \"conf\": $conf}"
"#;

fn install(net: &Sandbox, plugins: &[&str]) {
    let bin = net.dir().join("bin");
    fs::create_dir(&bin).unwrap();
    let script = net.dir().join("plugin");
    fs::write(&script, PLUGIN).unwrap();
    for plugin in plugins {
        // Copied by another process: what this one has open for writing, a fork of another test's may keep open, and
        // then it cannot be executed.
        net.run("install", &["-m", "755", script.to_str().unwrap(), bin.join(plugin).to_str().unwrap()]);
    }
}

fn log() -> Vec<String> {
    let log = fs::read_to_string("/run/testkit/log").unwrap_or_default();
    let _ = fs::remove_file("/run/testkit/log");
    log.lines().map(str::to_owned).collect()
}

#[test]
fn a_call_is_what_a_runtime_makes() {
    sandbox(|net| {
        install(net, &["one"]);
        let pod = net.container();
        let result = net.cni("one", "ADD", &pod, r#"{"a": 1}"#).success();
        assert_eq!(result["plugin"], "one");
        assert_eq!((&result["id"], &result["ifname"]), (&json!(pod.id), &json!("eth0")));
        assert_eq!(result["netns"], json!(pod.path));
        assert_eq!(result["conf"], json!({"a": 1}));
        assert_eq!(result["home"], "");
        let own = fs::read_link("/proc/thread-self/ns/net").unwrap();
        assert_eq!(result["link"], json!(own));
        let call = net.call("one", "DEL", "{}").pod(&pod).without("CNI_NETNS").env("CNI_IFNAME", "net1");
        let result = call.run().success();
        assert_eq!((&result["netns"], &result["ifname"]), (&json!(""), &json!("net1")));
    });
}

#[test]
fn failures_have_a_code_and_a_message() {
    sandbox(|net| {
        install(net, &["one"]);
        let outcome = net.cni("one", "ADD", &net.container(), r#""fail""#);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (1, "note\n"));
        assert_eq!(outcome.failure(), (7, "as told".to_owned()));
    });
}

#[test]
fn chains_run_as_libcni_runs_them() {
    sandbox(|net| {
        install(net, &["one", "two"]);
        let pod = net.container();
        let conflist = r#"{"cniVersion": "1.1.0", "name": "n", "plugins": [
            {"type": "one"}, {"type": "two", "capabilities": {"portMappings": true, "mac": false}}]}"#;
        let chain =
            Chain::new(net, conflist).capability("portMappings", json!([80])).capability("mac", json!("x"));
        let chain = chain.args("A=1");
        let link = chain.add(&pod, "eth1").unwrap();
        assert_eq!(log(), ["ADD one", "ADD two"]);
        assert_eq!((&link.result["plugin"], &link.result["args"]), (&json!("two"), &json!("A=1")));
        let conf = &link.result["conf"];
        assert_eq!((&conf["name"], &conf["cniVersion"]), (&json!("n"), &json!("1.1.0")));
        assert_eq!(conf["runtimeConfig"], json!({"portMappings": [80]}));
        let first = &conf["prevResult"];
        assert_eq!((&first["plugin"], &first["ifname"]), (&json!("one"), &json!("eth1")));
        assert!(first["conf"].get("runtimeConfig").is_none() && first["conf"].get("prevResult").is_none());
        link.check().unwrap();
        assert_eq!(log(), ["CHECK one", "CHECK two"]);
        link.del().unwrap();
        assert_eq!(log(), ["DEL two", "DEL one"]);
        chain.gc(&[(&pod.id, "eth1")]).unwrap();
        chain.status().unwrap();
        assert_eq!(log(), ["GC one", "GC two", "STATUS one", "STATUS two"]);
    });
}

#[test]
fn chains_stop_at_the_first_failure() {
    sandbox(|net| {
        install(net, &["one", "two"]);
        let pod = net.container();
        let conflist = r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "one", "x": "fail"}, {"type": "two"}]}"#;
        let chain = Chain::new(net, conflist);
        assert_eq!(chain.add(&pod, "eth0").unwrap_err().failure().0, 7);
        assert_eq!(log(), ["ADD one"]);
        assert!(chain.del(&pod, "eth0", &json!(null)).is_err());
        assert_eq!(log(), ["DEL two", "DEL one"]);
    });
}
