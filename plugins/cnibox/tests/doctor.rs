// SPDX-License-Identifier: Apache-2.0
//! `cnibox doctor` tells what this machine has, and by its exit status whether something will not work.

#![expect(clippy::unwrap_used, reason = "that is how a test fails")]

use std::fs;
use std::path::Path;
use std::process::Command;

use cnibox_testkit::{Sandbox, sandbox};

const CNIBOX: &str = env!("CARGO_BIN_EXE_cnibox");

/// Exit status and the lines.
fn examine(net: &Sandbox, plugins: &Path, networks: &Path, filter: &str) -> (i32, Vec<String>) {
    let mut doctor = Command::new(CNIBOX);
    doctor
        .arg("doctor")
        .env("CNI_PATH", plugins)
        .env("NETCONFPATH", networks)
        .env("CNIBOX_NETFILTER", filter);
    let output = net.netns().run(|| doctor.output()).unwrap().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    (output.status.code().unwrap(), lines)
}

fn network(status: &str, version: &str) -> String {
    format!(
        r#"{{"cniVersion": "{version}", "name": "n", "plugins": [{{"type": "bridge", "bridge": "br-n",
            "ipam": {{"type": "host-local", "subnet": "10.9.0.0/24"{status}}}}}]}}"#
    )
}

#[test]
fn what_works_and_what_does_not_is_told_apart() {
    sandbox(|net| {
        let dir = Path::new("/run/doctor");
        let (plugins, networks) = (dir.join("bin"), dir.join("net.d"));
        fs::create_dir_all(&networks).unwrap();
        let installed = Command::new(CNIBOX).arg("install").arg(&plugins).output().unwrap();
        assert!(installed.status.success());
        fs::write(networks.join("10-new.conflist"), network("", "1.1.0")).unwrap();
        fs::write(networks.join("20-old.conflist"), network("", "1.0.0")).unwrap();
        let (status, lines) = examine(net, &plugins, &networks, "auto");
        let all = lines.join("\n");
        assert_eq!(status, 0, "{all}");
        for good in [
            "permission to configure networks".to_owned(),
            "links of kind bridge, for bridge".to_owned(),
            "links of kind veth, for bridge, ptp".to_owned(),
            "plugins in /run/doctor/bin: 18 of cnibox's 18".to_owned(),
            "network in /run/doctor/net.d/10-new.conflist: STATUS of its plugins".to_owned(),
            "network in /run/doctor/net.d/20-old.conflist: older than 1.1.0, no STATUS".to_owned(),
        ] {
            assert!(lines.contains(&format!("{:<8} {good}", "ok")), "{good}:\n{all}");
        }
        let (_, lines) = examine(net, &plugins, &networks, "exec");
        let how = "ok       iptables rules are written by iptables-restore, as CNIBOX_NETFILTER says";
        assert!(lines.iter().any(|line| line == how), "{lines:?}");
    });
}

#[test]
fn what_will_not_work_is_status_1() {
    sandbox(|net| {
        let dir = Path::new("/run/doctor");
        let (plugins, networks) = (dir.join("bin"), dir.join("net.d"));
        fs::create_dir_all(&networks).unwrap();
        fs::create_dir_all(&plugins).unwrap();
        fs::copy(CNIBOX, plugins.join("bridge")).unwrap();
        fs::write(networks.join("broken.conflist"), "{").unwrap();
        fs::write(networks.join("full.conflist"), network(r#", "dataDir": "/proc/1""#, "1.1.0")).unwrap();
        let (status, lines) = examine(net, &plugins, &networks, "auto");
        let all = lines.join("\n");
        assert_eq!(status, 1, "{all}");
        for bad in ["broken.conflist: ", "full.conflist: "] {
            assert!(lines.iter().any(|line| line.starts_with("bad ") && line.contains(bad)), "{bad}\n{all}");
        }
        assert!(all.contains("plugins in /run/doctor/bin: 1 of cnibox's 18"), "{all}");
        let (status, lines) = examine(net, &plugins, &networks, "nonsense");
        assert!(
            status == 1 && lines.iter().any(|line| line.starts_with("bad      iptables rules: ")),
            "{lines:?}"
        );
    });
}
