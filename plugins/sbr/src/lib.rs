// SPDX-License-Identifier: Apache-2.0
//! The `sbr` plugin: source based routing. What a container sends from an address of the interface is routed by a
//! table of that address (reference: `plugins/meta/sbr`).
//!
//! Everything is in the container's namespace. The namespace's file is locked meanwhile, since two calls for two
//! interfaces would choose the same tables.

mod apply;
mod config;
mod detach;
mod lock;
mod plan;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netlink::{Family, TABLE_LOCAL};
use cnibox_spec::CniResult;
use cnibox_sys::{Failure, Place, Sys};

pub use config::Config;

/// The plugin.
pub struct Sbr;

impl Plugin for Sbr {
    const NAME: &'static str = "sbr";
    const ROLE: Role = Role::Chained;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let not_chained = || Failure::invalid_config("This plugin must be called as chained plugin");
        let previous = request.config.prev_result.as_ref().ok_or_else(not_chained)?;
        apply::add(request, previous, sys)?;
        Ok(previous.clone())
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        detach::del(request, sys)
    }

    /// The reference finds everything good. Here every address still has its rule, and its table the default route.
    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Some(previous) = &request.config.prev_result else { return Ok(()) };
        sys.open_pod(&request.args.netns)?;
        let rtnl = sys.rtnl(Place::Pod)?;
        for address in plan::addresses(previous, request.args.attachment.ifname.as_str(), &request.config) {
            let family = Family::of(address.ip);
            let rule = rtnl.rules(family)?.into_iter().find(|rule| {
                let chosen = request.config.table.is_none_or(|table| rule.table == table);
                rule.src == Some(address.host()) && rule.table != TABLE_LOCAL && chosen
            });
            let Some(rule) = rule else {
                return Err(Failure::internal(format!("no rule for packets from {} found", address.ip)));
            };
            if request.config.table.is_some() || address.gateway.is_none() {
                continue;
            }
            if !rtnl.routes(family, rule.table, None)?.iter().any(cnibox_netlink::Route::is_default) {
                let (address, table) = (address.ip, rule.table);
                return Err(Failure::internal(format!(
                    "no default route for packets from {address} found in table {table}"
                )));
            }
        }
        Ok(())
    }

    fn status(_: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_net_admin()
    }

    /// Nothing outlives the container's namespace.
    fn gc(_: &Request<'_, Config, GcArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(())
    }
}
