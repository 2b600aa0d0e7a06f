// SPDX-License-Identifier: Apache-2.0
//! DEL and GC: the IFB device. The filters of the host's veth go with it.

use cnibox_harness::{DelArgs, GcArgs, Plugin, Request};
use cnibox_sys::{Failure, Memo, Memory, Owner, Sys, is_stale};

use crate::Bandwidth;
use crate::config::Config;
use crate::plan::ifb_name;

/// DEL. The device's name has no room for the interface's, so that a second interface of the same container in the
/// same network fails its ADD. DEL after that must leave the first one's device alone: without it the first one's
/// traffic would be dropped.
pub(crate) fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let DelArgs { container, ifname, .. } = &request.args;
    let network = &request.conf.network;
    let name = ifb_name(network.as_str(), container.as_str());
    let rtnl = sys.host()?;
    if let Some(ifb) = rtnl.link_by_name_if_present(&name)?
        && !Owner::new(network, container, ifname).is_another(&ifb)
    {
        rtnl.link_del_by_name_if_present(&name)?;
    }
    Memory::of(Bandwidth::NAME).forget(&Memo::new(network, container, ifname));
    Ok(())
}

/// GC: devices of attachments that are not in the list. Those that the Go plugin made bear no mark, and nothing else
/// tells whose they are; they stay.
pub(crate) fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { conf, args, .. } = request;
    let rtnl = sys.host()?;
    let mut links = rtnl.links()?;
    links.retain(|link| link.is_kind("ifb") && is_stale(link, &conf.network, &args.valid));
    let mut failures = Vec::new();
    for link in links {
        failures.extend(rtnl.link_del_by_name_if_present(&link.name).err().map(Failure::from));
    }
    let memory = Memory::of(Bandwidth::NAME);
    for memo in memory.stale(&conf.network, &args.valid) {
        match sys.announced_links_del(&memo) {
            Ok(()) => memory.forget(&memo),
            Err(failure) => failures.push(failure),
        }
    }
    Failure::collect(failures)
}
