// SPDX-License-Identifier: Apache-2.0
//! One side's host, and the networks that are measured.

use std::path::Path;

use anyhow::Result;
use cnibox_testkit::Sandbox;
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::pod::HOST_ADDRESS;

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
