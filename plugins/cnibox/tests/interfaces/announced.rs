// SPDX-License-Identifier: Apache-2.0
//! bridge: an address that another container had before.

use cnibox_testkit::{Container, has_ipv6, in_netns, ping, sandbox};
use serde_json::{Value, json};

use crate::world::{add, conf, del};

/// Two addresses of each family: one for a container that stays, one for those that come and go.
fn crowded() -> Value {
    let mut ranges =
        vec![json!([{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.5", "rangeEnd": "10.9.0.6"}])];
    if has_ipv6() {
        ranges.push(json!([{"subnet": "fd00:9::/64", "rangeStart": "fd00:9::5", "rangeEnd": "fd00:9::6"}]));
    }
    conf(
        "bridge",
        json!({"bridge": "br0", "isGateway": true, "ipam": {"type": "host-local", "ranges": ranges}}),
        None,
    )
}

fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap();
    ips.iter().map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect()
}

/// Whoever remembers the last owner of an address as its neighbour goes on sending to that one until it doubts.
#[test]
fn an_address_that_was_anothers_is_reached_at_once() {
    sandbox(|net| {
        let conf = crowded();
        if has_ipv6() {
            // The gateway is to answer from the start.
            net.run("sysctl", &["-qw", "net.ipv6.conf.default.accept_dad=0"]);
        }
        let neighbour = net.container();
        add(&neighbour, &conf);
        let known = |pod: &Container, addresses: &[String]| {
            for address in addresses.iter().map(|address| address.parse().unwrap()) {
                assert!(ping(net.netns(), address), "{} from the host, {address}", pod.id);
                assert!(ping(&neighbour.netns, address), "{} from its neighbour, {address}", pod.id);
            }
        };
        let mut former = Vec::new();
        for _ in 0..3 {
            let pod = net.container();
            let own = addresses(&add(&pod, &conf));
            assert!(former.is_empty() || own == former, "{own:?}");
            known(&pod, &own);
            if has_ipv6() {
                let notify = "/proc/sys/net/ipv6/conf/eth0/ndisc_notify";
                assert_eq!(in_netns(&pod.netns, || std::fs::read_to_string(notify)).unwrap(), "0\n");
            }
            del(&pod, &conf);
            former = own;
        }
    });
}
