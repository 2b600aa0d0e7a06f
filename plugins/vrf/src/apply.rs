// SPDX-License-Identifier: Apache-2.0
//! ADD: the VRF, the interface in it, and what the interface loses on the way.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cnibox_harness::{AddArgs, Request};
use cnibox_netlink::{
    Addr, Error, Family, Link, LinkChange, LinkData, Monitor, Multicast, Route, Rtnl, TABLE_MAIN, unless,
};
use cnibox_spec::{list, or_nil};
use cnibox_sys::{Failure, OrSay, Place, Sys, Txn, Undo, UndoStep};
use ipnetwork::IpNetwork;

use crate::config::Config;
use crate::{check_table, find};

/// ADD.
pub(crate) fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    sys.open_pod(&args.netns)?;
    Txn::run(sys, |tx| {
        let (vrf, table) = vrf(tx, config)?;
        enslave(tx, args.attachment.ifname.as_str(), &vrf, table)
    })
}

/// Finds the VRF, or makes it and sets it up.
fn vrf(tx: &mut Txn<'_, '_>, config: &Config) -> Result<(Link, u32), Failure> {
    let name = config.name.as_str();
    let rtnl = tx.sys().rtnl(Place::Pod)?;
    if let Some((link, table)) = find(rtnl, name)? {
        check_table(config, table)?;
        return Ok((link, table));
    }
    let table = match config.table {
        Some(table) => table,
        None => {
            let links = rtnl.links().or_say(|error| format!("createVRF: Failed to find links {error}"))?;
            free_table(&links).ok_or_else(|| {
                Failure::internal("findFreeRoutingTableID: Failed to find an available routing id")
            })?
        }
    };
    tx.step(Undo::Link { place: Place::Pod, name: name.to_owned() }, |sys| {
        sys.rtnl(Place::Pod)?
            .link_add_vrf(name, table)
            .or_say(|error| format!("could not add VRF {name}: {error}"))
    })?;
    tx.shared(|sys| {
        let refused = |error: &Error| format!("could not set link up for VRF {name}: {error}");
        let rtnl = sys.rtnl(Place::Pod)?;
        let link = rtnl.link_by_name(name).or_say(refused)?;
        rtnl.link_set_up(link.index).or_say(refused)?;
        Ok::<_, Failure>((link, table))
    })
}

/// The first table that no VRF has. The main tables of the namespace are nobody's to take, even by the 253rd VRF.
fn free_table(links: &[Link]) -> Option<u32> {
    let taken = |table: u32| links.iter().any(|link| link.data == LinkData::Vrf { table });
    (1..u32::MAX).find(|table| !RESERVED.contains(table) && !taken(*table))
}

/// Puts the interface into the VRF. That sets it down and up again, which costs it IPv6 addresses (unless
/// `keep_addr_on_down` is set) and routes; both come back, the routes in the VRF's table.
fn enslave(tx: &mut Txn<'_, '_>, ifname: &str, vrf: &Link, table: u32) -> Result<(), Failure> {
    let rtnl = tx.sys().rtnl(Place::Pod)?;
    let link = rtnl.link_by_name(ifname).or_say(|_| format!("could not get link by name {ifname}"))?;
    expect_free(rtnl, &link)?;
    let addresses = global_addresses(rtnl, link.index)
        .or_say(|error| format!("failed getting global ipv6 addresses before slaving interface: {error}"))?;
    let routes =
        main_routes(rtnl, link.index).or_say(|_| format!("failed getting all routes for {ifname}"))?;
    let undo = Enslaved { link: link.index, addresses: addresses.clone(), routes: routes.clone() };
    tx.step(undo, |sys| {
        let done = sys.rtnl(Place::Pod)?.link_set(LinkChange::new(link.index).master(vrf.index));
        done.or_say(|error| format!("could not set vrf {} as master of {ifname}: {error}", vrf.name))
    })?;
    tx.shared(|sys| restore_addresses(sys, &addresses, &link, vrf, table))?;
    tx.shared(|sys| {
        let rtnl = sys.rtnl(Place::Pod)?;
        // Local and connected IPv4 routes have another scope: the kernel makes those itself.
        for route in routes.iter().filter(|route| route.scope == SCOPE_UNIVERSE) {
            let refused =
                |error: &Error| format!("could not add route '{}': {error}", go_route(route, table));
            rtnl.route_copy(route, table).or_say(refused)?;
        }
        Ok::<_, Failure>(())
    })
}

fn expect_free(rtnl: &mut Rtnl, link: &Link) -> Result<(), Failure> {
    let Some(master) = link.master else { return Ok(()) };
    let ifname = &link.name;
    let master = rtnl.link_by_index(master).or_say(|error| {
        format!("interface {ifname} has already a master set, could not retrieve the name: {error}")
    })?;
    Err(Failure::internal(format!("interface {ifname} has already a master set: {}", master.name)))
}

