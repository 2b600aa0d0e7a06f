// SPDX-License-Identifier: Apache-2.0
//! Nomad's bridge networks, run as Nomad runs them: loopback first, all under `CNI_IFNAME=eth0`, `CNI_ARGS` full of
//! its own keys, two ports for tcp and udp, and its admin chain made by itself beforehand.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use cnibox_netns::{NetNs, create_at};
use cnibox_testkit::{
    Attachment, Chain, Container, Sandbox, Snapshot, ask_tcp, ask_udp, ping, sandbox, serve_tcp, serve_udp,
};
use serde_json::{Value, json};

const DEFAULT: &str = include_str!("nomad/default.conflist");
const IPV6: &str = include_str!("nomad/ipv6.conflist");
const MACVLAN: &str = include_str!("nomad/macvlan.conflist");
const TRANSPARENT_PROXY: &str = include_str!("nomad/transparent-proxy.conflist");
const ARGS: &str = "IgnoreUnknown=true;NOMAD_REGION=global;NOMAD_NAMESPACE=default;NOMAD_JOB_ID=web;\
NOMAD_GROUP_NAME=api;NOMAD_ALLOC_ID=5f2a;CONSUL_IPTABLES_CONFIG={\"ProxyUserID\":\"101\",\"ExcludeInboundPorts\":[\"22\"]}";
const HOST_PORT: u16 = 20080;
const POD_PORT: u16 = 8080;

/// Every version that the whole chain speaks: firewall starts with 0.4.0.
const VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];

/// A network of which the sandbox's host is one machine and `outside` another.
struct World {
    outside: NetNs,
    host_ip: IpAddr,
    host_ip6: IpAddr,
}

impl World {
    fn new(net: &Sandbox) -> Self {
        let outside = create_at("/run/netns/outside").expect("create the outside");
        let ip = |args: &str| net.run("ip", &args.split(' ').collect::<Vec<_>>());
        ip("link add uplink type veth peer name eth0 netns outside");
        ip("addr add 192.0.2.1/24 dev uplink");
        ip("addr add 2001:db8::1/64 dev uplink nodad");
        ip("link set uplink up");
        for command in [
            "link set lo up",
            "addr add 192.0.2.9/24 dev eth0",
            "addr add 2001:db8::9/64 dev eth0 nodad",
            "link set eth0 up",
        ] {
            ip(&format!("-n outside {command}"));
        }
        // As Nomad's client does before each Setup.
        for tool in ["iptables", "ip6tables"] {
            net.run(tool, &["-N", "NOMAD-ADMIN"]);
            net.run(tool, &["-A", "NOMAD-ADMIN", "-o", "nomad", "-j", "ACCEPT"]);
        }
        net.run("iptables", &["-P", "FORWARD", "DROP"]);
        let host_ip = "192.0.2.1".parse().expect("an address");
        let host_ip6 = "2001:db8::1".parse().expect("an address");
        Self { outside, host_ip, host_ip6 }
    }
}

fn chain<'a>(net: &'a Sandbox, conflist: &str, version: &str) -> Chain<'a> {
    let conflist = conflist.replace("0.4.0", version);
    let mapping = |host: u16, pod: u16, protocol: &str| json!({"hostPort": host, "containerPort": pod, "protocol": protocol});
    let mappings = json!([
        mapping(HOST_PORT, POD_PORT, "tcp"),
        mapping(HOST_PORT, POD_PORT, "udp"),
        mapping(HOST_PORT + 1, POD_PORT + 1, "tcp"),
        mapping(HOST_PORT + 1, POD_PORT + 1, "udp"),
    ]);
    // testkit splits nothing: the value reaches the plugins as it is, JSON and all.
    Chain::new(net, &conflist).capability("portMappings", mappings).args(ARGS)
}

fn address(result: &Value, v6: bool) -> IpAddr {
    let ips = result["ips"].as_array().expect("ips");
    let texts = ips.iter().filter_map(|ip| ip["address"].as_str());
    let parsed = texts.filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok());
    parsed.into_iter().find(|ip| ip.is_ipv6() == v6).expect("an address of the family")
}

fn add<'a>(chain: &'a Chain<'a>, pod: &'a Container) -> Attachment<'a> {
    chain.add(pod, "eth0").unwrap_or_else(|outcome| panic!("ADD: {}{}", outcome.stdout, outcome.stderr))
}

