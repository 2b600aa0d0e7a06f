// SPDX-License-Identifier: Apache-2.0
//! ADD: rules and tables, taken back when something fails.

use std::collections::BTreeSet;

use cnibox_harness::{AddArgs, Request};
use cnibox_netlink::{Family, Link, Route, Rtnl, TABLE_MAIN};
use cnibox_spec::CniResult;
use cnibox_sys::{Failure, OrSay, Place, Sys, Txn, Undo, UndoStep};

use crate::config::Config;
use crate::lock::lock;
use crate::plan::{self, Address, FIRST_TABLE};

/// ADD.
pub(crate) fn add(
    request: &Request<'_, Config, AddArgs>,
    previous: &CniResult,
    sys: &mut Sys<'_>,
) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    let ifname = args.attachment.ifname.as_str();
    if previous.ips.is_empty() {
        return Err(Failure::invalid_config(format!("No IP addresses supplied on interface: {ifname}")));
    }
    let addresses = plan::addresses(previous, ifname, config);
    sys.open_pod(&args.netns)?;
    let _lock = lock(args.netns.as_str())?;
    Txn::run(sys, |tx| match config.table {
        Some(table) => addresses.iter().try_for_each(|address| rule(tx, address, table, "failed")),
        None => tables(tx, config, ifname, &addresses),
    })
}

/// A table for each address, then the main table without the interface's routes.
fn tables(tx: &mut Txn<'_, '_>, config: &Config, ifname: &str, addresses: &[Address]) -> Result<(), Failure> {
    let rtnl = tx.sys().rtnl(Place::Pod)?;
    let used = tables_in_use(rtnl)?;
    let link = rtnl
        .link_by_name(ifname)
        .or_say(|error| format!("Cannot find network interface {ifname}: {error}"))?;
    let routes = main_routes(rtnl, &link)?;
    let mut table = plan::free_table(&used, FIRST_TABLE);
    for address in addresses {
        rule(tx, address, table, "Failed")?;
        fill(tx, address, table, &link, &routes)?;
        table = plan::free_table(&used, table.saturating_add(1));
    }
    for route in &routes {
        let subnet = addresses.iter().find(|address| address.is_subnet_route(route));
        tx.step(Undo::Route { place: Place::Pod, route: Box::new(route.clone()) }, |sys| {
            let rtnl = sys.rtnl(Place::Pod)?;
            let (done, what) = match subnet.filter(|_| config.source_hints) {
                Some(address) => (rtnl.route_set_src(route, address.ip), "add source hint to route"),
                None => (rtnl.route_del_exact(route), "delete route"),
            };
            done.or_say(|error| format!("Failed to {what}: {error}"))
        })?;
    }
    Ok(())
}

/// Tables that a rule leads to or that have routes. The reference overlooks the routes of tables without rule.
fn tables_in_use(rtnl: &mut Rtnl) -> Result<BTreeSet<u32>, Failure> {
    let mut used = BTreeSet::new();
    for family in [Family::V4, Family::V6] {
        let rules = rtnl.rules(family).or_say(|error| format!("Failed to list all rules: {error}"))?;
        used.extend(rules.iter().map(|rule| rule.table));
        used.extend(rtnl.route_tables(family).or_say(|error| format!("Failed to list all routes: {error}"))?);
    }
    Ok(used)
}

/// The interface's routes in the main table, IPv4 before IPv6. Those with several next hops are not the interface's.
fn main_routes(rtnl: &mut Rtnl, link: &Link) -> Result<Vec<Route>, Failure> {
    let mut routes =
        rtnl.link_routes(TABLE_MAIN, link.index).or_say(|error| format!("Unable to list routes: {error}"))?;
    routes.retain(|route| route.oif == Some(link.index));
    Ok(routes)
}

fn rule(tx: &mut Txn<'_, '_>, address: &Address, table: u32, failed: &str) -> Result<(), Failure> {
    let rule = address.rule(table);
    tx.step(Undo::Rule { place: Place::Pod, rule }, |sys| {
        sys.rtnl(Place::Pod)?.rule_add(&rule).or_say(|error| format!("{failed} to add rule: {error}"))
    })
}

/// The default route, which an earlier plugin may have left out, and copies of the interface's routes.
fn fill(
    tx: &mut Txn<'_, '_>,
    address: &Address,
    table: u32,
    link: &Link,
    routes: &[Route],
) -> Result<(), Failure> {
    tx.risky_step(TableRoutes { table, link: link.index }, |sys| {
        let rtnl = sys.rtnl(Place::Pod)?;
        if let (Some(route), Some(gateway)) = (address.default_route(table, link.index), address.gateway) {
            rtnl.route_add_exclusive(&route)
                .or_say(|error| format!("Failed to add default route to {gateway}: {error}"))?;
        }
        for route in routes.iter().filter(|route| address.takes(route)) {
            rtnl.route_copy(route, table).or_say(|error| format!("Failed to readd route: {error}"))?;
        }
        Ok::<_, Failure>(())
    })
}

/// Deletes the routes of a link of the container from a table that was empty before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TableRoutes {
    table: u32,
    /// The link's index.
    link: u32,
}

impl UndoStep for TableRoutes {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let rtnl = sys.rtnl(Place::Pod)?;
        for route in rtnl.link_routes(self.table, self.link)? {
            rtnl.route_del_exact(&route)?;
        }
        Ok(())
    }
}
