// SPDX-License-Identifier: Apache-2.0
//! The plugin in the running kernel: what it makes, that DEL leaves nothing, and that an ADD that fails at any step
//! leaves nothing either.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::process::Command;
use std::time::{Duration, Instant};

use cnibox_harness::run;
use cnibox_testkit::{Container, InProcess, Process, Sandbox, sandbox, skip};
use serde_json::{Value, json};

const BANDWIDTH: InProcess = InProcess(run::<cnibox_bandwidth::Bandwidth>);

fn conf(pod: &Container) -> Value {
    json!({"cniVersion": "1.1.0", "name": "n", "type": "bandwidth",
        "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 16_000_000, "egressBurst": 1_600_000,
        "prevResult": {"cniVersion": "1.1.0",
            "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": pod.path}]}})
}

fn discipline(net: &Sandbox, link: &str) -> String {
    net.run("tc", &["qdisc", "show", "dev", link])
}

#[test]
fn add_limits_both_directions_and_del_leaves_nothing() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let result = BANDWIDTH.success("ADD", &pod, &conf(&pod));
        let interfaces = result["interfaces"].as_array().unwrap();
        let ifb = interfaces[2]["name"].as_str().unwrap();
        assert!(ifb.starts_with("bwp") && ifb.len() == 15 && interfaces[2].get("sandbox").is_none());
        assert!(discipline(net, "host0").contains("qdisc tbf 1: root refcnt"));
        assert!(discipline(net, "host0").contains("qdisc ingress ffff:"));
        assert!(discipline(net, ifb).contains("rate 16Mbit"));
        let filters = net.run("tc", &["filter", "show", "dev", "host0", "ingress"]);
        assert_eq!(filters.matches("mirred (Egress Redirect to device").count(), 1, "{filters}");
        BANDWIDTH.success("CHECK", &pod, &conf(&pod));
        assert_eq!(BANDWIDTH.failure("ADD", &pod, &conf(&pod)), "create qdisc: file exists");
        BANDWIDTH.success("CHECK", &pod, &conf(&pod));
        BANDWIDTH.success("DEL", &pod, &conf(&pod));
        assert_eq!(net.snapshot().lines("\"ifb\""), [""; 0]);
        BANDWIDTH.success("DEL", &pod, &conf(&pod));
        net.run("ip", &["link", "del", "host0"]);
    });
}

/// Bits per second that arrive at a transfer from the host to the pod or, `--reverse`, the other way.
fn transferred(net: &Sandbox, direction: &[&str]) -> f64 {
    // Its first second, in which the burst goes through, does not count.
    let args = ["--client", "10.9.0.2", "--time", "3", "--omit", "1", "--connect-timeout", "2000", "--json"];
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let mut command = Command::new("iperf3");
        let output = net.netns().run(|| command.args(args).args(direction).output()).unwrap().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        match report["end"]["sum_received"]["bits_per_second"].as_f64() {
            Some(rate) => return rate,
            None => assert!(Instant::now() < patience, "{report}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn transfers_have_the_rate_of_their_direction() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        net.run("ip", &["address", "add", "10.9.0.1/24", "dev", "host0"]);
        net.run_in(&pod, "ip", &["address", "add", "10.9.0.2/24", "dev", "eth0"]);
        let Ok(_server) = Process::start_in(&pod, Command::new("iperf3").arg("--server")) else {
            return skip("iperf3 is not installed");
        };
        let unlimited = transferred(net, &[]);
        assert!(unlimited > 10.0 * 16e6, "{unlimited} bit/s before ADD");
        BANDWIDTH.success("ADD", &pod, &conf(&pod));
        for (direction, rate) in [(&[][..], 8e6), (&["--reverse"], 16e6)] {
            let measured = transferred(net, direction);
            assert!((0.9 * rate..=1.1 * rate).contains(&measured), "{measured} bit/s, not {rate}");
        }
    });
}

#[test]
fn an_add_that_fails_at_any_step_leaves_nothing() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let before = (net.snapshot(), discipline(net, "host0"));
        let mut step = 1;
        while BANDWIDTH.call("ADD", &pod, &conf(&pod), Some(step)).0 != 0 {
            before.0.assert_same(&net.snapshot());
            assert_eq!(discipline(net, "host0"), before.1, "step {step}");
            step += 1;
        }
        assert_eq!(step, 9, "queue length, tbf, ifb, its mark, ingress, filter, tbf, mark");
    });
}

#[test]
fn check_notices_another_rate_and_a_missing_device() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let result = BANDWIDTH.success("ADD", &pod, &conf(&pod));
        let mut other = conf(&pod);
        other["ingressRate"] = json!(8_000_008);
        assert_eq!(BANDWIDTH.failure("CHECK", &pod, &other), "Rate doesn't match");
        let mut other = conf(&pod);
        other["egressBurst"] = json!(1_600_008);
        assert_eq!(BANDWIDTH.failure("CHECK", &pod, &other), "Limit doesn't match");
        net.run("ip", &["link", "del", result["interfaces"][2]["name"].as_str().unwrap()]);
        assert_eq!(BANDWIDTH.failure("CHECK", &pod, &conf(&pod)), "get ifb device: Link not found");
        net.run("tc", &["qdisc", "del", "dev", "host0", "root"]);
        assert_eq!(BANDWIDTH.failure("CHECK", &pod, &conf(&pod)), "Failed to find qdisc");
    });
}

