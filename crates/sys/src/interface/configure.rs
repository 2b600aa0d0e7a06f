// SPDX-License-Identifier: Apache-2.0
//! Addresses, routes and the up state of a container's interface: what every interface plugin does with an IPAM
//! result (reference: `pkg/ipam/ipam_linux.go`, `ConfigureIface`).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cnibox_netlink::{Addr, Error, Monitor, Multicast, RouteSpec, Settled};
use cnibox_netns::sysctl;
use cnibox_spec::{CniResult, IfName, IpConfig, Route, hex_mask, or_nil};
use ipnetwork::IpNetwork;
use thiserror::Error as ThisError;

use crate::call::{Coded, Failure, Place, Sys};

/// What configuring an interface consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlan {
    /// The interface.
    pub ifname: IfName,
    /// Its addresses, in order.
    pub addresses: Vec<IpConfig>,
    /// Routes by it, in order, gateways filled in.
    pub routes: Vec<Route>,
    /// Whether IPv6 addresses must have left duplicate address detection before the end.
    pub settle: bool,
}

/// Why an interface could not be configured.
#[derive(Debug, ThisError)]
pub(super) enum InterfaceError {
    #[error("no interfaces to configure")]
    NoInterfaces,
    #[error("failed to add IP addr {address} to {ifname:?}: invalid interface index")]
    Index { address: IpNetwork, ifname: String },
    /// IPv6 is switched off and could not be switched on.
    #[error("failed to enable IPv6 for interface {interface:?} ({name}={value}): {source}")]
    EnableIpv6 { interface: String, name: String, value: String, source: sysctl::Error },
    /// Addresses would be lost when the interface goes down.
    #[error("failed to enable keep_addr_on_down for interface {interface:?}: {source}")]
    KeepAddresses { interface: String, source: sysctl::Error },
    #[error("failed to add IP addr {address} to {ifname:?}: {source}")]
    Address { address: IpNetwork, ifname: String, source: Error },
    #[error("failed to set {ifname:?} UP: {source}")]
    Up { ifname: String, source: Error },
    #[error(
        "failed to settle addresses for {ifname:?}: link {ifname} has address {address} in DADFAILED state"
    )]
    Duplicate { ifname: String, address: IpAddr },
    #[error(
        "failed to settle addresses for {ifname:?}: link {ifname} still has tentative addresses after {seconds} seconds"
    )]
    Tentative { ifname: String, seconds: u64 },
    #[error("failed to add route '{} via {} dev {ifname} metric {} (Scope: {}, Table: {})': {source}",
        go_network(.route.dst), or_nil(.route.gw), .route.priority, go_scope(.route.scope), .route.table.unwrap_or(0))]
    Route { route: Box<Route>, ifname: String, source: Error },
}

impl Coded for InterfaceError {}

impl InterfacePlan {
    /// What `result` asks of the interface `ifname`. Addresses without index are another plugin's.
    ///
    /// # Errors
    /// The result has no interface, or an address is another one's.
    pub fn new(ifname: &IfName, result: &CniResult) -> Result<Self, Failure> {
        if result.interfaces.is_empty() {
            return Err(InterfaceError::NoInterfaces.into());
        }
        let addresses: Vec<_> = result.ips.iter().filter(|ip| ip.interface.is_some()).cloned().collect();
        let is_ours = |ip: &&IpConfig| {
            result.interface_of(ip).is_some_and(|interface| interface.name == ifname.as_str())
        };
        if let Some(foreign) = addresses.iter().find(|ip| !is_ours(ip)) {
            return Err(InterfaceError::Index { address: foreign.address, ifname: ifname.to_string() }.into());
        }
        let gateway = |v4: bool| addresses.iter().filter_map(|ip| ip.gateway).find(|gw| gw.is_ipv4() == v4);
        let with_gateway =
            |route: &Route| Route { gw: route.gw.or_else(|| gateway(route.dst.is_ipv4())), ..route.clone() };
        let routes = result.routes.iter().map(with_gateway).collect();
        let settle = gateway(false).is_some();
        Ok(Self { ifname: ifname.clone(), addresses, routes, settle })
    }
}

