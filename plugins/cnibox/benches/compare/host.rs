// SPDX-License-Identifier: Apache-2.0
//! One side's host: its pods, and the networks that are measured.

use std::path::{Path, PathBuf};

use crate::chain::Chain;
use anyhow::{Context, Result};
use cnibox_netns::create_at;
use cnibox_testkit::Sandbox;
use serde_json::{Value, json};

/// The address that ports are published on.
const HOST_ADDRESS: &str = "192.0.2.1";
const FIRST_PORT: usize = 2000;

/// A pod: unlike the test kit's, of the same name on every side, and without an open descriptor for each of thousands.
#[derive(Debug)]
pub(crate) struct Pod {
    /// Counts from zero.
    pub(crate) number: usize,
    /// Container ID, as long as Nomad's.
    pub(crate) id: String,
    /// The bound namespace.
    pub(crate) path: PathBuf,
    /// `portMappings` of the runtime.
    pub(crate) ports: Value,
}

impl Pod {
    /// Makes the namespace of the pod of this number; it lives as long as the sandbox, because tearing namespaces down
    /// would disturb the next measurement. The runtime asks for `ports` ports, for TCP and UDP each.
    pub(crate) fn new(number: usize, ports: usize) -> Result<Self> {
        let id = format!("6f1b0c5e-8a5c-4a1e-9d3a-{number:012}");
        let path = Path::new("/run/netns").join(&id);
        create_at(&path).context("create a pod's namespace")?;
        Ok(Self { number, id, path, ports: mappings(number, ports) })
    }
}

fn mappings(pod: usize, ports: usize) -> Value {
    // Ports are used again by pods far apart, which are never there at the same time.
    let first = FIRST_PORT + pod * ports % 60_000;
    let both = (first..first + ports).flat_map(|port| ["tcp", "udp"].map(|protocol| (port, protocol)));
    both.map(|(port, protocol)| {
        json!({"hostPort": port, "containerPort": port, "protocol": protocol, "hostIP": HOST_ADDRESS})
    })
    .collect()
}

/// Gives the host the address that ports are published on.
pub(crate) fn prepare(net: &Sandbox) {
    net.run("ip", &["address", "add", &format!("{HOST_ADDRESS}/32"), "dev", "lo"]);
}

/// A network to measure, and whether its host has iptables.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    name: &'static str,
    list: Value,
    /// How many ports every pod publishes.
    pub(crate) ports: usize,
    iptables: bool,
}

impl Network {
    /// For people.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The chain of a side's plugins, for a sandbox.
    pub(crate) fn chain(&self, net: &Sandbox, bin: &Path) -> Result<Chain> {
        let chain = Chain::new(bin, self.list.clone());
        if self.iptables { Ok(chain) } else { chain.without_iptables(net) }
    }

    /// The names of the plugins, in order.
    pub(crate) fn plugins(&self) -> Vec<String> {
        let all = self.list.get("plugins").and_then(Value::as_array).into_iter().flatten();
        all.filter_map(|plugin| plugin.get("type")?.as_str().map(str::to_owned)).collect()
    }
}

/// What Nomad runs for every allocation.
pub(crate) fn nomad() -> Network {
    let list = json!({"cniVersion": "0.4.0", "name": "nomad", "plugins": [
        {"type": "loopback"},
        {"type": "bridge", "bridge": "nomad", "ipMasq": true, "isGateway": true, "forceAddress": true,
         "hairpinMode": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "172.26.64.0/20"}]],
         "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni"}},
        {"type": "firewall", "backend": "iptables", "iptablesAdminChainName": "NOMAD-ADMIN"},
        {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
    ]});
    Network { name: "Nomad's chain", list, ports: 2, iptables: true }
}

/// IPv4 and IPv6 with the nftables backends, on a host without iptables.
pub(crate) fn dual_stack() -> Network {
    let list = json!({"cniVersion": "1.0.0", "name": "dual", "plugins": [
        {"type": "loopback"},
        {"type": "bridge", "bridge": "dual0", "ipMasq": true, "ipMasqBackend": "nftables", "isDefaultGateway": true,
         "ipam": {"type": "host-local", "dataDir": "/run/cni",
         "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true, "backend": "nftables"},
    ]});
    Network { name: "Dual stack, 20 ports, nftables", list, ports: 20, iptables: false }
}
