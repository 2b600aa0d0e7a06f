// SPDX-License-Identifier: Apache-2.0
//! The parts of a network configuration that every interface plugin has, as they are on the wire.

use cnibox_spec::{Dns, Json};
use serde::Deserialize;

/// `ipam`, as far as the plugin that calls it cares.
#[derive(Default, Deserialize)]
#[serde(rename = "IPAM", default)]
pub struct IpamShape {
    #[serde(rename = "type")]
    plugin: String,
    /// An option of our `dhcp`: the names of the lease are wanted. Other plugins may mean anything by it.
    #[serde(rename = "useDNS")]
    use_dns: Json,
}

impl IpamShape {
    /// The IPAM plugin's name, if there is to be one.
    #[must_use]
    pub fn into_plugin(self) -> Option<String> {
        Some(self.plugin).filter(|plugin| !plugin.is_empty())
    }

    /// What takes the place of the IPAM plugin's DNS in plugins that always replace it: the network's own, and nothing
    /// where it has none. `None` leaves it as it is, which only those get who ask for it.
    #[must_use]
    pub fn dns_instead(&self, configured: DnsShape) -> Option<Dns> {
        let configured = configured.into_dns();
        if self.use_dns == Json::Bool(true) { configured } else { Some(configured.unwrap_or_default()) }
    }
}

/// `dns`. An empty list counts as set, so it is kept apart from an absent one.
#[derive(Default, Deserialize)]
#[serde(rename = "DNS", default)]
pub struct DnsShape {
    nameservers: Option<Vec<String>>,
    domain: String,
    search: Option<Vec<String>>,
    options: Option<Vec<String>>,
}

impl DnsShape {
    /// The configured DNS; `None` when nothing of it is set.
    #[must_use]
    pub fn into_dns(self) -> Option<Dns> {
        let set = self.nameservers.is_some()
            || self.search.is_some()
            || self.options.is_some()
            || !self.domain.is_empty();
        set.then(|| Dns {
            nameservers: self.nameservers.unwrap_or_default(),
            domain: self.domain,
            search: self.search.unwrap_or_default(),
            options: self.options.unwrap_or_default(),
        })
    }
}

/// `runtimeConfig`, as far as it is about the container's MAC.
#[derive(Default, Deserialize)]
#[serde(rename = "struct { Mac string \"json:\\\"mac,omitempty\\\"\" }", default)]
pub struct MacShape {
    /// The MAC; empty when not set.
    pub mac: String,
}
