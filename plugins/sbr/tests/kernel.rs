// SPDX-License-Identifier: Apache-2.0
//! The plugin in the running kernel: what it makes, that DEL leaves nothing, and that an ADD that fails at any step
//! leaves nothing either.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::fs::File;

use cnibox_harness::run;
use cnibox_testkit::{Container, InProcess, Sandbox, sandbox};
use serde_json::{Value, json};

const SBR: InProcess = InProcess(run::<cnibox_sbr::Sbr>);

/// A pod with `eth0` and addresses, the other end `host0` on the host.
fn connected(net: &Sandbox) -> Container {
    let pod = net.connected(&[
        "address add 192.168.1.209/24 dev eth0",
        "address add 2001:db8::209/64 dev eth0 nodad",
        "route add 10.9.0.0/16 via 192.168.1.1 dev eth0",
    ]);
    net.await_local_route(&pod, "2001:db8::209 ");
    pod
}

fn conf(pod: &Container, own: &Value) -> Value {
    let mut conf = json!({"cniVersion": "1.1.0", "name": "n", "type": "sbr", "prevResult": {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": pod.path}],
        "ips": [
            {"interface": 1, "address": "192.168.1.209/24", "gateway": "192.168.1.1"},
            {"interface": 1, "address": "2001:db8::209/64", "gateway": "2001:db8::1"}]}});
    let members = own.as_object().unwrap().clone();
    conf.as_object_mut().unwrap().extend(members);
    conf
}

fn table(net: &Sandbox, pod: &Container, table: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for family in ["-4", "-6"] {
        // A table that has never had a route is an error to the command.
        let listed =
            net.run_in(pod, "sh", &["-c", &format!("ip {family} route show table {table} 2>&1 || :")]);
        lines.extend(listed.lines().map(|line| line.trim().to_owned()));
    }
    lines.retain(|line| !line.starts_with("Error") && !line.starts_with("Dump") && !line.starts_with("fe80"));
    lines
}

#[test]
fn each_address_gets_a_table_and_del_leaves_nothing() {
    sandbox(|net| {
        let pod = connected(net);
        let conf = conf(&pod, &json!({}));
        let rules = || net.run_in(&pod, "ip", &["rule"]) + &net.run_in(&pod, "ip", &["-6", "rule"]);
        let before = rules();
        let result = SBR.success("ADD", &pod, &conf);
        assert_eq!(result["ips"].as_array().unwrap().len(), 2);
        assert!(
            rules().contains("from 192.168.1.209 lookup 100")
                && rules().contains("from 2001:db8::209 lookup 101")
        );
        let first = table(net, &pod, "100");
        assert!(first.iter().any(|line| line == "default via 192.168.1.1 dev eth0"), "{first:?}");
        assert!(first.iter().any(|line| line.starts_with("10.9.0.0/16 via 192.168.1.1")), "{first:?}");
        let connected = "192.168.1.0/24 dev eth0 proto kernel scope link src 192.168.1.209";
        assert!(first.iter().any(|line| line == connected), "{first:?}");
        let second = table(net, &pod, "101");
        assert!(second.iter().any(|line| line.starts_with("default via 2001:db8::1 dev eth0")), "{second:?}");
        assert_eq!(table(net, &pod, "main"), [""; 0]);
        SBR.success("CHECK", &pod, &conf);
        SBR.success("DEL", &pod, &conf);
        assert_eq!(rules(), before);
        assert_eq!((table(net, &pod, "100"), table(net, &pod, "101")), (vec![], vec![]));
        SBR.success("DEL", &pod, &conf);
        assert_eq!(SBR.failure("CHECK", &pod, &conf), "no rule for packets from 192.168.1.209 found");
    });
}

/// Any process of the container may lock the file of its namespace, and keep it.
#[test]
fn a_lock_that_is_never_given_back_stops_no_del() {
    sandbox(|net| {
        let pod = connected(net);
        let conf = conf(&pod, &json!({}));
        let rules = || net.run_in(&pod, "ip", &["rule"]) + &net.run_in(&pod, "ip", &["-6", "rule"]);
        let before = rules();
        SBR.success("ADD", &pod, &conf);
        let kept = File::open(&pod.path).unwrap();
        kept.lock().unwrap();
        let said = SBR.failure("ADD", &pod, &conf);
        assert!(said.contains("another process has had it for more than 10 seconds"), "{said}");
        SBR.success("DEL", &pod, &conf);
        assert_eq!(rules(), before);
    });
}

