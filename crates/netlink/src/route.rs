// SPDX-License-Identifier: Apache-2.0
//! Routes, the verbs of `ip route`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop, RouteProtocol,
    RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::unless;
use crate::{Error, Family, Rtnl};

/// The main routing table (`RT_TABLE_MAIN`).
pub const TABLE_MAIN: u32 = 254;

/// The table of local addresses (`RT_TABLE_LOCAL`).
pub const TABLE_LOCAL: u32 = 255;

/// A route to add, replace or delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSpec {
    /// Destination. Host bits are ignored.
    pub dst: IpNetwork,
    /// Gateway; `None` is a device route.
    pub gw: Option<IpAddr>,
    /// Index of the link.
    pub oif: Option<u32>,
    /// `RT_SCOPE_*`; `None` is 0, universe.
    pub scope: Option<u8>,
    /// Routing table; `None` is the main one.
    pub table: Option<u32>,
    /// Metric.
    pub priority: Option<u32>,
    /// Path MTU in bytes.
    pub mtu: Option<u32>,
    /// Maximum segment size to advertise, in bytes.
    pub advmss: Option<u32>,
    /// Preferred source address.
    pub src: Option<IpAddr>,
}

/// A route as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination; the default route is `0.0.0.0/0` or `::/0`.
    pub dst: IpNetwork,
    /// Gateway. `None` also for routes with several next hops, as in the reference's library.
    pub gw: Option<IpAddr>,
    /// Index of the link. `None` for routes with several next hops and for `unreachable` and its like.
    pub oif: Option<u32>,
    /// The next hops, if there are several.
    pub nexthops: Vec<NextHop>,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// Routing table.
    pub table: u32,
    /// Preferred source address.
    pub src: Option<IpAddr>,
    /// `RTM_F_*` and `RTNH_F_*`.
    pub flags: u32,
    /// As it arrived, for [`Rtnl::route_copy`] and its like.
    message: RouteMessage,
}

/// One of several next hops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// Index of the link.
    pub oif: u32,
    /// Gateway.
    pub gw: Option<IpAddr>,
}

impl RouteSpec {
    /// A route to `dst`, nothing else said.
    pub fn new(dst: IpNetwork) -> Self {
        Self {
            dst,
            gw: None,
            oif: None,
            scope: None,
            table: None,
            priority: None,
            mtu: None,
            advmss: None,
            src: None,
        }
    }

    /// Unicast, protocol boot, as `ip route` and the Go plugins make them.
    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = Family::of(self.dst.ip()).into_kernel();
        message.header.destination_prefix_length = self.dst.prefix();
        message.header.protocol = RouteProtocol::Boot;
        message.header.kind = RouteType::Unicast;
        message.header.scope = RouteScope::from(self.scope.unwrap_or(0));
        message.attributes = vec![RouteAttribute::Destination(self.dst.network().into())];
        message.attributes.extend(self.gw.map(|gw| gateway(self.dst, gw)));
        message.attributes.extend(self.oif.map(RouteAttribute::Oif));
        message.attributes.extend(self.priority.map(RouteAttribute::Priority));
        message.attributes.extend(self.src.map(|src| RouteAttribute::PrefSource(src.into())));
        message.attributes.push(RouteAttribute::Table(self.table.unwrap_or(TABLE_MAIN)));
        let metrics: Vec<_> =
            self.mtu.map(RouteMetric::Mtu).into_iter().chain(self.advmss.map(RouteMetric::Advmss)).collect();
        if !metrics.is_empty() {
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        message
    }
}

impl Route {
    /// Whether this is a default route.
    pub fn is_default(&self) -> bool {
        self.dst.prefix() == 0
    }
}

