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
}

impl Network {
    fn new(label: &'static str, plugins: Vec<Value>) -> Self {
        Self { label, name: format!("net-{label}"), plugins, ports: Value::Null }
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

/// All of them.
pub(crate) fn all() -> Vec<Network> {
    vec![v4(), dual(), native(), spoofchk(), layer2(), isolated()]
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
