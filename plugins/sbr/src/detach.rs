// SPDX-License-Identifier: Apache-2.0
//! DEL: the rules of the interface's addresses and what is left in their tables.

use std::net::IpAddr;

use cnibox_harness::{DelArgs, Request};
use cnibox_netlink::{Error, Family, Rtnl, Rule, RuleSpec, TABLE_LOCAL, TABLE_MAIN, unless};
use cnibox_sys::{Failure, OrSay, Place, Sys};

use crate::config::Config;
use crate::lock::lock_if_free;
use crate::plan::{self, FIRST_TABLE};

/// DEL. Without a namespace there is nothing left; rules whose interface is gone are found by prevResult.
pub(crate) fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    let Some(netns) = &args.netns else { return Ok(()) };
    if sys.open_pod_if_present(netns)?.is_none() {
        return Ok(());
    }
    let _lock = lock_if_free(netns.as_str())?;
    let ifname = args.attachment.ifname.as_str();
    let (link, mut sources) = interface(sys, ifname)?;
    let rtnl = sys.rtnl(Place::Pod)?;
    if let Some(previous) = &config.prev_result {
        sources.extend(plan::addresses(previous, ifname, config).iter().map(|address| address.ip));
    }
    let mut failures = Vec::new();
    for rule in rules_from(rtnl, &sources, config.table)? {
        failures.extend(remove(rtnl, &rule, link.filter(|_| config.table.is_none())).err());
    }
    Failure::combine(failures)
}

/// The interface's index and addresses, as far as it is there and the attachment's.
fn interface(sys: &mut Sys<'_>, ifname: &str) -> Result<(Option<u32>, Vec<IpAddr>), Failure> {
    let link = sys.rtnl(Place::Pod)?.link_by_name_if_present(ifname);
    let Some(link) = link.or_say(|error| format!("Failed to get link {ifname}: {error}"))? else {
        return Ok((None, Vec::new()));
    };
    if sys.is_anothers(&link)? {
        return Ok((None, Vec::new()));
    }
    let addresses = sys
        .rtnl(Place::Pod)?
        .addrs(link.index, None)
        .or_say(|error| format!("Failed to list all addrs: {error}"))?;
    Ok((Some(link.index), addresses.into_iter().map(|addr| addr.net.ip()).collect()))
}

fn rules_from(rtnl: &mut Rtnl, sources: &[IpAddr], table: Option<u32>) -> Result<Vec<Rule>, Failure> {
    let mut rules = Vec::new();
    for family in [Family::V4, Family::V6] {
        rules
            .extend(rtnl.rules(family).or_say(|error| format!("Failed to list all rules to tidy: {error}"))?);
    }
    rules.retain(|rule| {
        let from = rule.src.is_some_and(|src| sources.contains(&src.ip()));
        from && table.is_none_or(|table| rule.table == table)
    });
    Ok(rules)
}

/// Deletes a rule, and the interface's routes from its table if that is one of this plugin's: the interface may
/// outlive this attachment, and its routes would keep the table from being used again.
fn remove(rtnl: &mut Rtnl, rule: &Rule, link: Option<u32>) -> Result<(), Failure> {
    let Some(src) = rule.src else { return Ok(()) };
    let spec =
        RuleSpec { src, table: rule.table, priority: Some(rule.priority).filter(|priority| *priority != 0) };
    unless(rtnl.rule_del(&spec), Error::is_not_found)
        .or_say(|error| format!("Failed to delete rule {error}"))?;
    let own = rule.table >= FIRST_TABLE && rule.table != TABLE_MAIN && rule.table != TABLE_LOCAL;
    let Some(link) = link.filter(|_| own) else { return Ok(()) };
    for route in rtnl.link_routes(rule.table, link)? {
        unless(rtnl.route_del_exact(&route), Error::is_not_found)?;
    }
    Ok(())
}