fn assert_traffic(world: &World, net: &Sandbox, pods: [(&Container, IpAddr); 2], host: IpAddr) {
    let [(pod, ip), (other, other_ip)] = pods;
    let any: IpAddr = if ip.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let _tcp = serve_tcp(&pod.netns, SocketAddr::new(any, POD_PORT));
    let _udp = serve_udp(&pod.netns, SocketAddr::new(any, POD_PORT));
    let outside = &world.outside;
    let through = SocketAddr::new(host, HOST_PORT);
    let from_outside = ask_tcp(outside, through).expect("outside through the host port by tcp");
    assert!(!from_outside.is_loopback(), "the pod sees who asks: {from_outside}");
    ask_udp(outside, through).expect("outside through the host port by udp");
    ask_tcp(net.netns(), through).expect("the host through its own port");
    if ip.is_ipv4() {
        ask_tcp(net.netns(), SocketAddr::new([127, 0, 0, 1].into(), HOST_PORT))
            .expect("127.0.0.1 to the port");
    }
    ask_tcp(&pod.netns, through).expect("hairpin: the pod through its own host port");
    ask_tcp(&other.netns, through).expect("another pod through the host port");
    ask_tcp(&other.netns, SocketAddr::new(ip, POD_PORT)).expect("pod to pod");
    assert!(ping(&other.netns, ip) && ping(&pod.netns, other_ip), "pods ping each other");
    let target = if ip.is_ipv4() { "192.0.2.9" } else { "2001:db8::9" }.parse().expect("an address");
    let _outside = serve_tcp(outside, SocketAddr::new(any, 9000));
    let seen = ask_tcp(&pod.netns, SocketAddr::new(target, 9000)).expect("egress");
    assert_eq!(seen, host, "egress is masqueraded");
}

/// ADD, traffic, CHECK, DEL twice; the host is then as it was, once it has what all containers share.
fn live(conflist: &str, version: &str, families: &[bool]) {
    sandbox(|net| {
        let world = World::new(net);
        let chain = chain(net, conflist, version);
        let plain = Chain::new(net, &conflist.replace("0.4.0", version)).args(ARGS);
        let (first, second) = (net.container(), net.container());
        add(&chain, &second).del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        wait_for_addresses(net);
        let before = steady(net);

        let (attachment, other) = (add(&chain, &first), add(&plain, &second));
        for v6 in families {
            let host = if *v6 { world.host_ip6 } else { world.host_ip };
            let pods = [(&first, address(&attachment.result, *v6)), (&second, address(&other.result, *v6))];
            assert_traffic(&world, net, pods, host);
        }
        for attachment in [&attachment, &other] {
            attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
        }
        for _ in 0..2 {
            attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
            other.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        }
        before.assert_same(&steady(net));
    });
}

/// Without what is to differ: the memory of the last address, and the index that says so.
fn steady(net: &Sandbox) -> Snapshot {
    net.snapshot().without("last_reserved_ip").without("/run/cnibox/host-local/")
}

/// The bridge's IPv6 address goes through duplicate address detection, which takes the kernel a second.
fn wait_for_addresses(net: &Sandbox) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while net.run("ip", &["-6", "addr", "show", "tentative"]).contains("inet6") {
        assert!(Instant::now() < deadline, "addresses stay tentative");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_default_network_lives_in_every_version() {
    for version in VERSIONS {
        live(DEFAULT, version, &[false]);
    }
}

#[test]
fn the_ipv6_network_lives_in_every_version() {
    for version in VERSIONS {
        live(IPV6, version, &[false, true]);
    }
}

/// The network as configured, and with the one address that a job asks for.
#[test]
fn the_macvlan_network_puts_jobs_on_the_machines_own_network() {
    let ipam = |conflist: &str, ipam: Value| {
        let mut conflist: Value = serde_json::from_str(conflist).expect("a conflist");
        conflist["plugins"][1]["ipam"] = ipam;
        conflist.to_string()
    };
    let route = json!([{"dst": "0.0.0.0/0", "gw": "192.0.2.9"}]);
    let fixed = ipam(MACVLAN, json!({"type": "static", "routes": route}));
    for version in VERSIONS {
        // The second address of the range: host-local hands out the one released last when all others are taken.
        neighbours(MACVLAN, version, "192.0.2.101", "");
        neighbours(&fixed, version, "192.0.2.77", ";IP=192.0.2.77/24;GATEWAY=192.0.2.9");
    }
}

/// A job with this address on the uplink's network talks to its neighbour there and goes without a trace.
fn neighbours(conflist: &str, version: &str, expected: &str, asked: &str) {
    sandbox(|net| {
        let world = World::new(net);
        let args = format!("{ARGS}{asked}");
        let chain = chain(net, conflist, version).args(&args);
        let pod = net.container();
        add(&chain, &pod).del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        let before = steady(net);
        let attachment = add(&chain, &pod);
        let ip = address(&attachment.result, false);
        assert_eq!(ip.to_string(), expected);
        let _pod = serve_tcp(&pod.netns, SocketAddr::new([0; 4].into(), POD_PORT));
        let seen = ask_tcp(&world.outside, SocketAddr::new(ip, POD_PORT)).expect("the neighbour to the job");
        assert_eq!(seen.to_string(), "192.0.2.9");
        let _outside = serve_tcp(&world.outside, SocketAddr::new([0; 4].into(), 9000));
        let neighbour = SocketAddr::new([192, 0, 2, 9].into(), 9000);
        assert_eq!(ask_tcp(&pod.netns, neighbour).expect("the job to the neighbour"), ip);
        attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
        for _ in 0..2 {
            attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
        }
        before.assert_same(&steady(net));
    });
}

/// The third-party plugin of the transparent proxy network: notes what it was given and passes prevResult on.
const RECORDER: &str = r#"#!/bin/sh
config=$(cat)
printf '%s\n' "$config" >>/run/testkit/consul.stdin
printf '%s %s\n' "$CNI_COMMAND" "$CNI_ARGS" >>/run/testkit/consul.env
[ "$CNI_COMMAND" != ADD ] || printf '%s' "$config" | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["prevResult"]))'
"#;

