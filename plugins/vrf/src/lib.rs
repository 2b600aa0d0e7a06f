// SPDX-License-Identifier: Apache-2.0
//! The `vrf` plugin: puts a container's interface into a VRF of the container's namespace (reference:
//! `plugins/meta/vrf`). The VRF is made for its first interface and goes with its last one.

mod apply;
mod config;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netlink::{Error, Link, LinkChange, LinkData, Rtnl};
use cnibox_spec::{CniResult, CniVersion};
use cnibox_sys::{Failure, OrSay, Place, Pod, Sys};

pub use config::Config;

/// The plugin.
pub struct Vrf;

impl Plugin for Vrf {
    const NAME: &'static str = "vrf";
    const ROLE: Role = Role::Chained;
    /// 0.3.1 and later.
    const VERSIONS: &'static [CniVersion] = CniVersion::ALL.split_at(3).1;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let previous = request.config.previous()?;
        apply::add(request, sys).map_err(|failure| failure.prefixed("cmdAdd failed: "))?;
        Ok(previous.clone())
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { config, args, .. } = request;
        let Some(netns) = &args.netns else { return Ok(()) };
        let Some(Pod { rtnl, .. }) = sys.open_pod_if_present(netns)? else { return Ok(()) };
        let found = rtnl.link_by_name_if_present(&config.name)?;
        let Some(vrf) = found.filter(|link| table_of(link).is_some()) else { return Ok(()) };
        let ifname = args.attachment.ifname.as_str();
        let link = rtnl.link_by_name_if_present(ifname)?.filter(|link| link.master == Some(vrf.index));
        if let Some(link) = link
            && !sys.is_anothers(&link)?
        {
            let done = sys.rtnl(Place::Pod)?.link_set(LinkChange::new(link.index).nomaster());
            done.or_say(|error| format!("resetMaster: could reset master to {ifname}: {error}"))?;
        }
        let rtnl = sys.rtnl(Place::Pod)?;
        if rtnl.links_of_master(vrf.index)?.is_empty() {
            rtnl.link_del_by_name_if_present(&vrf.name)?;
        }
        Ok(())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { config, args, .. } = request;
        config.previous()?;
        let rtnl = &mut sys.open_pod(&args.netns)?.rtnl;
        let (vrf, table) = find(rtnl, &config.name)?.ok_or(Error::LinkNotFound)?;
        check_table(config, table)?;
        let ifname = args.attachment.ifname.as_str();
        let link = rtnl.link_by_name_if_present(ifname)?;
        if link.is_some_and(|link| link.master == Some(vrf.index)) {
            return Ok(());
        }
        Err(Failure::internal(format!("failed to find {ifname} associated to vrf {}", config.name)))
    }

    fn status(_: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_kind("vrf")
    }

    /// Nothing outlives the container's namespace.
    fn gc(_: &Request<'_, Config, GcArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// The VRF of that name and its table.
fn find(rtnl: &mut Rtnl, name: &str) -> Result<Option<(Link, u32)>, Failure> {
    let Some(link) = rtnl.link_by_name_if_present(name)? else { return Ok(None) };
    match table_of(&link) {
        Some(table) => Ok(Some((link, table))),
        None => Err(Failure::internal(format!("Netlink {name} is not a VRF"))),
    }
}

/// The table of a VRF; other links have none.
fn table_of(link: &Link) -> Option<u32> {
    if let LinkData::Vrf { table } = link.data { Some(table) } else { None }
}

/// The VRF has the configured table, if there is one.
fn check_table(config: &Config, table: u32) -> Result<(), Failure> {
    if config.table.is_none_or(|wanted| wanted == table) {
        return Ok(());
    }
    let text = format!("VRF {} already exist with different routing table {table}", config.name);
    Err(Failure::internal(text))
}
