// SPDX-License-Identifier: Apache-2.0
//! The plugin in the running kernel: what it makes, that DEL leaves nothing, and that an ADD that fails at any step
//! leaves nothing either.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::path::{Path, PathBuf};

use cnibox_harness::run;
use cnibox_netns::NetNs;
use cnibox_testkit::{Container, InProcess, Sandbox, Snapshot, sandbox};
use serde_json::{Value, json};

const TUNING: InProcess = InProcess(run::<cnibox_tuning::Tuning>);

fn conf(pod: &Container, own: &Value) -> Value {
    let mut conf = json!({"cniVersion": "1.1.0", "name": "n", "type": "tuning", "prevResult": {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "host0"}, {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": pod.path}]}});
    let members = own.as_object().unwrap().clone();
    conf.as_object_mut().unwrap().extend(members);
    conf
}

fn everything(pod: &Container) -> Value {
    conf(
        pod,
        &json!({"mac": "c2:11:22:33:44:55", "promisc": true, "mtu": 1454, "allmulti": true, "txQLen": 20000,
            "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1", "net/ipv4/conf/all/log_martians": "1"}}),
    )
}

fn backup(pod: &Container) -> String {
    format!("/run/cni/tuning/{}_eth0.json", pod.id)
}

/// The pod, without what comes some time after the carrier.
fn inside(net: &Sandbox, pod: &Container) -> Snapshot {
    net.snapshot_of(pod).without("ff00::/8")
}

#[test]
fn add_changes_check_agrees_and_del_restores() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let (host, links) = (net.snapshot(), inside(net, &pod));
        let result = TUNING.success("ADD", &pod, &everything(&pod));
        assert_eq!(result["interfaces"][1]["mac"], "c2:11:22:33:44:55");
        let changed = net.run_in(&pod, "ip", &["-o", "link", "show", "eth0"]);
        for word in ["c2:11:22:33:44:55", "mtu 1454", "qlen 20000", "PROMISC", "ALLMULTI"] {
            assert!(changed.contains(word), "{word}: {changed}");
        }
        assert_eq!(net.run_in(&pod, "sysctl", &["-n", "net.ipv4.conf.eth0.log_martians"]), "1\n");
        assert!(std::fs::read_to_string(backup(&pod)).unwrap().starts_with("{\n \"mac\": \""));
        TUNING.success("CHECK", &pod, &everything(&pod));
        TUNING.success("DEL", &pod, &everything(&pod));
        links.assert_same(&inside(net, &pod));
        host.assert_same(&net.snapshot());
        TUNING.success("DEL", &pod, &everything(&pod));
    });
}

#[test]
fn an_add_that_fails_at_any_step_leaves_nothing() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let (host, before) = (net.snapshot(), inside(net, &pod));
        let mut step = 1;
        while TUNING.call("ADD", &pod, &everything(&pod), Some(step)).0 != 0 {
            host.assert_same(&net.snapshot());
            before.assert_same(&inside(net, &pod));
            assert_eq!(net.run_in(&pod, "sysctl", &["-n", "net.ipv4.conf.eth0.log_martians"]), "0\n");
            step += 1;
        }
        assert_eq!(step, 6, "before and behind the sysctls, the note, the backup, the interface");
    });
}

#[test]
fn what_the_kernel_refuses_is_taken_back() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let before = inside(net, &pod);
        let bad = conf(&pod, &json!({"mtu": 100_000, "promisc": true, "txQLen": 5}));
        assert_eq!(TUNING.failure("ADD", &pod, &bad), "invalid argument");
        before.assert_same(&inside(net, &pod));
        assert!(!Path::new(&backup(&pod)).exists());
        // One by two names, one that nobody may read, one that is none.
        let sysctls = json!({"net.ipv4.conf.IFNAME.log_martians": "1", "net.ipv4.conf.eth0.log_martians": "2",
            "net.ipv4.route.flush": "1", "net.ipv4.tcp_nonsense": "1"});
        let bad = conf(&pod, &json!({"sysctl": sysctls}));
        let file = "/proc/sys/net/ipv4/tcp_nonsense";
        assert_eq!(TUNING.failure("ADD", &pod, &bad), format!("open {file}: no such file or directory"));
        assert_eq!(net.run_in(&pod, "sysctl", &["-n", "net.ipv4.conf.eth0.log_martians"]), "0\n");
    });
}

#[test]
fn sysctls_that_cannot_be_read_can_be_written() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        TUNING.success("ADD", &pod, &conf(&pod, &json!({"sysctl": {"net.ipv4.route.flush": "1"}})));
    });
}

