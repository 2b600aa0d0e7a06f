// SPDX-License-Identifier: Apache-2.0
//! The shapes of 0.3.0 and later: lists of interfaces, addresses and routes.
//!
//! Both are read by one structure, since unknown keys are ignored. They are printed by two: before 1.0 in the
//! reference's field order, from 1.0 on alphabetically (the reference takes a trip through a map there).

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize, Serializer};

use crate::{Cidr, CniResult, CniVersion, Dns, Interface, IpConfig, NetAddr, Route};

/// `Result` of `pkg/types/040` and `pkg/types/100`, as read.
#[derive(Default, Deserialize)]
#[serde(rename = "Result", default)]
pub(super) struct ResultIn {
    interfaces: Vec<InterfaceIn>,
    ips: Vec<IpConfigIn>,
    routes: Vec<RouteIn>,
    dns: Dns,
}

#[derive(Default, Deserialize)]
#[serde(rename = "Interface", default)]
struct InterfaceIn {
    name: String,
    mac: String,
    mtu: i64,
    sandbox: String,
    #[serde(rename = "socketPath")]
    socket_path: String,
    #[serde(rename = "pciID")]
    pci_id: String,
}

#[derive(Deserialize)]
#[serde(rename = "ipConfig")]
struct IpConfigIn {
    #[serde(default)]
    interface: Option<i64>,
    address: Cidr,
    #[serde(default)]
    gateway: NetAddr,
}

/// A route object, in results and in IPAM configurations alike.
#[derive(Deserialize)]
#[serde(rename = "types.route")]
pub(crate) struct RouteIn {
    dst: Cidr,
    #[serde(default)]
    gw: NetAddr,
    #[serde(default)]
    mtu: i64,
    #[serde(default)]
    advmss: i64,
    #[serde(default)]
    priority: i64,
    #[serde(default)]
    table: Option<i64>,
    #[serde(default)]
    scope: Option<i64>,
}

impl From<ResultIn> for CniResult {
    fn from(from: ResultIn) -> Self {
        Self {
            interfaces: from.interfaces.into_iter().map(Into::into).collect(),
            ips: from.ips.into_iter().map(Into::into).collect(),
            routes: from.routes.into_iter().map(Into::into).collect(),
            dns: from.dns,
        }
    }
}

impl From<InterfaceIn> for Interface {
    fn from(from: InterfaceIn) -> Self {
        let InterfaceIn { name, mac, mtu, sandbox, socket_path, pci_id } = from;
        Self { name, mac, mtu, sandbox, socket_path, pci_id }
    }
}

impl From<IpConfigIn> for IpConfig {
    fn from(from: IpConfigIn) -> Self {
        Self { interface: from.interface, address: from.address.0, gateway: from.gateway.0 }
    }
}

impl From<RouteIn> for Route {
    fn from(from: RouteIn) -> Self {
        Self {
            dst: from.dst.0,
            gw: from.gw.0,
            mtu: from.mtu,
            adv_mss: from.advmss,
            priority: from.priority,
            table: from.table,
            scope: from.scope,
        }
    }
}

impl<'de> Deserialize<'de> for Route {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RouteIn::deserialize(deserializer).map(Into::into)
    }
}

/// `Result` of `pkg/types/040`.
#[derive(Serialize)]
pub(super) struct Result04<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface04<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<IpConfig04>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route04>,
    dns: &'a Dns,
}

#[derive(Serialize)]
struct Interface04<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    mac: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    sandbox: &'a str,
}

#[derive(Serialize)]
struct IpConfig04 {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<i64>,
    address: Cidr,
    #[serde(skip_serializing_if = "NetAddr::is_unset")]
    gateway: NetAddr,
}

#[derive(Serialize)]
struct Route04 {
    dst: Cidr,
    #[serde(skip_serializing_if = "NetAddr::is_unset")]
    gw: NetAddr,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: i64,
    #[serde(skip_serializing_if = "is_zero")]
    advmss: i64,
    #[serde(skip_serializing_if = "is_zero")]
    priority: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<i64>,
}

