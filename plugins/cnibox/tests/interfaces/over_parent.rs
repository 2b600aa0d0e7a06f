// SPDX-License-Identifier: Apache-2.0
//! macvlan, ipvlan and vlan: interfaces on top of another one.

use cnibox_testkit::{Container, Sandbox, ping, sandbox};
use serde_json::{Value, json};

use crate::world::{
    add, add_error, address, all_or_nothing, call, check, conf, del, del_at, host, property, supported,
};

/// The host's `eth0`, its other end `eth0` in the answer, 10.9.0.254/24.
fn uplink(net: &Sandbox) -> Container {
    let peer = net.container();
    net.run("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &peer.id]);
    // Addresses that the kernel adds by itself some time later would look like something left.
    net.run("ip", &["link", "set", "eth0", "up", "addrgenmode", "none"]);
    for args in ["link set eth0 up", "address add 10.9.0.254/24 dev eth0"] {
        net.run_in(&peer, "ip", &args.split(' ').collect::<Vec<_>>());
    }
    peer
}

/// Two pods on one parent reach each other and the parent's peer.
fn meets_siblings_and_peer(net: &Sandbox, conf: &Value) {
    let peer = uplink(net);
    let (one, other) = (net.container(), net.container());
    let first = add(&one, conf);
    let second = add(&other, conf);
    assert!(ping(&one.netns, address(&second).parse().unwrap()), "{conf}: siblings");
    assert!(ping(&peer.netns, address(&first).parse().unwrap()), "{conf}: peer");
    check(&one, conf, &first).unwrap_or_else(|error| panic!("CHECK: {error}"));
    assert_eq!(first["interfaces"].as_array().unwrap().len(), 1);
    net.run("ip", &["link", "del", "eth0"]);
    // The parent has taken them along; what is left of the attachments goes without it.
    for pod in [&one, &other] {
        del(pod, conf);
        del_at(pod, "", conf);
    }
    assert_eq!(host(net).lines("10.9.0."), Vec::<&str>::new(), "reservations are left");
}

#[test]
fn macvlans_meet_siblings_and_peer() {
    sandbox(|net| {
        if supported(net, "macvlan") {
            // The name is taken on the host and free in the pod.
            meets_siblings_and_peer(net, &conf("macvlan", json!({"master": "eth0"}), Some("10.9.0.0/24")));
        }
    });
}

#[test]
fn macvlans_are_as_configured() {
    sandbox(|net| {
        if !supported(net, "macvlan") {
            return;
        }
        uplink(net);
        let fields = json!({"master": "eth0", "mode": "private", "mtu": 1300, "bcqueuelen": 2222,
            "runtimeConfig": {"mac": "c2:11:22:33:44:55"}, "mac": "c2:00:00:00:00:01", "dns": {"domain": "d"}});
        let conf = conf("macvlan", fields, None);
        let pod = net.container();
        let result = add(&pod, &conf);
        assert_eq!(result["interfaces"][0]["mac"], "c2:11:22:33:44:55");
        assert_eq!(result["dns"]["domain"], "d");
        let link = net.run_in(&pod, "ip", &["-d", "link", "show", "eth0"]);
        for wanted in ["mtu 1300", "mode private", "UP", "bcqueuelen 2222"] {
            assert!(link.contains(wanted), "{wanted}: {link}");
        }
        check(&pod, &conf, &result).unwrap();
        let mut other = conf.clone();
        other["mode"] = json!("vepa");
        let drift = check(&pod, &other, &result).unwrap_err();
        assert_eq!(drift["msg"], "container macvlan mode private does not match expected value: vepa");
        assert_eq!(add_error(&pod, &conf), "failed to rename macvlan to \"eth0\": file exists");
        del(&pod, &conf);
        let gone = check(&pod, &conf, &result).unwrap_err();
        assert_eq!(gone["msg"], "container Interface name in prevResult: eth0 not found");
    });
}

#[test]
fn the_parent_may_be_the_default_routes_or_in_the_pod() {
    sandbox(|net| {
        if !supported(net, "macvlan") {
            return;
        }
        let pod = net.container();
        let bare = conf("macvlan", json!({}), None);
        assert_eq!(add_error(&pod, &bare), "no default route interface found");
        uplink(net);
        net.run("ip", &["route", "add", "default", "dev", "eth0"]);
        add(&pod, &bare);
        del(&pod, &bare);
        net.run("ip", &["link", "add", "in0", "type", "veth", "peer", "name", "out0"]);
        net.run("ip", &["link", "set", "in0", "netns", &pod.id]);
        let inside = conf("macvlan", json!({"master": "in0", "linkInContainer": true}), None);
        all_or_nothing(net, &pod, &inside);
        let too_large = conf("macvlan", json!({"master": "eth0", "mtu": 9000}), None);
        assert_eq!(add_error(&pod, &too_large), "invalid MTU 9000, must be [0, master MTU(1500)]");
        assert_eq!(add_error(&pod, &conf("macvlan", json!({"master": "nope"}), None)), "Link not found");
    });
}

#[test]
fn macvlan_add_is_all_or_nothing() {
    sandbox(|net| {
        if supported(net, "macvlan") {
            uplink(net);
            let pod = net.container();
            all_or_nothing(net, &pod, &conf("macvlan", json!({"master": "eth0"}), Some("10.9.0.0/24")));
        }
    });
}

#[test]
fn ipvlans_meet_siblings_and_peer_in_layer_2() {
    sandbox(|net| {
        if supported(net, "ipvlan") {
            meets_siblings_and_peer(net, &conf("ipvlan", json!({"master": "eth0"}), Some("10.9.0.0/24")));
        }
    });
}

/// In layer 3 there is no ARP: the peer has to know its neighbours.
#[test]
fn ipvlans_of_layer_3_reach_the_peer_without_arp() {
    for mode in ["l3", "l3s"] {
        sandbox(|net| {
            if !supported(net, "ipvlan") {
                return;
            }
            let (peer, one, other) = (uplink(net), net.container(), net.container());
            let conf =
                conf("ipvlan", json!({"master": "eth0", "mode": mode, "mtu": 1400}), Some("10.9.0.0/24"));
            let (first, second) = (add(&one, &conf), add(&other, &conf));
            assert!(ping(&one.netns, address(&second).parse().unwrap()), "{mode}: siblings");
            let mac = property(&net.run("ip", &["-j", "link", "show", "eth0"]), "address");
            for result in [&first, &second] {
                let args = ["neigh", "add", &address(result), "lladdr", &mac, "dev", "eth0"];
                net.run_in(&peer, "ip", &args);
            }
            // The parent answers for itself only, so it must know the peer, too.
            let peer_mac = property(&net.run_in(&peer, "ip", &["-j", "link", "show", "eth0"]), "address");
            net.run("ip", &["neigh", "replace", "10.9.0.254", "lladdr", &peer_mac, "dev", "eth0"]);
            net.run("ip", &["route", "add", "10.9.0.254", "dev", "eth0"]);
            assert!(ping(&peer.netns, address(&first).parse().unwrap()), "{mode}: peer");
            let link = net.run_in(&one, "ip", &["-d", "link", "show", "eth0"]);
            assert!(link.contains(&format!("mode {mode} ")) && link.contains("mtu 1400"), "{link}");
            check(&one, &conf, &first).unwrap();
        });
    }
}

#[test]
fn ipvlan_takes_over_an_earlier_plugins_addresses() {
    sandbox(|net| {
        if !supported(net, "ipvlan") {
            return;
        }
        uplink(net);
        let pod = net.container();
        let mut conf = conf("ipvlan", json!({}), None);
        conf["prevResult"] = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0"}],
            "ips": [{"interface": 0, "address": "10.9.0.7/24", "gateway": "10.9.0.1"}],
            "routes": [{"dst": "0.0.0.0/0"}]});
        let result = add(&pod, &conf);
        assert_eq!(
            (address(&result).as_str(), &result["interfaces"][0]["sandbox"]),
            ("10.9.0.7", &json!(pod.path))
        );
        check(&pod, &conf, &result).unwrap();
        // Neither master nor default route: DEL needs none.
        conf.as_object_mut().unwrap().remove("prevResult");
        del(&pod, &conf);
        conf["prevResult"] = json!({"cniVersion": "1.1.0", "interfaces": []});
        let text = "chained master failure. PrevResult lacks a single named interface";
        assert_eq!(add_error(&pod, &conf), text);
    });
}

