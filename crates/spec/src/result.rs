// SPDX-License-Identifier: Apache-2.0
//! The result that plugins work with: always the shape of CNI 1.1. Older shapes exist only on the wire
//! (`wire`).

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::ip::{cidr, net_addr};

/// What ADD made, and what prevResult says that earlier plugins made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename = "Result", default)]
pub struct CniResult {
    /// Interfaces in the order their makers listed them; [`IpConfig::interface`] counts in here.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<IpConfig>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Name resolution.
    pub dns: Dns,
}

impl CniResult {
    /// The interface that the address is on; `None` if it is on none in particular, or on one that is not listed.
    #[must_use]
    pub fn interface_of(&self, ip: &IpConfig) -> Option<&Interface> {
        self.interfaces.get(usize::try_from(ip.interface?).ok()?)
    }
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Interface", default)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The MAC address as text, lower-case with colons; empty when unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// MTU in bytes; 0 when not reported.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: i64,
    /// Path of the network namespace; empty for the host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// Path of a vhost-user socket (CNI 1.1).
    #[serde(rename = "socketPath", skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    /// PCI address of the device (CNI 1.1).
    #[serde(rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "ipConfig")]
pub struct IpConfig {
    /// Index into [`CniResult::interfaces`]; absent and 0 are different things.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<i64>,
    /// The address with its prefix length.
    #[serde(with = "cidr")]
    pub address: IpNetwork,
    /// The gateway of the address's subnet.
    #[serde(default, deserialize_with = "net_addr", skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "types.route")]
pub struct Route {
    /// Destination.
    #[serde(with = "cidr")]
    pub dst: IpNetwork,
    /// Next hop; absent means the family's gateway.
    #[serde(default, deserialize_with = "net_addr", skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Path MTU in bytes; 0 when not set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtu: i64,
    /// Advertised MSS in bytes; 0 when not set.
    #[serde(rename = "advmss", default, skip_serializing_if = "is_zero")]
    pub adv_mss: i64,
    /// Metric; 0 when not set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i64,
    /// Routing table; absent means main, an explicit 0 is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<i64>,
    /// Route scope (rtnetlink number); absent means universe, an explicit 0 is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<i64>,
}

impl Route {
    /// A route to `dst` by `gw` and nothing else.
    #[must_use]
    pub fn new(dst: IpNetwork, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, mtu: 0, adv_mss: 0, priority: 0, table: None, scope: None }
    }
}

/// Name resolution, the `dns` object of configurations and results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "types.DNS", default)]
pub struct Dns {
    /// Name servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Dns {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks of skip_serializing_if")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}