impl Rtnl {
    /// `ip route add`, as the Go plugins mean it (`NLM_F_CREATE` alone): an identical route is an error, the same
    /// destination and metric by another gateway is not.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn route_add(&mut self, route: &RouteSpec) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::NewRoute(route.message()), NLM_F_CREATE)
    }

    /// `ip route add` proper: the same destination and metric is an error, whatever the gateway.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn route_add_exclusive(&mut self, route: &RouteSpec) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::NewRoute(route.message()), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `ip route del`: the first route that matches what is said about it.
    ///
    /// # Errors
    /// [`Error::is_not_found`] (`no such process`), or what else the kernel says.
    pub fn route_del(&mut self, route: &RouteSpec) -> Result<(), Error> {
        let mut message = route.message();
        if route.scope.is_none() {
            // "Whatever scope", where adding means "universe".
            message.header.scope = RouteScope::NoWhere;
        }
        message.header.protocol = RouteProtocol::Unspec;
        self.change(RouteNetlinkMessage::DelRoute(message), 0)
    }

    /// `ip route show table TABLE [dev OIF]`, of one family. A table that does not exist is empty.
    ///
    /// # Errors
    /// What the kernel says, `no such device` for a missing link.
    pub fn routes(&mut self, family: Family, table: u32, oif: Option<u32>) -> Result<Vec<Route>, Error> {
        let mut request = RouteMessage::default();
        request.header.address_family = family.into_kernel();
        request.attributes.push(RouteAttribute::Table(table));
        request.attributes.extend(oif.map(RouteAttribute::Oif));
        let dump = self.dump(&RouteNetlinkMessage::GetRoute(request));
        let dump = unless(dump, |error| error.errno() == Some(libc::ENOENT))?.unwrap_or_default();
        let wanted = |route: &Route| {
            let from = route.table == table && oif.is_none_or(|oif| route.leaves_by(oif));
            from && family.has(route.dst)
        };
        Ok(dump.into_iter().filter_map(as_route).filter(wanted).collect())
    }

    /// `ip route show table TABLE dev OIF`, IPv4 before IPv6.
    ///
    /// # Errors
    /// What the kernel says, `no such device` for a missing link.
    pub fn link_routes(&mut self, table: u32, oif: u32) -> Result<Vec<Route>, Error> {
        let mut routes = self.routes(Family::V4, table, Some(oif))?;
        routes.extend(self.routes(Family::V6, table, Some(oif))?);
        Ok(routes)
    }

    /// The tables that have routes: those of `ip route show table all`, of one family.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn route_tables(&mut self, family: Family) -> Result<BTreeSet<u32>, Error> {
        let mut request = RouteMessage::default();
        request.header.address_family = family.into_kernel();
        let dump = self.dump(&RouteNetlinkMessage::GetRoute(request))?;
        let routes = dump.into_iter().filter_map(as_route).filter(|route| family.has(route.dst));
        Ok(routes.map(|route| route.table).collect())
    }

    /// `ip route replace ... table TABLE` with everything that the kernel says about an existing route, protocol and
    /// several next hops included. In the route's own table this puts a deleted route back.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn route_copy(&mut self, route: &Route, table: u32) -> Result<(), Error> {
        let message = route.message_for(table);
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// `ip route replace ... src SRC`: an existing route with another preferred source address.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn route_set_src(&mut self, route: &Route, src: IpAddr) -> Result<(), Error> {
        let mut message = route.message_for(route.table);
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::PrefSource(_)));
        message.attributes.push(RouteAttribute::PrefSource(src.into()));
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// `ip route del` of exactly this route.
    ///
    /// # Errors
    /// [`Error::is_not_found`] (`no such process`), or what else the kernel says.
    pub fn route_del_exact(&mut self, route: &Route) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::DelRoute(route.message_for(route.table)), 0)
    }

    /// `ip route get IP`: the route that a packet to `ip` would take now.
    ///
    /// # Errors
    /// `network is unreachable` without a route, or what else the kernel says.
    pub fn route_lookup(&mut self, ip: IpAddr) -> Result<Route, Error> {
        let mut request = RouteMessage::default();
        request.header.address_family = Family::of(ip).into_kernel();
        request.header.destination_prefix_length = if ip.is_ipv4() { 32 } else { 128 };
        request.attributes = vec![RouteAttribute::Destination(ip.into())];
        let answer = self.ask(RouteNetlinkMessage::GetRoute(request))?;
        as_route(answer).ok_or(Error::NoAnswer)
    }
}

impl Route {
    /// What to say about this route when it is to be in `table`. What only the kernel may say is left out; `onlink` is
    /// the one flag that is an option.
    fn message_for(&self, table: u32) -> RouteMessage {
        let mut message = self.message.clone();
        message.header.flags &= RouteFlags::Onlink;
        message.header.table = 0;
        message.attributes.retain(|attribute| {
            matches!(
                attribute,
                RouteAttribute::Destination(_)
                    | RouteAttribute::Gateway(_)
                    | RouteAttribute::Via(_)
                    | RouteAttribute::Oif(_)
                    | RouteAttribute::Priority(_)
                    | RouteAttribute::PrefSource(_)
                    | RouteAttribute::Metrics(_)
                    | RouteAttribute::MultiPath(_)
            )
        });
        message.attributes.push(RouteAttribute::Table(table));
        message
    }

    /// Whether packets may leave by the link with this index.
    pub(crate) fn leaves_by(&self, oif: u32) -> bool {
        self.oif == Some(oif) || self.nexthops.iter().any(|hop| hop.oif == oif)
    }
}

/// An IPv4 route by an IPv6 gateway has an attribute of its own (RFC 5549).
fn gateway(dst: IpNetwork, gw: IpAddr) -> RouteAttribute {
    match (dst, gw) {
        (IpNetwork::V4(_), IpAddr::V6(gw)) => RouteAttribute::Via(RouteVia::Inet6(gw)),
        (IpNetwork::V4(_) | IpNetwork::V6(_), gw) => RouteAttribute::Gateway(gw.into()),
    }
}

fn as_route(message: RouteNetlinkMessage) -> Option<Route> {
    if let RouteNetlinkMessage::NewRoute(message) = message { decode(message) } else { None }
}