impl Sys<'_> {
    /// Configures the container's interface, which has this `index`: addresses, up, routes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn interface_configure(&mut self, index: u32, plan: &InterfacePlan) -> Result<(), Failure> {
        let ifname = plan.ifname.as_str();
        if plan.addresses.iter().any(|ip| ip.address.is_ipv6()) {
            self.enable_ipv6(ifname)?;
        }
        for ip in &plan.addresses {
            let refused =
                |source| InterfaceError::Address { address: ip.address, ifname: ifname.to_owned(), source };
            self.rtnl(Place::Pod)?.addr_add(&Addr::new(index, ip.address)).map_err(refused)?;
        }
        let down = |source| InterfaceError::Up { ifname: ifname.to_owned(), source };
        self.rtnl(Place::Pod)?.link_set_up(index).map_err(down)?;
        if plan.settle {
            self.settle(ifname, index)?;
        }
        for route in &plan.routes {
            let refused = |source| InterfaceError::Route {
                route: Box::new(route.clone()),
                ifname: ifname.to_owned(),
                source,
            };
            self.rtnl(Place::Pod)?.route_add(&route_spec(route, index)).map_err(refused)?;
        }
        Ok(())
    }

    /// Containers often start with IPv6 switched off; an address wants it. Without `keep_addr_on_down` the kernel
    /// drops IPv6 addresses whenever the interface goes down.
    fn enable_ipv6(&mut self, ifname: &str) -> Result<(), Failure> {
        let mut doubtful = Vec::new();
        for interface in ["lo", ifname] {
            let link = self.rtnl(Place::Pod)?.link_by_name_if_present(interface)?;
            if link.and_then(|link| link.ipv6).is_none_or(|conf| conf.disabled) {
                doubtful.push(interface);
            }
        }
        let unreadable = self.inside(Place::Pod, || {
            let mut unreadable = Vec::new();
            for interface in doubtful {
                let name = sysctl::conf("ipv6", interface, "disable_ipv6");
                match sysctl::read(&name) {
                    Ok(value) if value == "0" => {}
                    Ok(value) => {
                        let interface = interface.to_owned();
                        sysctl::write(&name, "0").map_err(|source| InterfaceError::EnableIpv6 {
                            interface,
                            name: name.clone(),
                            value,
                            source,
                        })?;
                    }
                    Err(error) => unreadable.push(format!("failed to read sysctl {name:?}: {error}")),
                }
            }
            let keep = sysctl::conf("ipv6", ifname, "keep_addr_on_down");
            sysctl::write(&keep, "1")
                .map_err(|source| InterfaceError::KeepAddresses { interface: ifname.to_owned(), source })?;
            Ok::<_, InterfaceError>(unreadable)
        })??;
        for note in unreadable {
            self.warn(note);
        }
        Ok(())
    }

    /// Waits for duplicate address detection. As in the reference, a link that has not come up by the deadline is
    /// let through with its addresses tentative.
    fn settle(&mut self, ifname: &str, index: u32) -> Result<(), Failure> {
        // A device that nobody has opened yet: detection begins when somebody does. The reference waits for it in vain.
        let link = self.rtnl(Place::Pod)?.link_by_index(index)?;
        if link.is_kind("tun") && !link.has_carrier() {
            return Ok(());
        }
        let mut monitor = self.inside(Place::Pod, || Monitor::of(Multicast::Ipv6Addr))??;
        let rtnl = self.rtnl(Place::Pod)?;
        match monitor.wait_addrs_settled(rtnl, index, Instant::now() + SETTLE_TIMEOUT)? {
            Settled::All => Ok(()),
            Settled::DadFailed(addr) => {
                Err(InterfaceError::Duplicate { ifname: ifname.to_owned(), address: addr.net.ip() }.into())
            }
            Settled::TimedOut if rtnl.link_by_index(index)?.operstate == cnibox_netlink::OperState::Up => {
                let seconds = SETTLE_TIMEOUT.as_secs();
                Err(InterfaceError::Tentative { ifname: ifname.to_owned(), seconds }.into())
            }
            Settled::TimedOut => Ok(()),
        }
    }
}

/// Route MTU and advertised MSS are set here although the reference loses them.
fn route_spec(route: &Route, index: u32) -> RouteSpec {
    let positive = |value: i64| u32::try_from(value).ok().filter(|value| *value > 0);
    RouteSpec {
        gw: route.gw,
        oif: Some(index),
        scope: route.scope.and_then(|scope| u8::try_from(scope).ok()),
        table: route.table.and_then(positive),
        priority: positive(route.priority),
        mtu: positive(route.mtu),
        advmss: positive(route.adv_mss),
        ..RouteSpec::new(route.dst)
    }
}

/// A network as Go's `%v` prints `net.IPNet`.
fn go_network(network: IpNetwork) -> String {
    format!("{{{} {}}}", network.ip(), hex_mask(network))
}

/// A scope as the reference's netlink library names it.
fn go_scope(scope: Option<i64>) -> String {
    match scope.unwrap_or(0) {
        0 => "universe".to_owned(),
        200 => "site".to_owned(),
        253 => "link".to_owned(),
        254 => "host".to_owned(),
        255 => "nowhere".to_owned(),
        other => other.to_string(),
    }
}

const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
