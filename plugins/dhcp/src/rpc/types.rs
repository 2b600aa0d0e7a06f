// SPDX-License-Identifier: Apache-2.0
//! What travels: Go's structures, made from our own types and read into them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cnibox_spec::{CniResult, Dns, IpConfig, LiveAttachment, Route};
use ipnetwork::IpNetwork;

use crate::gob::Value;

/// What GC wants: the network, and its attachments that live.
pub(crate) fn collection_to(network: &str, live: &[LiveAttachment]) -> Value {
    let attachment = |live: &LiveAttachment| {
        let (container, ifname) = (live.container_id.as_str(), live.ifname.as_str());
        Value::of([("ContainerID", Value::text(container)), ("IfName", Value::text(ifname))])
    };
    let live = live.iter().map(attachment).collect();
    Value::of([("Network", Value::text(network)), ("Live", Value::List(live))])
}

/// The network to collect, and its attachments that live.
pub(crate) fn collection_from(value: &Value) -> (String, Vec<LiveAttachment>) {
    let text = |item: &Value, name| item.text_field(name).to_owned();
    let live =
        |item| LiveAttachment { container_id: text(item, "ContainerID"), ifname: text(item, "IfName") };
    (text(value, "Network"), value.list_field("Live").iter().map(live).collect())
}

/// An answer to `Allocate`.
pub(crate) fn allocation_to(result: &CniResult) -> Value {
    let ip = |ip: &IpConfig| {
        let gateway = Value::Bytes(ip.gateway.map(octets).unwrap_or_default());
        Value::of([("Address", network_to(ip.address)), ("Gateway", gateway)])
    };
    let route = |route: &Route| {
        Value::of([
            ("Dst", network_to(route.dst)),
            ("GW", Value::Bytes(route.gw.map(octets).unwrap_or_default())),
            ("Priority", Value::Int(route.priority)),
            ("Scope", Value::Int(route.scope.unwrap_or_default())),
        ])
    };
    let dns = Value::of([
        ("Nameservers", Value::texts(&result.dns.nameservers)),
        ("Domain", Value::text(&result.dns.domain)),
        ("Search", Value::texts(&result.dns.search)),
        ("Options", Value::texts(&result.dns.options)),
    ]);
    Value::of([
        ("IPs", Value::List(result.ips.iter().map(ip).collect())),
        ("Routes", Value::List(result.routes.iter().map(route).collect())),
        ("DNS", dns),
    ])
}

/// An answer to `Allocate`, read; `None` for one that makes no sense. Interfaces are never in it.
pub(crate) fn allocation_from(value: &Value) -> Option<CniResult> {
    let ip = |ip: &Value| {
        let address = network_from(ip.field("Address")?)?;
        Some(IpConfig { interface: None, address, gateway: address_from(ip.bytes_field("Gateway")) })
    };
    let route = |route: &Value| {
        let int = |name| route.int_field(name);
        Some(Route {
            dst: network_from(route.field("Dst")?)?,
            gw: address_from(route.bytes_field("GW")),
            mtu: int("MTU").unwrap_or_default(),
            adv_mss: int("AdvMSS").unwrap_or_default(),
            priority: int("Priority").unwrap_or_default(),
            table: int("Table"),
            scope: int("Scope"),
        })
    };
    let dns = value.field("DNS").map_or_else(Dns::default, |dns| Dns {
        nameservers: dns.texts_field("Nameservers"),
        domain: dns.text_field("Domain").to_owned(),
        search: dns.texts_field("Search"),
        options: dns.texts_field("Options"),
    });
    Some(CniResult {
        interfaces: Vec::new(),
        ips: value.list_field("IPs").iter().map(ip).collect::<Option<_>>()?,
        routes: value.list_field("Routes").iter().map(route).collect::<Option<_>>()?,
        dns,
    })
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Go has IPv4 addresses in four and in sixteen bytes.
fn address_from(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(|octets| Ipv6Addr::from(octets).to_canonical());
    v4().or_else(v6)
}

fn network_to(network: IpNetwork) -> Value {
    Value::of([("IP", Value::Bytes(octets(network.ip()))), ("Mask", Value::Bytes(octets(network.mask())))])
}

fn network_from(value: &Value) -> Option<IpNetwork> {
    let address = address_from(value.bytes_field("IP"))?;
    let ones: u32 = value.bytes_field("Mask").iter().map(|byte| byte.count_ones()).sum();
    IpNetwork::new(address, u8::try_from(ones).ok()?).ok()
}
