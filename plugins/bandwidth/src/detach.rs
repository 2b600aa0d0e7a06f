// SPDX-License-Identifier: Apache-2.0
//! DEL and GC: the IFB device. The filters of the host's veth go with it.

use cnibox_harness::{DelArgs, GcArgs, Plugin, Request};
use cnibox_netlink::Link;
use cnibox_sys::{Failure, Ledger, Mark, Sys};

use crate::Bandwidth;
use crate::config::Config;
use crate::plan::ifb_name;

/// DEL. The device's name has no room for the interface's, so that a second interface of the same container in the
/// same network fails its ADD. DEL after that must leave the first one's device alone: without it the first one's
/// traffic would be dropped.
pub(crate) fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let DelArgs { attachment, .. } = &request.args;
    let name = ifb_name(attachment.network.as_str(), attachment.container.as_str());
    let rtnl = sys.host()?;
    if let Some(ifb) = rtnl.link_by_name_if_present(&name)?
        && !Mark::of(attachment).is_another(&ifb)
    {
        rtnl.link_del_by_name_if_present(&name)?;
    }
    Ok(())
}

/// GC: devices of attachments that are not in the list. Those that the Go plugin made bear no mark, and nothing else
/// tells whose they are; they stay.
pub(crate) fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { conf, args, .. } = request;
    let mut links = sys.host()?.links()?;
    links.retain(|link| link.is_kind("ifb"));
    let deleted = sys.stale_links_del(&links, &conf.network, &args.valid);
    let mut failures = Vec::from_iter(deleted.err());
    // The name says no interface: a device may be for another one of the container, which lives.
    let live: Vec<_> =
        args.valid.iter().map(|live| ifb_name(conf.network.as_str(), &live.container_id)).collect();
    for record in Ledger::of_host().stale(&conf.network, &args.valid) {
        for name in record.notes(Bandwidth::NAME).iter().filter(|name| !live.contains(name)) {
            let rtnl = sys.host()?;
            let is_unmarked =
                |link: &&Link| link.name == *name && link.alias.as_deref().unwrap_or_default().is_empty();
            if links.iter().any(|link| is_unmarked(&link)) {
                failures.extend(rtnl.link_del_by_name_if_present(name).err().map(Failure::from));
            }
        }
    }
    Failure::combine(failures)
}
