// SPDX-License-Identifier: Apache-2.0
//! A network as Nomad documents it for containers on the machine's own LAN: macvlan, addresses from the LAN's DHCP
//! server, host ports. Real processes, dnsmasq as the server.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use cnibox_testkit::{Chain, Container, Process, Sandbox, has_ipv6, ping, sandbox, skip};
use serde_json::json;

use crate::world::supported;

const CONFLIST: &str = include_str!("../nomad/macvlan-dhcp.conflist");
const ARGS: &str = "IgnoreUnknown=true;NOMAD_JOB_ID=web;NOMAD_GROUP_NAME=api;NOMAD_ALLOC_ID=5f2a";

#[track_caller]
fn eventually(what: &str, done: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The machine's `uplink` and, on its other end, the router with the server; `None` after a skip.
fn router(net: &Sandbox) -> Option<(Container, Process)> {
    let router = net.container();
    net.run("ip", &["link", "add", "uplink", "type", "veth", "peer", "name", "lan", "netns", &router.id]);
    if has_ipv6() {
        net.run("ip", &["link", "set", "uplink", "addrgenmode", "none"]);
    }
    net.run("ip", &["link", "set", "uplink", "up"]);
    for args in ["link set lan up", "address add 10.9.0.254/24 dev lan"] {
        net.run_in(&router, "ip", &args.split(' ').collect::<Vec<_>>());
    }
    let mut command = Command::new("dnsmasq");
    command
        .args(["--no-daemon", "--port=0", "--conf-file=/dev/null", "--no-ping", "--pid-file="])
        .args(["--dhcp-authoritative", "--interface=lan", "--dhcp-range=10.9.0.10,10.9.0.20,120"])
        .args(["--dhcp-option=6,10.9.0.254", "--dhcp-option=15,example.org"])
        .arg(format!("--dhcp-leasefile={}", net.dir().join("leases").display()));
    let Ok(server) = Process::start_in(&router, &mut command) else {
        skip("dnsmasq is not installed");
        return None;
    };
    Some((router, server))
}

fn daemon(net: &Sandbox) -> Process {
    let mut command = Command::new(net.cni_path().join("dhcp"));
    command.args(["daemon", "-timeout", "1s"]);
    Process::start(&mut command).unwrap().listening("/run/cni/dhcp.sock")
}

fn leases(net: &Sandbox) -> usize {
    fs::read_to_string(net.dir().join("leases")).unwrap_or_default().lines().count()
}

#[test]
fn nomads_macvlan_network_has_addresses_of_the_lan_and_host_ports() {
    sandbox(|net| {
        if !supported(net, "macvlan") {
            return;
        }
        let Some((router, _server)) = router(net) else { return };
        let _daemon = daemon(net);
        let ports = json!([{"hostPort": 20080, "containerPort": 8080, "protocol": "tcp"}]);
        let chain = Chain::new(net, CONFLIST).capability("portMappings", ports).args(ARGS);
        let (one, other) = (net.container(), net.container());
        let rules = || net.snapshot().lines("20080").len();
        for pod in [&one, &other] {
            let attachment =
                chain.add(pod, "eth0").unwrap_or_else(|outcome| panic!("ADD: {}", outcome.stdout));
            let result = &attachment.result;
            let address = result["ips"][0]["address"].as_str().unwrap();
            let ip = address.strip_suffix("/24").unwrap().parse().unwrap();
            assert_eq!(result["ips"][0]["gateway"], "10.9.0.254");
            assert_eq!(result["dns"], json!({"nameservers": ["10.9.0.254"], "domain": "example.org"}));
            assert_eq!(leases(net), 1);
            assert!(ping(&router.netns, ip), "the LAN reaches the container at {ip}");
            assert!(ping(&pod.netns, [10, 9, 0, 254].into()), "the container reaches the LAN");
            assert!(rules() > 0, "the host port is forwarded");
            attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
            for _ in 0..2 {
                attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
            }
            eventually("the lease is given back", || leases(net) == 0);
            assert_eq!((rules(), fs::exists("/run/cnibox/dhcp").unwrap()), (0, false));
        }
    });
}
