// SPDX-License-Identifier: Apache-2.0
//! A host between a machine outside and Nomad's jobs, and the traffic that must pass.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use cnibox_netns::NetNs;
use cnibox_testkit::{
    Attachment, Chain, Container, Sandbox, Snapshot, ask_tcp, ask_udp, create_at, has_ipv6, ping, serve_tcp,
    serve_udp,
};
use serde_json::{Value, json};

pub(crate) const ARGS: &str = "IgnoreUnknown=true;NOMAD_REGION=global;NOMAD_NAMESPACE=default;NOMAD_JOB_ID=web;\
NOMAD_GROUP_NAME=api;NOMAD_ALLOC_ID=5f2a;CONSUL_IPTABLES_CONFIG={\"ProxyUserID\":\"101\",\"ExcludeInboundPorts\":[\"22\"]}";
pub(crate) const HOST_PORT: u16 = 20080;
pub(crate) const POD_PORT: u16 = 8080;

/// A network of which the sandbox's host is one machine and `outside` another.
pub(crate) struct World {
    pub(crate) outside: NetNs,
    pub(crate) host_ip: IpAddr,
    pub(crate) host_ip6: IpAddr,
}

impl World {
    pub(crate) fn new(net: &Sandbox) -> Self {
        let outside = create_at("/run/netns/outside").expect("create the outside");
        let ip = |args: &str| net.run("ip", &args.split(' ').collect::<Vec<_>>());
        ip("link add uplink type veth peer name eth0 netns outside");
        ip("addr add 192.0.2.1/24 dev uplink");
        ip("link set uplink up");
        for command in ["link set lo up", "addr add 192.0.2.9/24 dev eth0", "link set eth0 up"] {
            ip(&format!("-n outside {command}"));
        }
        if has_ipv6() {
            ip("addr add 2001:db8::1/64 dev uplink nodad");
            ip("-n outside addr add 2001:db8::9/64 dev eth0 nodad");
        }
        // Where the kernel has no packet filter it is the plugins' turn to say so.
        if net.succeeds("iptables", &["-S"]) {
            Self::filter(net);
        }
        let host_ip = "192.0.2.1".parse().expect("an address");
        let host_ip6 = "2001:db8::1".parse().expect("an address");
        Self { outside, host_ip, host_ip6 }
    }

    /// As Nomad's client does before each Setup, on a host that forwards nothing by itself.
    fn filter(net: &Sandbox) {
        for tool in if has_ipv6() { &["iptables", "ip6tables"][..] } else { &["iptables"] } {
            net.run(tool, &["-N", "NOMAD-ADMIN"]);
            net.run(tool, &["-A", "NOMAD-ADMIN", "-o", "nomad", "-j", "ACCEPT"]);
        }
        net.run("iptables", &["-P", "FORWARD", "DROP"]);
    }
}

pub(crate) fn chain<'a>(net: &'a Sandbox, conflist: &str, version: &str) -> Chain<'a> {
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

pub(crate) fn address(result: &Value, v6: bool) -> IpAddr {
    let ips = result["ips"].as_array().expect("ips");
    let texts = ips.iter().filter_map(|ip| ip["address"].as_str());
    let parsed = texts.filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok());
    parsed.into_iter().find(|ip| ip.is_ipv6() == v6).expect("an address of the family")
}

pub(crate) fn add<'a>(chain: &'a Chain<'a>, pod: &'a Container) -> Attachment<'a> {
    chain.add(pod, "eth0").unwrap_or_else(|outcome| panic!("ADD: {}{}", outcome.stdout, outcome.stderr))
}

pub(crate) fn assert_traffic(world: &World, net: &Sandbox, pods: [(&Container, IpAddr); 2], host: IpAddr) {
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
pub(crate) fn live(net: &Sandbox, conflist: &str, version: &str, families: &[bool]) {
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
}

/// Without what is to differ: the memory of the last address, and the index that says so.
pub(crate) fn steady(net: &Sandbox) -> Snapshot {
    net.snapshot().without("last_reserved_ip").without("/run/cnibox/host-local/")
}

/// The bridge's IPv6 address goes through duplicate address detection, which takes the kernel a second.
pub(crate) fn wait_for_addresses(net: &Sandbox) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while has_ipv6() && net.run("ip", &["-6", "addr", "show", "tentative"]).contains("inet6") {
        assert!(Instant::now() < deadline, "addresses stay tentative");
        std::thread::sleep(Duration::from_millis(20));
    }
}