#[test]
fn an_add_that_fails_at_any_step_leaves_nothing() {
    sandbox(|net| {
        for own in [json!({}), json!({"addSourceHints": true}), json!({"table": 5000})] {
            let pod = connected(net);
            let conf = conf(&pod, &own);
            let before = net.snapshot_of(&pod);
            let mut step = 1;
            while SBR.call("ADD", &pod, &conf, Some(step)).0 != 0 {
                before.assert_same(&net.snapshot_of(&pod));
                step += 1;
            }
            assert!(step > 2, "{own}: {step}");
            net.run("ip", &["link", "del", "host0"]);
        }
    });
}

#[test]
fn tables_with_routes_but_without_rules_are_in_use() {
    sandbox(|net| {
        let pod = connected(net);
        net.run_in(&pod, "ip", &["route", "add", "10.8.0.0/16", "dev", "eth0", "table", "100"]);
        net.run_in(&pod, "ip", &["rule", "add", "from", "10.7.0.1", "lookup", "101"]);
        SBR.success("ADD", &pod, &conf(&pod, &json!({})));
        let rules = net.run_in(&pod, "ip", &["rule"]) + &net.run_in(&pod, "ip", &["-6", "rule"]);
        assert!(rules.contains("from 192.168.1.209 lookup 102"), "{rules}");
        assert!(rules.contains("from 2001:db8::209 lookup 103"), "{rules}");
    });
}

#[test]
fn source_hints_keep_the_subnets_in_the_main_table() {
    sandbox(|net| {
        let pod = connected(net);
        SBR.success("ADD", &pod, &conf(&pod, &json!({"addSourceHints": true, "gateways": ["192.168.1.99"]})));
        let main = table(net, &pod, "main");
        assert_eq!(main.len(), 2, "{main:?}");
        assert!(
            main[0].starts_with("192.168.1.0/24 dev eth0") && main[0].contains("src 192.168.1.209"),
            "{main:?}"
        );
        assert!(
            main[1].starts_with("2001:db8::/64 dev eth0") && main[1].contains("src 2001:db8::209"),
            "{main:?}"
        );
        let first = table(net, &pod, "100");
        assert!(first.iter().any(|line| line == "default via 192.168.1.99 dev eth0"), "{first:?}");
    });
}

#[test]
fn a_configured_table_gets_rules_and_nothing_else() {
    sandbox(|net| {
        let pod = connected(net);
        let main = table(net, &pod, "main");
        let conf = conf(&pod, &json!({"table": 5000}));
        SBR.success("ADD", &pod, &conf);
        assert!(net.run_in(&pod, "ip", &["rule"]).contains("from 192.168.1.209 lookup 5000"));
        assert_eq!((table(net, &pod, "main"), table(net, &pod, "5000")), (main, vec![]));
        SBR.success("CHECK", &pod, &conf);
        SBR.success("DEL", &pod, &conf);
        assert!(!net.run_in(&pod, "ip", &["rule"]).contains("5000"));
    });
}

#[test]
fn del_needs_neither_interface_nor_namespace_and_makes_no_file() {
    sandbox(|net| {
        let pod = connected(net);
        let conf = conf(&pod, &json!({}));
        SBR.success("ADD", &pod, &conf);
        net.run("ip", &["link", "del", "host0"]);
        SBR.success("DEL", &pod, &conf);
        assert!(!net.run_in(&pod, "ip", &["rule"]).contains("192.168.1.209"));
        net.run("ip", &["netns", "del", &pod.id]);
        SBR.success("DEL", &pod, &conf);
        assert!(!pod.path.exists());
    });
}

#[test]
fn there_must_be_addresses_from_an_earlier_plugin() {
    sandbox(|net| {
        let pod = connected(net);
        let mut conf = conf(&pod, &json!({}));
        conf["prevResult"]["ips"] = json!([]);
        assert_eq!(SBR.failure("ADD", &pod, &conf), "No IP addresses supplied on interface: eth0");
        conf.as_object_mut().unwrap().remove("prevResult");
        assert_eq!(SBR.failure("ADD", &pod, &conf), "This plugin must be called as chained plugin");
        SBR.success("CHECK", &pod, &conf);
    });
}
