// SPDX-License-Identifier: Apache-2.0
//! The `vlan` plugin: an 802.1q interface on top of one of the host's, or of the container's.
//!
//! Everything of an attachment is in the container's namespace and ends with it, but for the IPAM plugin's reservation.

mod config;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netlink::{Link, LinkData, ParentSpec};
use cnibox_spec::{CniResult, Verb};
use cnibox_sys::{CheckWording, Failure, NO_ADDRESSES, Place, Sys, Txn};

pub use config::Config;

/// The plugin.
pub struct Vlan;

impl Plugin for Vlan {
    const NAME: &'static str = "vlan";
    const ROLE: Role = Role::Interface;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        let (parent, mtu) = sys.parent_and_mtu(config.place, Some(&config.master), config.mtu)?;
        let parent_nsid = sys.parent_nsid(config.place)?;
        let name = args.attachment.ifname.as_str();
        let spec = ParentSpec { name, parent: parent.index, parent_nsid, mtu };
        let plan = request.pod_plan(None);
        Txn::run(sys, |tx| {
            let create = |sys: &mut Sys<'_>| Ok(sys.rtnl(Place::Pod)?.link_add_vlan(&spec, config.id));
            let link = tx.pod_link_add(Self::NAME, &args.attachment.ifname, create)?;
            let ipam = tx.ipam_add(conf.required_ipam(), &conf.version_text).map_err(delegate_failed)?;
            tx.pod_configure(&link, Some(ipam), &plan)
        })
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let DelArgs { attachment, netns } = &request.args;
        sys.detach(netns.as_ref(), &attachment.ifname, request.conf.ipam())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, config, .. } = request;
        let (result, link) = sys.check_interface(request.expected(Some(conf.required_ipam()), WORDING))?;
        sys.parent(config.place, Some(&config.master))?;
        check_settings(&link, config)?;
        sys.check_layer3(&link, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.ipam_forward(Verb::Status, Some(request.conf.required_ipam()))?;
        sys.require_kind("vlan")?;
        sys.require_parent(request.config.place, Some(&request.config.master))
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.collect(&request.conf.network, &request.args.valid, request.conf.ipam())
    }
}

/// This plugin alone puts words in front of what its IPAM plugin says, and so loses the code.
/// An answer without addresses is no failure of the delegate.
fn delegate_failed(failure: Failure) -> Failure {
    if failure.to_string() == NO_ADDRESSES {
        return failure;
    }
    Failure::internal(format!("failed to execute IPAM delegate: {failure}"))
}

/// The interface is as ADD made it.
fn check_settings(Link { name, data, mtu, .. }: &Link, config: &Config) -> Result<(), Failure> {
    if let LinkData::Vlan { id } = *data
        && id != config.id
    {
        let wanted = config.id;
        return Err(Failure::internal(format!(
            "Error: vlan interface {name} configured VLAN ID is {wanted}, current value is {id}"
        )));
    }
    if config.mtu != 0 && config.mtu != i64::from(*mtu) {
        let wanted = config.mtu;
        return Err(Failure::internal(format!(
            "Error: Tuning configured MTU of {name} is {wanted}, current value is {mtu}"
        )));
    }
    Ok(())
}

const WORDING: CheckWording = CheckWording {
    before_required: "vlan: ",
    before_interface: "vlan: ",
    ..CheckWording::of_kind("vlan", "vlan")
};