/// `None` for families other than IPv4 and IPv6.
#[expect(clippy::wildcard_enum_match_arm, reason = "three dozen families")]
pub(crate) fn decode(message: RouteMessage) -> Option<Route> {
    let header = message.header.clone();
    let any = match header.address_family {
        AddressFamily::Inet => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let mut route = Route {
        message: message.clone(),
        dst: IpNetwork::new(any, header.destination_prefix_length).ok()?,
        gw: None,
        oif: None,
        nexthops: Vec::new(),
        scope: header.scope.into(),
        table: u32::from(header.table),
        src: None,
        flags: header.flags.bits(),
    };
    for attribute in message.attributes {
        take_attribute(&mut route, attribute);
    }
    Some(route)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "attributes nobody asks about")]
fn take_attribute(route: &mut Route, attribute: RouteAttribute) {
    match attribute {
        RouteAttribute::Destination(dst) => {
            if let Some(dst) = ip(dst).and_then(|ip| IpNetwork::new(ip, route.dst.prefix()).ok()) {
                route.dst = dst;
            }
        }
        RouteAttribute::Gateway(gw) => route.gw = ip(gw),
        RouteAttribute::Via(gw) => route.gw = via(gw),
        RouteAttribute::Oif(oif) => route.oif = Some(oif),
        RouteAttribute::MultiPath(hops) => route.nexthops = hops.into_iter().map(next_hop).collect(),
        RouteAttribute::Table(table) => route.table = table,
        RouteAttribute::PrefSource(src) => route.src = ip(src),
        _ => {}
    }
}

fn next_hop(hop: RouteNextHop) -> NextHop {
    let gw = hop.attributes.into_iter().find_map(hop_gateway);
    NextHop { oif: hop.interface_index, gw }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "attributes nobody asks about")]
fn hop_gateway(attribute: RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(gw) => ip(gw),
        RouteAttribute::Via(gw) => via(gw),
        _ => None,
    }
}

fn ip(address: RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(ip.into()),
        RouteAddress::Inet6(ip) => Some(ip.into()),
        RouteAddress::Mpls(_) | RouteAddress::Other(_) | _ => None,
    }
}

fn via(via: RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(ip) => Some(ip.into()),
        RouteVia::Inet6(ip) => Some(ip.into()),
        RouteVia::Packet(_) | RouteVia::Other(_) | _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(message: RouteMessage) -> Route {
        as_route(RouteNetlinkMessage::NewRoute(message)).unwrap()
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let spec = RouteSpec {
            gw: Some("10.0.0.1".parse().unwrap()),
            oif: Some(7),
            scope: Some(253),
            table: Some(1000),
            priority: Some(50),
            mtu: Some(1400),
            advmss: Some(1360),
            src: Some("10.0.0.2".parse().unwrap()),
            ..RouteSpec::new("10.9.8.7/16".parse().unwrap())
        };
        let message = spec.message();
        assert_eq!((message.header.protocol, message.header.kind), (RouteProtocol::Boot, RouteType::Unicast));
        let metrics = vec![RouteMetric::Mtu(1400), RouteMetric::Advmss(1360)];
        for attribute in [RouteAttribute::Priority(50), RouteAttribute::Metrics(metrics)] {
            assert!(message.attributes.contains(&attribute), "{attribute:?} is missing: {message:?}");
        }
        let route = decoded(message);
        assert_eq!(route.dst, "10.9.0.0/16".parse().unwrap());
        assert_eq!((route.gw, route.oif, route.src), (spec.gw, spec.oif, spec.src));
        assert_eq!((route.scope, route.table), (253, 1000));
    }

    #[test]
    fn a_copy_keeps_everything_but_the_table_and_the_kernels_own_words() {
        let spec = RouteSpec {
            gw: Some("10.0.0.1".parse().unwrap()),
            priority: Some(50),
            mtu: Some(1400),
            table: Some(1000),
            ..RouteSpec::new("10.9.0.0/16".parse().unwrap())
        };
        let mut message = spec.message();
        message.header.protocol = RouteProtocol::Kernel;
        message.header.flags = RouteFlags::Onlink | RouteFlags::Linkdown;
        message.header.table = 252;
        let mut attributes = message.attributes.clone();
        message.attributes.push(RouteAttribute::Expires(7));
        let copy = decoded(message).message_for(100);
        assert_eq!((copy.header.protocol, copy.header.flags), (RouteProtocol::Kernel, RouteFlags::Onlink));
        attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Table(_)));
        attributes.push(RouteAttribute::Table(100));
        assert_eq!(copy.attributes, attributes);
        assert_eq!(decoded(copy).table, 100);
    }

    #[test]
    fn plain_routes_go_to_the_main_table() {
        let route = decoded(RouteSpec::new("::/0".parse().unwrap()).message());
        assert!(route.is_default());
        assert_eq!((route.table, route.scope), (TABLE_MAIN, 0));
    }

    #[test]
    fn v6_gateways_of_v4_routes_use_via() {
        let gw: IpAddr = "fe80::1".parse().unwrap();
        let spec = RouteSpec { gw: Some(gw), ..RouteSpec::new("10.0.0.0/8".parse().unwrap()) };
        assert!(spec.message().attributes.iter().any(|a| matches!(a, RouteAttribute::Via(_))));
        assert_eq!(decoded(spec.message()).gw, Some(gw));
    }
}