#[test]
fn a_chained_third_party_plugin_gets_what_nomad_promises_it() {
    sandbox(|net| {
        let world = World::new(net);
        let recorder = net.cni_path().join("consul-cni");
        fs::write(&recorder, RECORDER).expect("write the recorder");
        fs::set_permissions(&recorder, fs::Permissions::from_mode(0o755)).expect("make it executable");
        let chain = chain(net, TRANSPARENT_PROXY, "0.4.0");
        let pod = net.container();
        let attachment = add(&chain, &pod);
        let _server = serve_tcp(&pod.netns, SocketAddr::new([0; 4].into(), POD_PORT));
        ask_tcp(&world.outside, SocketAddr::new(world.host_ip, HOST_PORT)).expect("through the host port");
        attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
        attachment.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));

        let env = fs::read_to_string(net.dir().join("consul.env")).expect("the recorder ran");
        let verbs: Vec<_> = env.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(verbs, ["ADD", "CHECK", "DEL"]);
        assert!(env.contains("CONSUL_IPTABLES_CONFIG={\"ProxyUserID\""), "{env}");
        let stdin = fs::read_to_string(net.dir().join("consul.stdin")).expect("the recorder ran");
        let given: Value =
            serde_json::from_str(stdin.lines().next().expect("a configuration")).expect("JSON");
        let interfaces = given["prevResult"]["interfaces"].as_array().expect("interfaces");
        assert_eq!(interfaces[0]["name"], "nomad");
        assert_eq!(interfaces[2]["name"], "eth0");
        assert_eq!(given["prevResult"]["cniVersion"], "0.4.0");
    });
}

/// Removes one thing that ADD made.
type Damage = fn(&Sandbox, &Container, &Value);

fn shell(net: &Sandbox, command: &str) {
    net.run("sh", &["-c", command]);
}

fn delete_rule(net: &Sandbox, table: &str, pattern: &str) {
    let list = format!("iptables -t {table} -S | grep -- '{pattern}' | head -n 1 | sed 's/^-A/-D/'");
    shell(net, &format!("rule=$({list}); test -n \"$rule\"; echo \"iptables -t {table} $rule\" | sh"));
}

#[test]
fn check_names_whatever_is_missing() {
    let cases: &[(&str, Damage)] = &[
        ("172.26.64.2", |net, pod, _| {
            net.run_in(pod, "ip", &["addr", "del", "172.26.64.2/20", "dev", "eth0"]);
        }),
        ("Route", |net, pod, _| {
            net.run_in(pod, "ip", &["route", "del", "default"]);
        }),
        ("eth0", |net, pod, _| {
            net.run_in(pod, "ip", &["link", "del", "eth0"]);
        }),
        ("loopback interface is down", |net, pod, _| {
            net.run_in(pod, "ip", &["link", "set", "lo", "down"]);
        }),
        ("nomad", |net, _, result| {
            let port = result["interfaces"][1]["name"].as_str().expect("a host veth").to_owned();
            net.run("ip", &["link", "set", &port, "nomaster"]);
        }),
        ("Failed to find address", |net, _, _| shell(net, "rm /run/cni/nomad/172.26.64.2")),
        ("MASQUERADE", |net, _, _| delete_rule(net, "nat", "MASQUERADE.*")),
        ("172.26.64.2/32", |net, _, _| delete_rule(net, "nat", "POSTROUTING.*-s 172.26.64.2/32")),
        ("172.26.64.2/32", |net, _, _| delete_rule(net, "filter", "-s 172.26.64.2/32")),
        ("RELATED,ESTABLISHED", |net, _, _| delete_rule(net, "filter", "-d 172.26.64.2/32")),
        ("CNI firewall plugin rules", |net, _, _| delete_rule(net, "filter", "^-A FORWARD")),
        ("NOMAD-ADMIN", |net, _, _| delete_rule(net, "filter", "-j NOMAD-ADMIN")),
        ("CNI-DN-", |net, _, _| delete_rule(net, "nat", "-j DNAT")),
        ("CNI-HOSTPORT-DNAT", |net, _, _| delete_rule(net, "nat", "CNI-HOSTPORT-DNAT.*-j CNI-DN")),
    ];
    for (named, damage) in cases {
        sandbox(|net| {
            let _world = World::new(net);
            let chain = chain(net, DEFAULT, "1.0.0");
            let pod = net.container();
            let attachment = add(&chain, &pod);
            attachment.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
            damage(net, &pod, &attachment.result);
            let outcome =
                attachment.check().expect_err(&format!("CHECK after removing what names {named:?}"));
            let (_, message) = outcome.failure();
            assert!(message.contains(named), "{message:?} does not name {named:?}");
            attachment
                .del()
                .unwrap_or_else(|outcome| panic!("DEL after damage {named:?}: {}", outcome.stdout));
        });
    }
}
