// SPDX-License-Identifier: Apache-2.0
//! host-device: there and back.

use std::fs;
use std::os::unix::fs::symlink;

use cnibox_testkit::{Sandbox, ping, sandbox};
use serde_json::{Value, json};

use crate::world::{add, add_error, all_or_nothing, call, check, conf, del, del_at, host, property};

/// A device of the host, `dev0`, up, with its other end 10.9.0.254/24 in another machine.
fn device(net: &Sandbox) -> cnibox_testkit::Container {
    let peer = net.container();
    net.run("ip", &["link", "add", "dev0", "type", "veth", "peer", "name", "eth0", "netns", &peer.id]);
    net.run("ip", &["link", "set", "dev0", "up", "address", "c2:11:22:33:44:55", "addrgenmode", "none"]);
    for args in ["link set eth0 up", "address add 10.9.0.254/24 dev eth0"] {
        net.run_in(&peer, "ip", &args.split(' ').collect::<Vec<_>>());
    }
    peer
}

fn by_name(subnet: Option<&str>) -> Value {
    conf("host-device", json!({"device": "dev0"}), subnet)
}

#[test]
fn a_device_is_lent_and_comes_back_under_its_name() {
    sandbox(|net| {
        let (peer, pod) = (device(net), net.container());
        let conf = by_name(Some("10.9.0.0/24"));
        let result = add(&pod, &conf);
        assert_eq!(
            result["interfaces"],
            json!([{"name": "eth0", "mac": "c2:11:22:33:44:55", "sandbox": pod.path}])
        );
        assert!(ping(&peer.netns, "10.9.0.2".parse().unwrap()));
        let link = net.run_in(&pod, "ip", &["-j", "link", "show", "eth0"]);
        assert_eq!(property(&link, "ifalias"), "dev0");
        check(&pod, &conf, &result).unwrap();
        del(&pod, &conf);
        let link = net.run("ip", &["link", "show", "dev0"]);
        assert!(link.contains("state DOWN") && !link.contains("alias"), "{link}");
        assert_eq!(host(net).lines("10.9.0."), Vec::<&str>::new());
        del(&pod, &conf);
    });
}

#[test]
fn an_add_that_fails_leaves_the_device_up_under_its_name() {
    sandbox(|net| {
        device(net);
        let pod = net.container();
        // The first round of ADD and DEL leaves the device down; it is up for every failure after that.
        let conf = by_name(Some("10.9.0.0/24"));
        add(&pod, &conf);
        del(&pod, &conf);
        all_or_nothing(net, &pod, &conf);
        net.run("ip", &["link", "set", "dev0", "up"]);
        for step in 1..=4 {
            assert!(call("ADD", (&pod.id, pod.path.to_str().unwrap()), &conf, Some(step)).is_err());
            let link = net.run("ip", &["link", "show", "dev0"]);
            assert!(link.contains(",UP") && !link.contains("alias"), "step {step}: {link}");
        }
    });
}

