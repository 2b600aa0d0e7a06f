// SPDX-License-Identifier: Apache-2.0
//! Addresses, routes and the up state of a container's interface: what every interface plugin does with an IPAM
//! result (reference: `pkg/ipam/ipam_linux.go`, `ConfigureIface`).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cnibox_netlink::{Addr, Link, Monitor, Multicast, OperState, RouteSpec, Settled};
use cnibox_netns::sysctl;
use cnibox_spec::{CniResult, IpConfig, Route, hex_mask, or_nil};

use crate::call::{Failure, OrSay, Place, Sys};

impl Sys<'_> {
    /// Gives the container's interface `link` all addresses and routes of `result`, and brings it up. Does not end before
    /// IPv6 addresses with a gateway have left duplicate address detection.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn interface_configure(&mut self, link: &Link, result: &CniResult) -> Result<(), Failure> {
        let (index, ifname) = (link.index, &link.name);
        if result.ips.iter().any(|ip| ip.address.is_ipv6()) {
            self.enable_ipv6(ifname)?;
        }
        for IpConfig { address, .. } in &result.ips {
            let added = self.rtnl(Place::Pod)?.addr_add(&Addr::new(index, *address));
            added.or_say(|error| format!("failed to add IP addr {address} to {ifname:?}: {error}"))?;
        }
        self.pod_link_up(link)?;
        let gateway = |v4| gateway_of(&result.ips, v4);
        if gateway(false).is_some() {
            self.settle(link)?;
        }
        for route in &result.routes {
            let route = Route { gw: route.gw.or_else(|| gateway(route.dst.is_ipv4())), ..route.clone() };
            let added = self.rtnl(Place::Pod)?.route_add(&route_spec(&route, index));
            added
                .or_say(|error| format!("failed to add route '{}': {error}", added_route(&route, ifname)))?;
        }
        Ok(())
    }

    /// Brings up the container's interface.
    pub(super) fn pod_link_up(&mut self, link: &Link) -> Result<(), Failure> {
        let up = self.rtnl(Place::Pod)?.link_set_up(link.index);
        up.or_say(|error| format!("failed to set {:?} UP: {error}", link.name))
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
                    Ok(value) => sysctl::write(&name, "0").or_say(|error| {
                        format!("failed to enable IPv6 for interface {interface:?} ({name}={value}): {error}")
                    })?,
                    Err(error) => unreadable.push(format!("failed to read sysctl {name:?}: {error}")),
                }
            }
            let keep = sysctl::conf("ipv6", ifname, "keep_addr_on_down");
            sysctl::write(&keep, "1").or_say(|error| {
                format!("failed to enable keep_addr_on_down for interface {ifname:?}: {error}")
            })?;
            Ok::<_, Failure>(unreadable)
        })??;
        for note in unreadable {
            self.warn(note);
        }
        Ok(())
    }

    /// Waits for duplicate address detection. As in the reference, a link that has not come up by the deadline is
    /// let through with its addresses tentative.
    fn settle(&mut self, link: &Link) -> Result<(), Failure> {
        // A device that nobody has opened yet: detection begins when somebody does. The reference waits for it in vain.
        let now = self.rtnl(Place::Pod)?.link_by_index(link.index)?;
        if now.is_kind("tun") && !now.has_carrier() {
            return Ok(());
        }
        let mut monitor = self.inside(Place::Pod, || Monitor::of(Multicast::Ipv6Addr))??;
        let rtnl = self.rtnl(Place::Pod)?;
        let ifname = &link.name;
        let what = match monitor.wait_addrs_settled(rtnl, link.index, Instant::now() + SETTLE_TIMEOUT)? {
            Settled::All => return Ok(()),
            Settled::DadFailed(addr) => format!("has address {} in DADFAILED state", addr.net.ip()),
            Settled::TimedOut if rtnl.link_by_index(link.index)?.operstate == OperState::Up => {
                format!("still has tentative addresses after {} seconds", SETTLE_TIMEOUT.as_secs())
            }
            Settled::TimedOut => return Ok(()),
        };
        Err(Failure::internal(format!("failed to settle addresses for {ifname:?}: link {ifname} {what}")))
    }
}

/// The first gateway of a family.
fn gateway_of(ips: &[IpConfig], v4: bool) -> Option<IpAddr> {
    ips.iter().filter_map(|ip| ip.gateway).find(|gateway| gateway.is_ipv4() == v4)
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

/// A route as the reference's message has it.
fn added_route(route: &Route, ifname: &str) -> String {
    let Route { dst, priority, .. } = route;
    format!(
        "{{{} {}}} via {} dev {ifname} metric {priority} (Scope: {}, Table: {})",
        dst.ip(),
        hex_mask(*dst),
        or_nil(route.gw),
        go_scope(route.scope),
        route.table.unwrap_or(0),
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_the_first_of_its_family() {
        let ip = |address: &str, gateway: &str| IpConfig {
            interface: Some(0),
            address: address.parse().unwrap(),
            gateway: gateway.parse().ok(),
        };
        let ips = [ip("10.1.2.9/24", ""), ip("10.1.3.9/24", "10.1.3.1"), ip("10.1.4.9/24", "10.1.4.1")];
        assert_eq!(gateway_of(&ips, true), Some([10, 1, 3, 1].into()));
        assert_eq!(gateway_of(&ips, false), None);
    }
}
