// SPDX-License-Identifier: Apache-2.0
//! The networks that scenarios run on.

use serde_json::{Value, json};

/// A configuration list with what a runtime adds to it.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// What is special about it.
    pub(crate) label: &'static str,
    /// `name`.
    pub(crate) name: String,
    /// The plugins, as in a configuration list.
    pub(crate) plugins: Vec<Value>,
    /// `portMappings`, if the runtime has any.
    pub(crate) ports: Value,
    /// Shell commands that prepare the host.
    pub(crate) host: &'static str,
    /// What the kernel must have for it: a kind of link, or `filtering` bridges.
    pub(crate) needs: &'static [&'static str],
}

impl Network {
    fn new(label: &'static str, plugins: Vec<Value>) -> Self {
        let name = format!("net-{label}");
        Self { label, name, plugins, ports: Value::Null, host: "", needs: &[] }
    }

    /// The same on a host that these commands prepare.
    fn on(mut self, host: &'static str) -> Self {
        self.host = host;
        self
    }

    /// The same, where the kernel has what it needs.
    fn needing(mut self, needs: &'static [&'static str]) -> Self {
        self.needs = needs;
        self
    }

    /// The index of the plugin that makes the container's interface.
    pub(crate) fn main(&self) -> usize {
        usize::from(self.kind(0) == "loopback")
    }

    /// The configuration of the plugin that makes the container's interface.
    pub(crate) fn interface(&mut self) -> &mut Value {
        let main = self.main();
        &mut self.plugins[main]
    }

    /// The same with a last plugin that is refused, by the kernel or by itself, after everything before it has succeeded.
    pub(crate) fn broken(mut self) -> Self {
        let last = self.plugins.len() - 1;
        match self.kind(last) {
            "portmap" => self.ports = json!([{"hostPort": 70_000, "containerPort": 80, "protocol": "tcp"}]),
            "tuning" => self.plugins[last]["mac"] = json!("01:00:5e:00:00:01"),
            other => panic!("nobody knows how to make {other} fail"),
        }
        self
    }

    /// Whether the host has an end of the container's interface, which says whose it is.
    pub(crate) fn has_host_end(&self) -> bool {
        ["bridge", "ptp"].contains(&self.kind(self.main()))
    }

    /// The same with two ports for both protocols, starting at `port`.
    pub(crate) fn with_ports(mut self, port: usize) -> Self {
        let mapping = |port: usize, protocol: &str| json!({"hostPort": port, "containerPort": port % 1000 + 1, "protocol": protocol});
        self.ports = json!([
            mapping(port, "tcp"),
            mapping(port, "udp"),
            mapping(port + 1, "tcp"),
            mapping(port + 1, "udp")
        ]);
        self
    }

    /// One plugin's configuration, as libcni completes it.
    pub(crate) fn conf(&self, index: usize, prev: &Value) -> Value {
        let mut conf = self.plugins[index].clone();
        conf["cniVersion"] = json!("1.1.0");
        conf["name"] = json!(self.name);
        if !prev.is_null() {
            conf["prevResult"] = prev.clone();
        }
        if conf["type"] == "portmap" && !self.ports.is_null() {
            conf["runtimeConfig"] = json!({"portMappings": self.ports});
        }
        conf
    }

    /// The name of the plugin at `index`.
    pub(crate) fn kind(&self, index: usize) -> &str {
        self.plugins[index]["type"].as_str().expect("a plugin has a type")
    }
}

fn ipam(ranges: &Value, routes: &Value) -> Value {
    json!({"type": "host-local", "dataDir": "/run/cni", "ranges": ranges, "routes": routes})
}

fn v4_ipam() -> Value {
    ipam(&json!([[{"subnet": "10.61.0.0/16"}]]), &json!([{"dst": "0.0.0.0/0"}]))
}

fn dual_ipam() -> Value {
    ipam(
        &json!([[{"subnet": "10.62.0.0/16"}], [{"subnet": "fd00:62::/64"}]]),
        &json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]),
    )
}