#[test]
fn names_taken_on_either_side_are_no_trap() {
    sandbox(|net| {
        device(net);
        let (pod, conf) = (net.container(), by_name(None));
        net.run("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "other0"]);
        net.run_in(&pod, "ip", &["link", "add", "dev0", "type", "bridge"]);
        add(&pod, &conf);
        del(&pod, &conf);
        assert!(net.run("ip", &["link", "show", "dev0"]).contains("c2:11:22:33:44:55"));
        net.run_in(&pod, "ip", &["link", "add", "eth0", "type", "bridge"]);
        let text =
            "failed to move link failed to move \"eth0\" (host: \"dev0\") to container NS: file exists";
        assert_eq!(add_error(&pod, &conf), text);
        let error = call("DEL", (&pod.id, pod.path.to_str().unwrap()), &conf, None).unwrap_err();
        assert_eq!(error["msg"], "failed to find original ifname for \"eth0\" (alias is not set)");
    });
}

/// Where the device is home already, nothing of the container's can be it, whatever is written on it.
#[test]
fn a_second_del_takes_nothing_of_the_containers() {
    sandbox(|net| {
        device(net);
        let (pod, conf) = (net.container(), by_name(None));
        add(&pod, &conf);
        del(&pod, &conf);
        net.run_in(&pod, "ip", &["link", "add", "eth0", "type", "bridge"]);
        net.run_in(&pod, "ip", &["link", "set", "eth0", "alias", "planted0"]);
        let before = host(net);
        del(&pod, &conf);
        assert_eq!(host(net), before);
        assert!(net.run_in(&pod, "ip", &["link"]).contains("eth0"));
    });
}

/// They move with a device, and a container gives it any.
#[test]
fn alternative_names_keep_no_device_away() {
    sandbox(|net| {
        device(net);
        let (pod, conf) = (net.container(), by_name(None));
        net.run("ip", &["link", "add", "other0", "type", "bridge"]);
        for names in [&["other0"][..], &["dev0"], &["mine0", "dev0", "other0"]] {
            add(&pod, &conf);
            for name in names {
                net.run_in(&pod, "ip", &["link", "property", "add", "dev", "eth0", "altname", name]);
            }
            net.run_in(&pod, "ip", &["link", "set", "eth0", "down"]);
            net.run_in(&pod, "ip", &["link", "set", "eth0", "name", "x"]);
            del(&pod, &conf);
            let link = net.run("ip", &["link", "show", "dev0"]);
            assert!(link.contains(": dev0@") && link.contains("c2:11:22:33:44:55"), "{names:?}: {link}");
            assert_eq!(link.contains("altname mine0"), names.contains(&"mine0"), "{link}");
        }
    });
}

/// On its way back it has its own name for a moment, and is still in the container.
#[test]
fn a_device_that_a_killed_del_left_half_way_comes_back() {
    sandbox(|net| {
        device(net);
        let (pod, conf) = (net.container(), by_name(None));
        for ifname in ["eth0", "eth7"] {
            add(&pod, &conf);
            net.run_in(&pod, "ip", &["link", "set", "eth0", "down"]);
            let alias = format!("cnibox:returning:{ifname}");
            net.run_in(&pod, "ip", &["link", "set", "eth0", "name", "dev0", "alias", &alias]);
            del(&pod, &conf);
            // It is known by what the ledger says, and not by what a container can write.
            assert!(net.run("ip", &["link"]).contains("dev0"), "{ifname}");
        }
    });
}

#[test]
fn a_lost_namespace_is_no_error_and_its_addresses_are_free() {
    sandbox(|net| {
        device(net);
        let (pod, conf) = (net.container(), by_name(Some("10.9.0.0/24")));
        for netns in ["", "/run/netns/gone"] {
            add(&pod, &conf);
            del_at(&pod, netns, &conf);
            assert_eq!(host(net).without("/run/cnibox/").lines("10.9.0."), Vec::<&str>::new());
            // The runtime may have lost the path, the ledger has not.
            assert!(net.run("ip", &["link"]).contains("dev0"), "{netns:?}");
            del(&pod, &conf);
            assert_eq!(host(net).lines("10.9.0."), Vec::<&str>::new());
        }
    });
}

/// As one that the Go plugin lent, with another device of the host that the configuration finds by now.
#[test]
fn a_loan_that_nobody_noted_comes_back_by_its_alias() {
    sandbox(|net| {
        let pod = net.container();
        net.run("ip", &["link", "add", "dev0", "type", "veth", "peer", "name", "far0"]);
        net.run("ip", &["link", "set", "dev0", "address", "c2:11:22:33:44:55"]);
        let conf = conf("host-device", json!({"hwaddr": "c2:11:22:33:44:55"}), None);
        add(&pod, &conf);
        net.run("rm", &["-r", "/run/cnibox"]);
        net.run("ip", &["link", "add", "dev1", "type", "bridge"]);
        net.run("ip", &["link", "set", "dev1", "address", "c2:11:22:33:44:55"]);
        del(&pod, &conf);
        net.run("ip", &["link", "show", "dev0"]);
    });
}

#[test]
fn an_alias_makes_no_loan_of_anothers_interface() {
    sandbox(|net| {
        let (_peer, pod) = (device(net), net.container());
        let mut bridge = conf("bridge", json!({"bridge": "br0"}), Some("10.9.0.0/24"));
        bridge["name"] = json!("other");
        add(&pod, &bridge);
        net.run_in(&pod, "ip", &["link", "set", "eth0", "alias", "dev7"]);
        del(&pod, &by_name(None));
        net.run_in(&pod, "ip", &["link", "show", "eth0"]);
        del(&pod, &bridge);
    });
}

#[test]
fn devices_are_found_by_address_and_in_sysfs() {
    sandbox(|net| {
        device(net);
        let pod = net.container();
        let lend = |fields: Value| {
            let conf = conf("host-device", fields, None);
            assert_eq!(add(&pod, &conf)["interfaces"][0]["mac"], "c2:11:22:33:44:55", "{conf}");
            del(&pod, &conf);
        };
        lend(json!({"hwaddr": "C2-11-22-33-44-55"}));
        made_up_sysfs(net);
        lend(json!({"pciBusID": "0000:00:01.0"}));
        lend(json!({"pciBusID": "0000:00:02.0"}));
        lend(json!({"runtimeConfig": {"deviceID": "0000:00:01.0"}}));
        lend(json!({"runtimeConfig": {"deviceID": "mlx5_core.sf.4"}}));
        let dpdk = conf("host-device", json!({"pciBusID": "0000:00:03.0"}), Some("10.9.0.0/24"));
        let result = add(&pod, &dpdk);
        assert_eq!(result["interfaces"], json!([{"name": "eth0", "sandbox": pod.path}]));
        assert!(net.run("ip", &["link", "show", "dev0"]).contains("dev0"));
        check(&pod, &dpdk, &result).unwrap();
        del(&pod, &dpdk);
        let gone = conf("host-device", json!({"pciBusID": "0000:00:09.0"}), None);
        let text =
            "error with host device: lstat /sys/bus/pci/devices/0000:00:09.0: no such file or directory";
        assert_eq!(add_error(&pod, &gone), text);
        del(&pod, &gone);
    });
}

/// Puts `dev0` on both buses: 01 plain, 02 as virtio, 03 with a userspace driver.
fn made_up_sysfs(net: &Sandbox) {
    let bus = net.dir().join("bus");
    for (device, interfaces, driver) in [
        ("pci/devices/0000:00:01.0", "net/dev0", "e1000"),
        ("pci/devices/0000:00:02.0", "virtio3/net/dev0", "virtio-pci"),
        ("pci/devices/0000:00:03.0", "", "vfio-pci"),
        ("auxiliary/devices/mlx5_core.sf.4", "net/dev0", "mlx5"),
    ] {
        let (device, driver) = (bus.join(device), bus.join("drivers").join(driver));
        fs::create_dir_all(device.join(interfaces)).unwrap();
        fs::create_dir_all(&driver).unwrap();
        symlink(&driver, device.join("driver")).unwrap();
    }
    net.run("mount", &["--bind", bus.to_str().unwrap(), "/sys/bus"]);
}
