// SPDX-License-Identifier: Apache-2.0
//! CHECK's questions about addresses: does the container's interface still have those of prevResult, and the routes, and
//! are they masqueraded? (reference: `pkg/ip/utils_linux.go`)

use std::net::IpAddr;

use cnibox_netlink::{Family, Link, Route as KernelRoute, TABLE_MAIN};
use cnibox_spec::{Attachment, IpConfig, Route, hex_mask, or_nil, subnet};

use crate::call::{Failure, Place, Sys};
use crate::node::{Backend, Masquerade};

impl Sys<'_> {
    /// Every address is on the container's interface `link`, and the main table has a route to its subnet.
    ///
    /// # Errors
    /// The first one that is gone.
    pub(crate) fn check_addresses(&mut self, link: &Link, ips: &[IpConfig]) -> Result<(), Failure> {
        let ifname = &link.name;
        let rtnl = self.rtnl(Place::Pod)?;
        let present = rtnl.addrs(link.index, None)?;
        for ip in ips {
            if !present.iter().any(|addr| addr.net == ip.address) {
                return Err(drift(format!("Failed to match addr {} on interface {ifname}", ip.address)));
            }
            let subnet = subnet(ip.address);
            let routes = rtnl.routes(Family::of(ip.address.ip()), TABLE_MAIN, None)?;
            if !routes.iter().any(|route| route.dst == subnet) {
                let gateway = or_nil(ip.gateway);
                return Err(drift(format!("Failed to find Gateway {gateway} for interface {ifname}")));
            }
        }
        Ok(())
    }

    /// The addresses are masqueraded. When the host chose the backend (`choice` is `None`) it may choose another one by
    /// now: either will do.
    ///
    /// # Errors
    /// The first one that is not; when the packet filter cannot be read.
    pub fn check_masquerade(
        &mut self,
        attachment: &Attachment,
        choice: Option<Backend>,
        ips: &[IpConfig],
    ) -> Result<(), Failure> {
        let masquerade = &Masquerade::of(attachment);
        let addresses: &Vec<_> = &ips.iter().map(|ip| ip.address).collect();
        let chosen = self.backend(choice, || masquerade.install(Backend::Iptables, addresses))?;
        let engine = self.engine()?;
        let Some(missing) = masquerade.missing(engine, chosen, addresses)? else { return Ok(()) };
        // The kernel may not even have the other one.
        if choice.is_none() && matches!(masquerade.missing(engine, chosen.other(), addresses), Ok(None)) {
            return Ok(());
        }
        Err(drift(format!("masquerade not found: {missing}")))
    }

    /// Every route exists, in the table that it was put into. Of a default route only the existence counts, as in the
    /// reference.
    ///
    /// # Errors
    /// The first one that is gone.
    pub(crate) fn check_routes(&mut self, routes: &[Route]) -> Result<(), Failure> {
        for route in routes {
            let table = route.table.and_then(|table| u32::try_from(table).ok()).filter(|table| *table != 0);
            let family = Family::of(route.dst.ip());
            let present = self.rtnl(Place::Pod)?.routes(family, table.unwrap_or(TABLE_MAIN), None)?;
            if !present.iter().any(|candidate| fulfils(candidate, route)) {
                return Err(drift(format!("Expected Route {} not found in routing table", go_route(route))));
            }
        }
        Ok(())
    }
}

/// Something is not as ADD left it.
fn drift(msg: String) -> Failure {
    Failure::internal(msg)
}

fn fulfils(candidate: &KernelRoute, wanted: &Route) -> bool {
    if wanted.dst.prefix() == 0 {
        return candidate.is_default();
    }
    let by = |gw: IpAddr| candidate.gw == Some(gw) || candidate.nexthops.iter().any(|hop| hop.gw == Some(gw));
    candidate.dst == subnet(wanted.dst) && wanted.gw.is_none_or(by)
}

/// A route as the reference's `Route.String` prints it.
fn go_route(route: &Route) -> String {
    format!(
        "{{Dst:{{IP:{} Mask:{}}} GW:{} MTU:{} AdvMSS:{} Priority:{} Table:{} Scope:{}}}",
        route.dst.ip(),
        hex_mask(route.dst),
        or_nil(route.gw),
        route.mtu,
        route.adv_mss,
        route.priority,
        or_nil(route.table),
        or_nil(route.scope),
    )
}