#[test]
fn without_limits_the_result_passes_and_without_a_result_nothing_does() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let mut none = conf(&pod);
        for key in ["ingressRate", "ingressBurst", "egressRate", "egressBurst"] {
            none[key] = json!(0);
        }
        let before = net.snapshot();
        assert_eq!(BANDWIDTH.success("ADD", &pod, &none)["interfaces"].as_array().unwrap().len(), 2);
        before.assert_same(&net.snapshot());
        none.as_object_mut().unwrap().remove("prevResult");
        assert_eq!(BANDWIDTH.failure("ADD", &pod, &none), "must be called as chained plugin");
        assert_eq!(BANDWIDTH.failure("CHECK", &pod, &none), "must be called as a chained plugin");
        BANDWIDTH.success("DEL", &pod, &none);
    });
}

#[test]
fn the_host_interface_must_be_listed() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let mut other = conf(&pod);
        other["prevResult"]["interfaces"][0]["name"] = json!("host1");
        let want = "no veth peer of container interface found in host ns";
        assert_eq!(BANDWIDTH.failure("ADD", &pod, &other), want);
        other["prevResult"]["interfaces"] = json!([]);
        assert_eq!(BANDWIDTH.failure("ADD", &pod, &other), "no interfaces provided");
        net.run("ip", &["link", "del", "host0"]);
        let want = "container interface eth0 has no veth peer: could not look up \"eth0\": Link not found";
        assert_eq!(BANDWIDTH.failure("ADD", &pod, &conf(&pod)), want);
    });
}

/// Whose peer has the index of the bridge, which is in prevResult as well.
#[test]
fn a_pair_of_the_containers_own_limits_nobody() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        net.run("ip", &["link", "add", "br0", "index", "70", "type", "bridge"]);
        let mut conf = conf(&pod);
        conf["prevResult"]["interfaces"][0]["name"] = json!("br0");
        for command in ["link del eth0", "link add eth1 index 70 type veth peer name eth0"] {
            net.run_in(&pod, "ip", &command.split(' ').collect::<Vec<_>>());
        }
        assert_eq!(BANDWIDTH.failure("ADD", &pod, &conf), "veth peer with index 70 is not in host ns");
        assert_eq!(discipline(net, "br0").matches("tbf").count(), 0);
    });
}

#[test]
fn gc_removes_devices_of_this_networks_lost_attachments_only() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        BANDWIDTH.success("ADD", &pod, &conf(&pod));
        net.run("ip", &["link", "add", "bwp0123456789ab", "type", "ifb"]);
        let gc = |name: &str, valid: Value| {
            let mut conf = json!({"cniVersion": "1.1.0", "name": name, "type": "bandwidth"});
            conf["cni.dev/valid-attachments"] = valid;
            BANDWIDTH.success("GC", &pod, &conf);
            net.snapshot().lines("\"ifb\"").len()
        };
        assert_eq!(gc("other", json!([])), 2);
        assert_eq!(gc("n", json!([{"containerID": pod.id, "ifname": "eth0"}])), 2);
        assert_eq!(gc("n", json!([])), 1);
    });
}

#[test]
fn del_leaves_a_sister_interfaces_device_alone() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let result = BANDWIDTH.success("ADD", &pod, &conf(&pod));
        let ifb = result["interfaces"][2]["name"].as_str().unwrap();
        let alias = std::fs::read_to_string(format!("/sys/class/net/{ifb}/ifalias"));
        let seen = net.run("ip", &["-d", "link", "show", ifb]);
        assert!(seen.contains("alias cnibox:ready:n:"), "{seen} {alias:?}");
        net.run("ip", &["link", "set", ifb, "alias", &format!("cnibox:ready:n:{}:net1", pod.id)]);
        BANDWIDTH.success("DEL", &pod, &conf(&pod));
        assert_eq!(net.snapshot().lines("\"ifb\"").len(), 1);
    });
}

#[test]
fn an_unfinished_add_is_replaced() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let result = BANDWIDTH.success("ADD", &pod, &conf(&pod));
        let ifb = result["interfaces"][2]["name"].as_str().unwrap();
        // Killed before its end: nothing says that it has finished.
        let forget = r#"sed -i s/\"finished\":true/\"finished\":false/ /run/cnibox/attachments/*/*"#;
        net.run("sh", &["-ec", forget]);
        assert!(net.run("ip", &["link"]).contains(ifb));
        net.run("tc", &["qdisc", "del", "dev", "host0", "root"]);
        net.run("tc", &["qdisc", "del", "dev", "host0", "ingress"]);
        BANDWIDTH.success("ADD", &pod, &conf(&pod));
        BANDWIDTH.success("CHECK", &pod, &conf(&pod));
    });
}
