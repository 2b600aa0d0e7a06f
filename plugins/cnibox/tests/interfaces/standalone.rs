// SPDX-License-Identifier: Apache-2.0
//! dummy and tap: interfaces that need no other one.

use cnibox_testkit::{Container, Sandbox, ping, sandbox, skip};
use serde_json::{Value, json};

use crate::world::{
    add, add_error, address, all_or_nothing, check, conf, del, has_python, supported, tun_node,
};

#[test]
fn dummies_carry_addresses() {
    sandbox(|net| {
        if !supported(net, "dummy") {
            return;
        }
        let (pod, conf) = (net.container(), conf("dummy", json!({}), Some("10.9.0.0/24")));
        all_or_nothing(net, &pod, &conf);
        let result = add(&pod, &conf);
        net.run_in(&pod, "ip", &["link", "set", "lo", "up"]);
        assert!(ping(&pod.netns, address(&result).parse().unwrap()));
        assert_eq!(add_error(&pod, &conf), "failed to create dummy: file exists");
        net.run_in(&pod, "ip", &["link", "set", "eth0", "down"]);
        assert_eq!(check(&pod, &conf, &result).unwrap_err()["msg"], "Interface eth0 is down");
        del(&pod, &conf);
    });
}

/// What `ip -d link` and `/sys` say of the device.
fn shown(net: &Sandbox, pod: &Container) -> String {
    net.run_in(pod, "ip", &["-d", "link", "show", "eth0"])
}

#[test]
fn taps_are_as_configured() {
    sandbox(|net| {
        let pod = net.container();
        net.run_in(&pod, "ip", &["link", "add", "br0", "type", "bridge"]);
        let fields = json!({"owner": 54321, "group": 54322, "multiQueue": true, "mtu": 1400, "bridge": "br0",
            "mac": "c2:11:22:33:44:55"});
        let conf = conf("tap", fields, None);
        let result = add(&pod, &conf);
        assert_eq!(result["interfaces"][0]["mac"], "c2:11:22:33:44:55");
        let link = shown(net, &pod);
        for wanted in [
            "tun type tap",
            "multi_queue",
            "persist on",
            "user 54321",
            "group 54322",
            "vnet_hdr on",
            "mtu 1400",
            "master br0",
            ",UP",
        ] {
            assert!(link.contains(wanted), "{wanted}: {link}");
        }
        check(&pod, &conf, &result).unwrap();
        assert_eq!(add_error(&pod, &conf), "failed to rename tap to \"eth0\": file exists");
        del(&pod, &conf);
        all_or_nothing(net, &pod, &conf);
        let bridgeless = crate::world::conf("tap", json!({"bridge": "br9"}), None);
        assert_eq!(add_error(&pod, &bridgeless), "failed to get bridge br9: Link not found");
        let plain = crate::world::conf("tap", json!({"owner": 54321}), Some("10.9.0.0/24"));
        all_or_nothing(net, &pod, &plain);
        add(&pod, &plain);
        let link = shown(net, &pod);
        assert!(link.contains("pi off") && !link.contains("vnet_hdr on"), "{link}");
    });
}

/// The kernel looks for duplicates once somebody has opened the device.
#[test]
fn nobody_waits_for_a_tap_to_settle() {
    sandbox(|net| {
        let pod = net.container();
        let ranges = json!([[{"subnet": "fd00:9::/64"}]]);
        let conf = conf("tap", json!({"ipam": {"type": "host-local", "ranges": ranges}}), None);
        let started = std::time::Instant::now();
        add(&pod, &conf);
        assert!(started.elapsed().as_secs() < 4, "{:?}", started.elapsed());
        let addresses = net.run_in(&pod, "ip", &["address", "show", "dev", "eth0"]);
        assert!(addresses.contains("fd00:9::2/64"), "{addresses}");
        del(&pod, &conf);
    });
}

/// Opens the device as a process of this user; the flags are IFF_TAP | IFF_NO_PI.
fn opens(net: &Sandbox, pod: &Container, user: &str) -> bool {
    let open = "import fcntl, os, struct, sys\n\
        tun = os.open(sys.argv[1], os.O_RDWR)\n\
        fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH22x', b'eth0', 0x1002))";
    let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
    let node = tun_node(net);
    let args = [&user, &group, "--clear-groups", "/usr/bin/python3", "-c", open, node.to_str().unwrap()];
    let output =
        pod.netns.run(|| std::process::Command::new("setpriv").args(args).output()).unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("Operation not permitted"), "{said}");
    output.status.success()
}

#[test]
fn the_owner_opens_a_tap_and_nobody_else_does() {
    sandbox(|net| {
        if !has_python() {
            return;
        }
        let pod = net.container();
        let conf: Value = conf("tap", json!({"owner": 54321}), None);
        add(&pod, &conf);
        assert!(!opens(net, &pod, "54320"));
        assert!(opens(net, &pod, "54321"));
        del(&pod, &conf);
    });
}

#[test]
fn a_context_is_refused_where_there_is_no_selinux() {
    if std::path::Path::new("/sys/fs/selinux/enforce").exists() {
        return skip("SELinux is here");
    }
    sandbox(|net| {
        let pod = net.container();
        let before = net.snapshot_of(&pod);
        let conf = conf("tap", json!({"selinuxContext": "system_u:system_r:container_t:s0"}), None);
        let message = add_error(&pod, &conf);
        assert!(message.starts_with("failed set socket label: "), "{message}");
        before.assert_same(&net.snapshot_of(&pod));
    });
}
