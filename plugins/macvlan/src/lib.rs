// SPDX-License-Identifier: Apache-2.0
//! The `macvlan` plugin: an interface with a MAC of its own on top of one of the host's, or of the container's.
//!
//! Everything of an attachment is in the container's namespace and ends with it, but for the IPAM plugin's reservation.

mod config;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netlink::{Link, LinkData, MacVlanMode, ParentSpec};
use cnibox_spec::{CniResult, Verb};
use cnibox_sys::{Announce, CheckWording, Failure, Place, Sys, Txn};

pub use config::Config;

/// The plugin.
pub struct Macvlan;

impl Plugin for Macvlan {
    const NAME: &'static str = "macvlan";
    const ROLE: Role = Role::Interface;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        let (parent, mtu) = sys.parent_and_mtu(config.place, config.master.as_deref(), config.mtu)?;
        let parent_nsid = sys.parent_nsid(config.place)?;
        let name = args.attachment.ifname.as_str();
        let spec = ParentSpec { name, parent: parent.index, parent_nsid, mtu };
        let plan = request.pod_plan(Some(Announce::ArpAndNeighbours));
        Txn::run(sys, |tx| {
            let create = |sys: &mut Sys<'_>| {
                let rtnl = sys.rtnl(Place::Pod)?;
                Ok(rtnl.link_add_macvlan(&spec, config.mode, config.mac, config.bcqueuelen))
            };
            let link = tx.pod_link_add(Self::NAME, &args.attachment.ifname, create)?;
            let ipam = conf.ipam().map(|plugin| tx.ipam_add(plugin, &conf.version_text)).transpose()?;
            tx.pod_configure(&link, ipam, &plan)
        })
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let DelArgs { attachment, netns } = &request.args;
        sys.detach(netns.as_ref(), &attachment.ifname, request.conf.ipam())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        sys.parent_and_mtu(config.place, config.master.as_deref(), config.mtu)?;
        let (result, link) = sys.check_interface(request.expected(conf.ipam(), WORDING))?;
        check_mode(&link, config.mode)?;
        sys.check_layer3(&link, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.ipam_forward(Verb::Status, request.conf.ipam())?;
        sys.require_kind("macvlan")?;
        sys.require_parent(request.config.place, request.config.master.as_deref())
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.collect(&request.conf.network, &request.args.valid, request.conf.ipam())
    }
}

/// The interface sees its siblings as configured.
fn check_mode(link: &Link, wanted: MacVlanMode) -> Result<(), Failure> {
    let LinkData::MacVlan { mode: found } = link.data else { return Ok(()) };
    if found == wanted {
        return Ok(());
    }
    let msg = format!("container macvlan mode {found} does not match expected value: {wanted}");
    Err(Failure::internal(msg))
}

const WORDING: CheckWording =
    CheckWording { lower_case: true, ..CheckWording::of_kind("macvlan", "macvlan") };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_tells_of_modes_that_nobody_can_configure() {
        let link = |mode| Link { data: LinkData::MacVlan { mode }, ..Link::default() };
        assert!(check_mode(&link(MacVlanMode::Bridge), MacVlanMode::Bridge).is_ok());
        let other = check_mode(&link(MacVlanMode::Source), MacVlanMode::Bridge).unwrap_err();
        assert_eq!(other.to_string(), "container macvlan mode source does not match expected value: bridge");
    }
}
