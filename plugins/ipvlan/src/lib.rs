// SPDX-License-Identifier: Apache-2.0
//! The `ipvlan` plugin: an interface that shares the MAC of its parent, one of the host's links or of the container's.
//!
//! Behind another plugin it may stand on that one's interface and take over its addresses. Everything of an attachment
//! is in the container's namespace and ends with it, but for the IPAM plugin's reservation.

mod config;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netlink::{IpVlanMode, Link, LinkChange, LinkData, ParentSpec};
use cnibox_spec::{CniResult, Verb};
use cnibox_sys::{Announce, CheckWording, Failure, OrSay, Place, Sys, Txn};

pub use config::Config;

/// The plugin.
pub struct Ipvlan;

impl Plugin for Ipvlan {
    const NAME: &'static str = "ipvlan";
    const ROLE: Role = Role::Interface;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        let parent = sys.parent(config.place, config.master.as_deref())?;
        let parent_nsid = sys.parent_nsid(config.place)?;
        let name = args.attachment.ifname.as_str();
        let spec = ParentSpec { name, parent: parent.index, parent_nsid, mtu: None };
        let plan = request.pod_plan(Some(Announce::ArpAndNeighbours));
        let mtu = config.mtu_on(&parent);
        Txn::run(sys, |tx| {
            let create = |sys: &mut Sys<'_>| Ok(sys.rtnl(Place::Pod)?.link_add_ipvlan(&spec, config.mode));
            let link = tx.pod_link_add(Self::NAME, &args.attachment.ifname, create)?;
            if let Some(mtu) = mtu {
                tx.shared(|sys| set_mtu(sys, &link, mtu))?;
            }
            let ipam = match &config.chained {
                Some(result) => result.clone(),
                None => tx.ipam_add(conf.required_ipam(), &conf.version_text)?,
            };
            tx.pod_configure(&link, Some(ipam), &plan)
        })
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let DelArgs { attachment, netns } = &request.args;
        sys.detach(netns.as_ref(), &attachment.ifname, request.conf.ipam())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, config, .. } = request;
        let (result, link) =
            sys.check_interface(request.expected(conf.ipam(), CheckWording::of_kind("ipvlan", "ipvlan")))?;
        // Without a name ADD found the parent by the default route or in a prevResult that is no longer known.
        if let Some(master) = &config.master {
            sys.parent(config.place, Some(master))?;
        }
        check_mode(&link, config.mode)?;
        sys.check_layer3(&link, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.ipam_forward(Verb::Status, request.conf.ipam())?;
        sys.require_kind("ipvlan")?;
        sys.require_parent(request.config.place, request.config.master.as_deref())
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.collect(&request.conf.network, &request.args.valid, request.conf.ipam())
    }
}

/// The kernel overwrites an MTU that is asked for on creation (`ipvlan_link_new`).
fn set_mtu(sys: &mut Sys<'_>, link: &Link, mtu: u32) -> Result<(), Failure> {
    let done = sys.rtnl(Place::Pod)?.link_set(LinkChange::new(link.index).mtu(mtu));
    done.or_say(|error| format!("failed to set MTU of ipvlan {:?} to {mtu}: {error}", link.name))
}

fn check_mode(link: &Link, wanted: IpVlanMode) -> Result<(), Failure> {
    let LinkData::IpVlan { mode: found } = link.data else { return Ok(()) };
    if found == wanted {
        return Ok(());
    }
    let msg = format!("Container IPVlan mode {found} does not match expected value: {wanted}");
    Err(Failure::internal(msg))
}