fn bridge(name: &str, ipam: Value, more: &Value) -> Value {
    let mut conf = json!({"type": "bridge", "bridge": name, "isGateway": true, "ipMasq": true, "ipam": ipam});
    for (key, value) in more.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf
}

fn firewall() -> Value {
    json!({"type": "firewall", "backend": "iptables"})
}

fn portmap() -> Value {
    json!({"type": "portmap", "backend": "iptables", "snat": true, "capabilities": {"portMappings": true}})
}

/// Nomad's shape, IPv4.
pub(crate) fn v4() -> Network {
    Network::new("v4", vec![bridge("br-v4", v4_ipam(), &json!({"hairpinMode": true})), firewall(), portmap()])
        .with_ports(21_000)
}

/// Both families.
pub(crate) fn dual() -> Network {
    Network::new("dual", vec![bridge("br-dual", dual_ipam(), &json!({})), firewall(), portmap()])
        .with_ports(22_000)
}

/// Native nf_tables for masquerade and ports.
pub(crate) fn native() -> Network {
    let mut portmap = portmap();
    portmap["backend"] = json!("nftables");
    let bridge = bridge("br-nft", dual_ipam(), &json!({"ipMasqBackend": "nftables"}));
    Network::new("nft", vec![bridge, portmap]).with_ports(23_000)
}

/// MAC spoofing is checked and ports are isolated.
pub(crate) fn spoofchk() -> Network {
    let bridge = bridge("br-spoof", v4_ipam(), &json!({"macspoofchk": true, "portIsolation": true}));
    Network::new("spoof", vec![bridge])
}

/// No addresses at all.
pub(crate) fn layer2() -> Network {
    Network::new("l2", vec![json!({"type": "bridge", "bridge": "br-l2"})])
}

/// Bridges are kept apart.
pub(crate) fn isolated() -> Network {
    let mut firewall = firewall();
    firewall["ingressPolicy"] = json!("isolated");
    Network::new("isolated", vec![bridge("br-iso", dual_ipam(), &json!({})), firewall])
}

/// A link of the host for others to stand on.
const PARENT: &str = "ip link add up0 type veth peer name up1; \
    ip link set up0 up addrgenmode none; ip link set up1 up addrgenmode none";

/// Devices to be lent; [`crate::fixture::World`] chooses one for each container.
pub(crate) const DEVICES: &str = "for n in 0 1 2 3 4 5 6 7; do ip link show lent$n >/dev/null 2>&1 || \
    ip link add lend$n type veth peer name lent$n; done";

fn tuning() -> Value {
    json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "mtu": 1300, "promisc": true, "txQLen": 500})
}

fn sets(v4: &str, v6: &str) -> Value {
    ipam(&json!([[{"subnet": v4}], [{"subnet": v6}]]), &json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]))
}

/// Routed, without a bridge.
pub(crate) fn routed() -> Network {
    let ptp = json!({"type": "ptp", "ipMasq": true, "ipam": sets("10.71.0.0/16", "fd00:71::/64")});
    Network::new("ptp", vec![ptp, firewall(), portmap()]).with_ports(27_000)
}

/// On top of a link of the host.
pub(crate) fn stacked() -> Network {
    let macvlan = json!({"type": "macvlan", "master": "up0", "ipam": sets("10.72.0.0/16", "fd00:72::/64")});
    Network::new("macvlan", vec![macvlan, tuning()]).on(PARENT)
}

/// Addresses that the configuration chooses, and a routing table for them.
pub(crate) fn fixed() -> Network {
    let ipam = json!({"type": "static", "addresses": [{"address": "10.73.0.9/16", "gateway": "10.73.0.1"}],
        "routes": [{"dst": "0.0.0.0/0"}]});
    let macvlan = json!({"type": "macvlan", "master": "up0", "ipam": ipam});
    Network::new("static", vec![macvlan, json!({"type": "sbr"})]).on(PARENT)
}