fn global_addresses(rtnl: &mut Rtnl, index: u32) -> Result<Vec<Addr>, Error> {
    // One whose time is up at this moment is as good as gone.
    let lasts = |addr: &Addr| addr.lifetime.is_none_or(|lifetime| lifetime.valid > 0);
    let global = |addr: &&Addr| addr.scope == SCOPE_UNIVERSE && lasts(addr);
    Ok(rtnl.addrs(index, Some(Family::V6))?.iter().filter(global).map(Addr::again).collect())
}

/// The interface's routes in the main table, those by a gateway last: they need the others.
fn main_routes(rtnl: &mut Rtnl, index: u32) -> Result<Vec<Route>, Error> {
    let mut routes = rtnl.link_routes(TABLE_MAIN, index)?;
    routes.retain(|route| route.oif == Some(index));
    routes.sort_by_key(|route| route.gw.is_some());
    Ok(routes)
}

/// A route, moved to `table`, as the netlink library of the reference prints it (`Route.String`). The kernel has no realm for
/// a route that nobody has given one, as no plugin does.
fn go_route(route: &Route, table: u32) -> String {
    const FLAGS: [(u32, &str); 2] = [(4, "onlink"), (2, "pervasive")]; // RTNH_F_*
    let is_via = |gw: &IpAddr| gw.is_ipv4() != route.dst.is_ipv4();
    let via = |gw: IpAddr| format!("Via: Family: {}, Address: {gw} ", if gw.is_ipv4() { 2 } else { 10 });
    format!(
        "{{Ifindex: {} Dst: {} {}Src: {} Gw: {} Flags: {} Table: {table} Realm: 0}}",
        route.oif.unwrap_or(0),
        route.dst,
        route.gw.filter(is_via).map(via).unwrap_or_default(),
        or_nil(route.src),
        or_nil(route.gw.filter(|gw| !is_via(gw))),
        list(FLAGS.iter().filter(|(flag, _)| route.flags & flag != 0).map(|(_, name)| name)),
    )
}

/// Adds the addresses that are gone and waits for each one's local route.
fn restore_addresses(
    sys: &mut Sys<'_>,
    addresses: &[Addr],
    link: &Link,
    vrf: &Link,
    table: u32,
) -> Result<(), Failure> {
    if addresses.is_empty() {
        return Ok(());
    }
    let mut monitor = sys.inside(Place::Pod, || Monitor::of(Multicast::Ipv6Route))??;
    let rtnl = sys.rtnl(Place::Pod)?;
    let left = global_addresses(rtnl, link.index)
        .or_say(|error| format!("failed getting global ipv6 addresses after slaving interface: {error}"))?;
    for addr in addresses.iter().filter(|addr| !left.iter().any(|kept| kept.net == addr.net)) {
        let (address, ifname) = (addr.net, &link.name);
        rtnl.addr_add(addr).or_say(|error| {
            format!("could not restore address {address} to {ifname} @ {}: {error}", vrf.name)
        })?;
        let deadline = Instant::now() + LOCAL_ROUTE_TIMEOUT;
        while !has_local_route(rtnl, link.index, table, address)? {
            if !monitor.wait_any(deadline)? {
                let text = format!(
                    "failed getting local/host addresses for {ifname} in table {table} with dst {address}"
                );
                return Err(Failure::internal(text));
            }
        }
    }
    Ok(())
}

fn has_local_route(rtnl: &mut Rtnl, index: u32, table: u32, address: IpNetwork) -> Result<bool, Error> {
    let own = IpNetwork::from(address.ip());
    Ok(rtnl.routes(Family::V6, table, Some(index))?.iter().any(|route| route.dst == own))
}

/// `RT_SCOPE_UNIVERSE`.
const SCOPE_UNIVERSE: u8 = 0;
/// Default, main and local.
const RESERVED: [u32; 3] = [253, 254, 255];
/// The sum of the reference's pauses.
const LOCAL_ROUTE_TIMEOUT: Duration = Duration::from_millis(2550);

/// Releases a link of the container from its VRF, with the addresses and routes that it had before.
#[derive(Clone, Debug)]
struct Enslaved {
    /// The link's index.
    link: u32,
    /// Its IPv6 addresses, which the kernel drops on the way.
    addresses: Vec<Addr>,
    /// Its routes.
    routes: Vec<Route>,
}

impl UndoStep for Enslaved {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let rtnl = sys.rtnl(Place::Pod)?;
        rtnl.link_set(LinkChange::new(self.link).nomaster())?;
        // The kernel lists the newest IPv6 address first.
        for address in self.addresses.iter().rev() {
            unless(rtnl.addr_add(address), Error::is_exists)?;
        }
        for route in &self.routes {
            rtnl.route_copy(route, route.table)?;
        }
        Ok(())
    }
}