impl<'a> Result04<'a> {
    pub(super) fn new(version: CniVersion, result: &'a CniResult) -> Self {
        let interface = |i: &'a Interface| Interface04 { name: &i.name, mac: &i.mac, sandbox: &i.sandbox };
        let ip = |ip: &IpConfig| IpConfig04 {
            version: if is_v4(&ip.address) { "4" } else { "6" },
            interface: ip.interface,
            address: Cidr(ip.address),
            gateway: NetAddr(ip.gateway),
        };
        let route = |r: &Route| Route04 {
            dst: Cidr(r.dst),
            gw: NetAddr(r.gw),
            mtu: r.mtu,
            advmss: r.adv_mss,
            priority: r.priority,
            table: r.table,
            scope: r.scope,
        };
        Self {
            cni_version: version.as_str(),
            interfaces: result.interfaces.iter().map(interface).collect(),
            ips: result.ips.iter().map(ip).collect(),
            routes: result.routes.iter().map(route).collect(),
            dns: &result.dns,
        }
    }
}

/// `Result` of `pkg/types/100`; fields in alphabetical order, like those of its parts.
#[derive(Serialize)]
pub(super) struct Result1<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<Dns1<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface1<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<IpConfig1>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route1>,
}

#[derive(Serialize)]
struct Dns1<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    nameservers: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    options: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    search: &'a [String],
}

#[derive(Serialize)]
struct Interface1<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    mac: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: i64,
    name: &'a str,
    #[serde(rename = "pciID", skip_serializing_if = "str::is_empty")]
    pci_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    sandbox: &'a str,
    #[serde(rename = "socketPath", skip_serializing_if = "str::is_empty")]
    socket_path: &'a str,
}

#[derive(Serialize)]
struct IpConfig1 {
    address: Cidr,
    #[serde(skip_serializing_if = "NetAddr::is_unset")]
    gateway: NetAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<i64>,
}

#[derive(Serialize)]
struct Route1 {
    #[serde(skip_serializing_if = "is_zero")]
    advmss: i64,
    dst: Cidr,
    #[serde(skip_serializing_if = "NetAddr::is_unset")]
    gw: NetAddr,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: i64,
    #[serde(skip_serializing_if = "is_zero")]
    priority: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<i64>,
}

impl<'a> Result1<'a> {
    pub(super) fn new(version: CniVersion, result: &'a CniResult) -> Self {
        let dns = &result.dns;
        Self {
            cni_version: version.as_str(),
            dns: (!dns.is_empty()).then(|| Dns1 {
                domain: &dns.domain,
                nameservers: &dns.nameservers,
                options: &dns.options,
                search: &dns.search,
            }),
            interfaces: result.interfaces.iter().map(Interface1::new).collect(),
            ips: result.ips.iter().map(IpConfig1::new).collect(),
            routes: result.routes.iter().map(Route1::new).collect(),
        }
    }
}

impl<'a> Interface1<'a> {
    fn new(i: &'a Interface) -> Self {
        Self {
            mac: &i.mac,
            mtu: i.mtu,
            name: &i.name,
            pci_id: &i.pci_id,
            sandbox: &i.sandbox,
            socket_path: &i.socket_path,
        }
    }
}

impl IpConfig1 {
    fn new(ip: &IpConfig) -> Self {
        Self { address: Cidr(ip.address), gateway: NetAddr(ip.gateway), interface: ip.interface }
    }
}

impl Route1 {
    fn new(r: &Route) -> Self {
        Self {
            advmss: r.adv_mss,
            dst: Cidr(r.dst),
            gw: NetAddr(r.gw),
            mtu: r.mtu,
            priority: r.priority,
            scope: r.scope,
            table: r.table,
        }
    }
}

/// Whether Go's `To4` would say so: an IPv4 address, also an IPv4-mapped one.
pub(super) fn is_v4(network: &IpNetwork) -> bool {
    network.ip().to_canonical().is_ipv4()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks of skip_serializing_if")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}/{}", self.0.ip(), self.0.prefix()))
    }
}

impl Serialize for NetAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(ip) => serializer.collect_str(&ip),
            None => serializer.serialize_str(""),
        }
    }
}

impl NetAddr {
    pub(super) fn is_unset(&self) -> bool {
        self.0.is_none()
    }
}
