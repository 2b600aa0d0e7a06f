// SPDX-License-Identifier: Apache-2.0
//! What the plugin does in a real kernel beyond what the reference does.

#![expect(clippy::unwrap_used, reason = "a test panics")]

use cnibox_testkit::{Call, Sandbox, sandbox};
use serde_json::{Value, json};

fn conf(ips: &[&str]) -> Value {
    let ips: Vec<_> = ips.iter().map(|ip| json!({"address": ip})).collect();
    json!({
        "cniVersion": "1.1.0", "name": "mynet", "type": "firewall", "backend": "iptables",
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "cni0"}], "ips": ips},
    })
}

fn without_result(mut conf: Value) -> Value {
    conf.as_object_mut().unwrap().remove("prevResult");
    conf
}

fn call<'a>(net: &'a Sandbox, verb: &str, container: &str, conf: &Value) -> Call<'a> {
    net.call("firewall", verb, &conf.to_string())
        .env("CNI_CONTAINERID", container)
        .env("CNI_NETNS", "/proc/1/ns/net")
        .env("CNI_IFNAME", "eth0")
}

fn accepted(net: &Sandbox) -> Vec<String> {
    let saved = net.run("iptables-save", &[]) + &net.run("ip6tables-save", &[]);
    saved.lines().filter(|line| line.contains("CNI-FORWARD -s")).map(str::to_owned).collect()
}

#[test]
fn del_needs_no_result_and_can_be_repeated() {
    sandbox(|net| {
        let conf = conf(&["10.22.0.2/16", "fd22::2/64"]);
        call(net, "ADD", "one", &conf).run().success();
        assert_eq!(accepted(net).len(), 2);
        for _ in 0..2 {
            call(net, "DEL", "one", &without_result(conf.clone())).run().success();
            assert!(accepted(net).is_empty());
        }
        assert!(!std::path::Path::new("/run/cnibox/attachments").exists());
    });
}

#[test]
fn del_works_on_a_host_without_rules_or_tools() {
    sandbox(|net| {
        let before = net.snapshot();
        call(net, "DEL", "one", &conf(&["10.22.0.2/16", "fd22::2/64"]))
            .env("PATH", "/nowhere")
            .run()
            .success();
        before.assert_same(&net.snapshot());
    });
}

#[test]
fn check_names_what_is_missing_and_creates_nothing() {
    sandbox(|net| {
        let mut conf = conf(&["10.22.0.2/16"]);
        conf["ingressPolicy"] = json!("isolated");
        let before = net.snapshot();
        let (_, message) = call(net, "CHECK", "one", &conf).run().failure();
        assert_eq!(
            message,
            "expected FORWARD rule [-m comment --comment CNI firewall plugin rules -j CNI-FORWARD] not found"
        );
        before.assert_same(&net.snapshot());
        call(net, "ADD", "one", &conf).run().success();
        call(net, "CHECK", "one", &conf).run().success();
        let rules = net.iptables_rules("filter");
        assert_eq!(rules.len(), 10);
        for rule in rules {
            net.iptables_delete("filter", &rule);
            let (code, message) = call(net, "CHECK", "one", &conf).run().failure();
            assert!(
                code == 999 && message.starts_with("expected ") && message.ends_with(" not found"),
                "{message}"
            );
            call(net, "DEL", "one", &conf).run().success();
            call(net, "ADD", "one", &conf).run().success();
            call(net, "CHECK", "one", &conf).run().success();
        }
    });
}

#[test]
fn gc_removes_only_what_is_known_to_be_nobodys() {
    sandbox(|net| {
        let gc = |valid: Value| {
            let mut conf = without_result(conf(&[]));
            conf["cni.dev/valid-attachments"] = valid;
            net.call("firewall", "GC", &conf.to_string()).run().success();
        };
        call(net, "ADD", "one", &conf(&["10.22.0.2/16"])).run().success();
        call(net, "ADD", "two", &conf(&["10.22.0.3/16"])).run().success();
        // The same address again, after an IPAM plugin has given it away twice.
        call(net, "ADD", "three", &conf(&["10.22.0.2/16"])).run().success();
        // An attachment whose addresses are not known.
        gc(json!([{"containerID": "foreign", "ifname": "eth0"}, {"containerID": "two", "ifname": "eth0"}]));
        assert_eq!(accepted(net).len(), 2);
        gc(json!([{"containerID": "two", "ifname": "eth0"}, {"containerID": "three", "ifname": "eth0"}]));
        assert_eq!(accepted(net).len(), 2);
        gc(json!([{"containerID": "two", "ifname": "eth0"}]));
        assert_eq!(accepted(net), ["-A CNI-FORWARD -s 10.22.0.3/32 -j ACCEPT"]);
        gc(json!([]));
        assert!(accepted(net).is_empty());
    });
}

#[test]
fn status_wants_permission() {
    sandbox(|net| {
        let conf = without_result(conf(&[]));
        net.call("firewall", "STATUS", &conf.to_string()).run().success();
    });
}

/// What is noted of a long chain is of use to nobody but the next call: in this namespace, by this version, and as long as
/// nothing has changed.
#[test]
fn a_long_chain_is_listed_once() {
    sandbox(|net| {
        let add = |container: &str, address: &str| {
            call(net, "ADD", container, &conf(&[address])).run().success();
            accepted(net).iter().filter(|rule| rule.contains(address.trim_end_matches("/16"))).count()
        };
        add("first", "10.22.0.2/16");
        let others: String =
            (1..150).map(|n| format!("-A CNI-FORWARD -s 10.9.0.{n}/32 -j ACCEPT\n")).collect();
        let fill = format!("iptables-restore --noflush <<END\n*filter\n{others}COMMIT\nEND\n");
        net.run("sh", &["-c", &fill]);
        assert_eq!(add("second", "10.22.0.3/16"), 1);
        for round in 0..3 {
            assert_eq!(add(&format!("beside{round}"), "10.22.0.3/16"), 1);
        }
        // It is believed: a listing would have found the rule. A second one is no harm, DEL removes both.
        let says_nothing = |name: &str| {
            let kept = inventory();
            let chain = std::fs::read_to_string(&kept).unwrap().lines().next().unwrap().to_owned();
            std::fs::remove_file(&kept).unwrap();
            std::fs::write(kept.with_file_name(name), format!("{chain}\n\n")).unwrap();
        };
        let name = || inventory().file_name().unwrap().to_str().unwrap().to_owned();
        says_nothing(&name());
        assert_eq!(add("third", "10.22.0.3/16"), 2);
        // Not by another version, by another namespace, nor of another generation; then that goes.
        for (from, to) in [("y-", "y-9"), ("0-", "0-9"), ("", "")] {
            let other = if from.is_empty() { format!("{}0", name()) } else { name().replacen(from, to, 1) };
            says_nothing(&other);
            let before = accepted(net).len();
            add("again", "10.22.0.2/16");
            assert_eq!(accepted(net).len(), before, "{other}");
            add(&other, "10.22.0.4/16");
            let noted = name();
            assert_ne!(noted, other);
            call(net, "DEL", &other, &conf(&["10.22.0.4/16"])).run().success();
            assert_ne!(name(), noted, "DEL has made another generation");
        }
    });
}

/// The file, of which there is one.
fn inventory() -> std::path::PathBuf {
    let files = std::fs::read_dir("/run/cnibox").unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with("inventory")).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}
