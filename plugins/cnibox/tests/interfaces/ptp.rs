// SPDX-License-Identifier: Apache-2.0
//! ptp: through the host into the world, with and without masquerade.

use cnibox_testkit::{Container, Sandbox, ask_tcp, ping, sandbox, serve_tcp};
use serde_json::json;

use crate::world::{
    add, add_error, address, all_or_nothing, check, collect, conf, del, del_at, property, state,
};

/// A machine outside, 192.0.2.2, which knows the way back to 10.9.0.0/24.
fn outside(net: &Sandbox) -> Container {
    let outside = net.container();
    net.run("ip", &["link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", &outside.id]);
    net.run("ip", &["address", "add", "192.0.2.1/24", "dev", "up0"]);
    net.run("ip", &["link", "set", "up0", "up"]);
    for args in [
        "link set lo up",
        "link set eth0 up",
        "address add 192.0.2.2/24 dev eth0",
        "route add default via 192.0.2.1",
    ] {
        net.run_in(&outside, "ip", &args.split(' ').collect::<Vec<_>>());
    }
    outside
}

#[test]
fn the_world_is_reached_through_the_host_masqueraded_on_demand() {
    sandbox(|net| {
        let outside = outside(net);
        let server = serve_tcp(&outside.netns, "192.0.2.2:7000".parse().unwrap());
        for (masquerade, backend) in [(false, "iptables"), (true, "iptables"), (true, "nftables")] {
            let pod = net.container();
            let fields = json!({"ipMasq": masquerade, "ipMasqBackend": backend, "mtu": 1400});
            let conf = conf("ptp", fields, Some("10.9.0.0/24"));
            let result = add(&pod, &conf);
            let seen = if masquerade { "192.0.2.1".to_owned() } else { address(&result) };
            assert_eq!(ask_tcp(&pod.netns, server.addr).unwrap().to_string(), seen, "{backend}");
            assert!(ping(net.netns(), address(&result).parse().unwrap()));
            check(&pod, &conf, &result).unwrap();
            assert_eq!(result["interfaces"][1]["sandbox"], json!(pod.path));
            assert_eq!(result["ips"][0]["interface"], 1);
            let link = net.run_in(&pod, "ip", &["link", "show", "eth0"]);
            assert!(link.contains("mtu 1400"), "{link}");
            del(&pod, &conf);
        }
    });
}

#[test]
fn two_pods_of_one_subnet_meet_on_the_host() {
    sandbox(|net| {
        let (one, other) = (net.container(), net.container());
        let conf = conf("ptp", json!({}), Some("10.9.0.0/24"));
        add(&one, &conf);
        let result = add(&other, &conf);
        assert!(ping(&one.netns, address(&result).parse().unwrap()));
        let routes = net.run_in(&one, "ip", &["route"]);
        assert!(routes.contains("10.9.0.1 dev eth0 scope link src 10.9.0.2"), "{routes}");
        assert!(routes.contains("10.9.0.0/24 via 10.9.0.1 dev eth0 src 10.9.0.2"), "{routes}");
    });
}

/// The container looks for duplicates for three seconds, the host for one: who begins with the host is done with it.
#[test]
fn the_gateway_of_ipv6_answers_when_add_returns() {
    sandbox(|net| {
        let pod = net.container();
        net.run_in(&pod, "sysctl", &["-qw", "net.ipv6.conf.default.dad_transmits=3"]);
        let ranges = json!([[{"subnet": "fd00:9::/64"}]]);
        let conf = conf("ptp", json!({"ipam": {"type": "host-local", "ranges": ranges}}), None);
        let host = add(&pod, &conf)["interfaces"][0]["name"].as_str().unwrap().to_owned();
        let gateway = net.run("ip", &["address", "show", "dev", &host, "to", "fd00:9::1"]);
        assert!(gateway.contains("fd00:9::1/128") && !gateway.contains("tentative"), "{gateway}");
        assert!(ping(&pod.netns, "fd00:9::1".parse().unwrap()));
    });
}

#[test]
fn add_is_all_or_nothing() {
    for backend in ["iptables", "nftables"] {
        sandbox(|net| {
            let fields = json!({"ipMasq": true, "ipMasqBackend": backend});
            all_or_nothing(net, &net.container(), &conf("ptp", fields, Some("10.9.0.0/24")));
        });
    }
}

#[test]
fn nothing_outlives_a_lost_namespace() {
    sandbox(|net| {
        let (pod, conf) = (net.container(), conf("ptp", json!({"ipMasq": true}), Some("10.9.0.0/24")));
        add(&pod, &conf);
        del(&pod, &conf);
        let (before, _) = state(net, &pod);
        for netns in ["", "/run/netns/gone"] {
            // The namespace itself is still held open here, and the pair lives.
            add(&pod, &conf);
            del_at(&pod, netns, &conf);
            before.assert_same(&state(net, &pod).0);
        }
        add(&pod, &conf);
        collect(&conf);
        before.assert_same(&state(net, &pod).0);
    });
}

#[test]
fn a_failed_chain_is_started_again() {
    sandbox(|net| {
        let (pod, conf) = (net.container(), conf("ptp", json!({}), Some("10.9.0.0/24")));
        let result = add(&pod, &conf);
        assert!(add_error(&pod, &conf).contains("duplicate allocation"));
        let host = result["interfaces"][0]["name"].as_str().unwrap().to_owned();
        let alias = property(&net.run("ip", &["-j", "link", "show", &host]), "ifalias");
        net.run("ip", &["link", "set", &host, "alias", &alias.replace(":ready:", ":failed:")]);
        let again = add(&pod, &conf);
        assert_ne!(again["interfaces"][0]["name"], json!(host));
        check(&pod, &conf, &again).unwrap();
    });
}