/// A TAP device.
pub(crate) fn tap() -> Network {
    let tap = json!({"type": "tap", "ipam": sets("10.74.0.0/16", "fd00:74::/64")});
    Network::new("tap", vec![tap, tuning()])
}

/// A device of the host.
pub(crate) fn lent() -> Network {
    let device = json!({"type": "host-device", "device": "@", "ipam": sets("10.75.0.0/16", "fd00:75::/64")});
    Network::new("host-device", vec![device, tuning()]).on(DEVICES)
}

/// Everything that can follow a bridge.
pub(crate) fn laden() -> Network {
    let limits = json!({"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 8_000_000,
        "egressRate": 8_000_000, "egressBurst": 8_000_000});
    let lo = json!({"type": "loopback"});
    let ipam = sets("10.76.0.0/16", "fd00:76::/64");
    let bridge = bridge("br-laden", ipam, &json!({"hairpinMode": true}));
    Network::new("laden", vec![lo, bridge, limits, tuning(), firewall(), portmap()]).with_ports(28_000)
}

fn dummy() -> Network {
    let dummy = json!({"type": "dummy", "ipam": sets("10.81.0.0/16", "fd00:81::/64")});
    Network::new("dummy", vec![dummy, tuning()]).needing(&["dummy"])
}

fn tagged() -> Network {
    let vlan =
        json!({"type": "vlan", "master": "up0", "vlanId": "@", "ipam": sets("10.82.0.0/16", "fd00:82::/64")});
    let mut tuning = tuning();
    // The kernel leaves the parent promiscuous when a VLAN is deleted that is, also with `ip link del`.
    tuning["promisc"] = json!(false);
    Network::new("vlan", vec![vlan, tuning]).on(PARENT).needing(&["vlan"])
}

fn shared_mac() -> Network {
    let ipvlan =
        json!({"type": "ipvlan", "master": "up0", "mtu": 1400, "ipam": sets("10.83.0.0/16", "fd00:83::/64")});
    Network::new("ipvlan", vec![ipvlan]).on(PARENT).needing(&["ipvlan"])
}

fn enslaved() -> Network {
    let macvlan = json!({"type": "macvlan", "master": "up0", "ipam": sets("10.84.0.0/16", "fd00:84::/64")});
    Network::new("vrf", vec![macvlan, json!({"type": "vrf", "vrfname": "blue"})]).on(PARENT).needing(&["vrf"])
}

/// The bridge's MAC would be that of any port, and CHECK fails when that one goes.
fn filtering() -> Network {
    let settled =
        "ip link add br-vlan address 02:00:00:00:85:01 type bridge vlan_filtering 1 2>/dev/null || true";
    let vlans = json!({"vlan": 10, "vlanTrunk": [{"minID": 20, "maxID": 22}]});
    let bridge = bridge("br-vlan", sets("10.85.0.0/16", "fd00:85::/64"), &vlans);
    Network::new("bridge-vlan", vec![bridge, firewall()]).on(settled).needing(&["filtering"])
}

/// All that every kernel has the parts for.
pub(crate) fn all() -> Vec<Network> {
    vec![
        v4(),
        dual(),
        native(),
        spoofchk(),
        layer2(),
        isolated(),
        routed(),
        stacked(),
        fixed(),
        tap(),
        lent(),
        laden(),
    ]
}

/// Those that not every kernel has the parts for.
pub(crate) fn rare() -> Vec<Network> {
    vec![dummy(), tagged(), shared_mac(), enslaved(), filtering()]
}

/// Another network of the same shape as [`v4`].
pub(crate) fn v4_elsewhere() -> Network {
    let ipam = ipam(&json!([[{"subnet": "10.69.0.0/16"}]]), &json!([{"dst": "0.0.0.0/0"}]));
    Network::new(
        "elsewhere",
        vec![bridge("br-else", ipam, &json!({"macspoofchk": true})), firewall(), portmap()],
    )
    .with_ports(26_000)
}