#[test]
fn ipvlan_add_is_all_or_nothing() {
    sandbox(|net| {
        if supported(net, "ipvlan") {
            uplink(net);
            let fields = json!({"master": "eth0", "mtu": 1400});
            all_or_nothing(net, &net.container(), &conf("ipvlan", fields, Some("10.9.0.0/24")));
        }
    });
}

#[test]
fn vlans_send_tagged_frames() {
    sandbox(|net| {
        if !supported(net, "vlan") {
            return;
        }
        let peer = uplink(net);
        for args in [
            "address flush dev eth0",
            "link add tagged link eth0 type vlan id 42",
            "link set tagged up",
            "address add 10.9.0.254/24 dev tagged",
        ] {
            net.run_in(&peer, "ip", &args.split(' ').collect::<Vec<_>>());
        }
        let conf = conf("vlan", json!({"master": "eth0", "vlanId": 42, "mtu": 1400}), Some("10.9.0.0/24"));
        let pod = net.container();
        let result = add(&pod, &conf);
        assert!(ping(&peer.netns, address(&result).parse().unwrap()), "the peer's tagged interface answers");
        check(&pod, &conf, &result).unwrap();
        let mut other = conf.clone();
        other["vlanId"] = json!(43);
        assert!(check(&pod, &other, &result).is_err());
        let status = call("STATUS", ("", ""), &conf, None);
        assert!(status.is_ok(), "{status:?}");
        net.run("ip", &["link", "del", "eth0"]);
        del(&pod, &conf);
    });
}

#[test]
fn vlan_add_is_all_or_nothing() {
    sandbox(|net| {
        if supported(net, "vlan") {
            uplink(net);
            let fields = json!({"master": "eth0", "vlanId": 42});
            all_or_nothing(net, &net.container(), &conf("vlan", fields, Some("10.9.0.0/24")));
        }
    });
}