#[test]
fn check_names_what_differs() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        TUNING.success("ADD", &pod, &everything(&pod));
        net.run_in(&pod, "ip", &["link", "set", "eth0", "mtu", "1400"]);
        let want = "Error: Tuning configured MTU of eth0 is 1454, current value is 1400";
        assert_eq!(TUNING.failure("CHECK", &pod, &everything(&pod)), want);
        net.run_in(&pod, "sysctl", &["-w", "net.ipv4.conf.eth0.log_martians=0"]);
        let file = "/proc/sys/net/ipv4/conf/eth0/log_martians";
        let want = format!("Error: Tuning configured value of {file} is 1, current value is 0");
        assert_eq!(TUNING.failure("CHECK", &pod, &everything(&pod)), want);
    });
}

#[test]
fn del_leaves_no_backup_when_the_namespace_or_the_interface_is_gone() {
    sandbox(|net| {
        for gone in ["interface", "namespace"] {
            let pod = net.connected(&[]);
            let conf = everything(&pod);
            TUNING.success("ADD", &pod, &conf);
            assert!(Path::new(&backup(&pod)).exists());
            net.run("ip", &["link", "del", "host0"]);
            if gone == "namespace" {
                net.run("ip", &["netns", "del", &pod.id]);
            }
            TUNING.success("DEL", &pod, &conf);
            assert!(!Path::new(&backup(&pod)).exists(), "{gone}");
        }
    });
}

#[test]
fn del_without_a_namespace_keeps_the_backup_for_one_with_it() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let (links, conf) = (inside(net, &pod), everything(&pod));
        TUNING.success("ADD", &pod, &conf);
        let lost =
            Container { id: pod.id.clone(), path: PathBuf::new(), netns: NetNs::open(&pod.path).unwrap() };
        TUNING.success("DEL", &lost, &conf);
        assert!(Path::new(&backup(&pod)).exists());
        TUNING.success("DEL", &pod, &conf);
        assert!(!Path::new(&backup(&pod)).exists());
        links.assert_same(&inside(net, &pod));
    });
}

#[test]
fn a_backup_that_the_reference_wrote_is_restored() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        net.run_in(&pod, "ip", &["link", "set", "eth0", "mtu", "1300", "promisc", "on"]);
        std::fs::create_dir_all("/run/cni/tuning").unwrap();
        std::fs::write(backup(&pod), "{\n \"promisc\": false,\n \"mtu\": 1500\n}").unwrap();
        TUNING.success("DEL", &pod, &conf(&pod, &json!({})));
        let link = net.run_in(&pod, "ip", &["-o", "link", "show", "eth0"]);
        assert!(link.contains("mtu 1500") && !link.contains("PROMISC"), "{link}");
        assert!(!Path::new(&backup(&pod)).exists());
    });
}

#[test]
fn gc_removes_the_backups_of_this_networks_lost_attachments_only() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        let conf = everything(&pod);
        TUNING.success("ADD", &pod, &conf);
        let gc = |name: &str, valid: Value| {
            let mut conf = json!({"cniVersion": "1.1.0", "name": name, "type": "tuning"});
            conf["cni.dev/valid-attachments"] = valid;
            TUNING.success("GC", &pod, &conf);
        };
        gc("other", json!([]));
        gc("n", json!([{"containerID": pod.id, "ifname": "eth0"}]));
        assert!(Path::new(&backup(&pod)).exists());
        gc("n", json!([]));
        assert!(!Path::new(&backup(&pod)).exists());
        assert_eq!(net.snapshot().lines("eth0.json"), [""; 0]);
    });
}

/// `/etc` with a file that only this test sees.
fn allow(net: &Sandbox, lines: &str) {
    let dir = net.dir().join("etc");
    for sub in ["upper", "work"] {
        std::fs::create_dir_all(dir.join(sub)).unwrap();
    }
    let (upper, work) = (dir.join("upper"), dir.join("work"));
    let options = format!("lowerdir=/etc,upperdir={},workdir={}", upper.display(), work.display());
    net.run("mount", &["-t", "overlay", "overlay", "-o", &options, "/etc"]);
    std::fs::create_dir_all("/etc/cni/tuning").unwrap();
    std::fs::write("/etc/cni/tuning/allowlist.conf", lines).unwrap();
}

#[test]
fn the_hosts_list_decides_which_sysctls_are_allowed() {
    sandbox(|net| {
        let pod = net.connected(&[]);
        allow(net, "^net\\.ipv4\\.conf\\.IFNAME\\.log_martians$\n");
        let want = "Sysctl net/ipv4/conf/all/log_martians is not allowed. Only the following sysctls are allowed: \
                    [^net\\.ipv4\\.conf\\.IFNAME\\.log_martians$]";
        assert_eq!(TUNING.failure("ADD", &pod, &everything(&pod)), want);
        let one = conf(&pod, &json!({"sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1"}}));
        TUNING.success("ADD", &pod, &one);
    });
}
