// SPDX-License-Identifier: Apache-2.0
//! The `bandwidth` plugin: token bucket filters for the traffic of a container behind a veth pair (reference:
//! `plugins/meta/bandwidth`).
//!
//! What the container receives is limited where the host's end of the pair sends it. What it sends arrives at the
//! host's end, where nothing can be queued, and takes a detour by an IFB device that belongs to the attachment. The
//! filters go with the pair; only the IFB device must be deleted.

mod apply;
mod config;
mod detach;
mod plan;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netlink::{Link, Tbf};
use cnibox_spec::{CniResult, CniVersion, Interface};
use cnibox_sys::{Failure, OrSay, Place, Sys};

pub use config::Config;

/// The plugin.
pub struct Bandwidth;

impl Plugin for Bandwidth {
    const NAME: &'static str = "bandwidth";
    const ROLE: Role = Role::Chained;
    /// 0.3.0 and later: older results list no interfaces.
    const VERSIONS: &'static [CniVersion] = CniVersion::ALL.split_at(2).1;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let not_chained = || Failure::invalid_config("must be called as chained plugin");
        let result = request.config.prev_result.as_ref().ok_or_else(not_chained)?;
        if request.config.is_unlimited() {
            return Ok(result.clone());
        }
        apply::add(request, result, sys)
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        detach::del(request, sys)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        // Not quite what ADD says.
        let not_chained = || Failure::invalid_config("must be called as a chained plugin");
        let result = request.config.prev_result.as_ref().ok_or_else(not_chained)?;
        let host = host_link(sys, &request.args, &result.interfaces)?;
        if let Some(tbf) = request.config.ingress {
            check_tbf(sys, host.index, tbf)?;
        }
        if let Some(tbf) = request.config.egress {
            let name =
                plan::ifb_name(request.conf.network.as_str(), request.args.attachment.container.as_str());
            let ifb = sys.host()?.link_by_name(&name).or_say(|error| format!("get ifb device: {error}"))?;
            check_tbf(sys, ifb.index, tbf)?;
        }
        Ok(())
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        // What comes with the runtime's arguments is not known yet.
        if request.config.egress.is_some() { sys.require_kind("ifb") } else { sys.require_net_admin() }
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        detach::gc(request, sys)
    }
}

fn check_tbf(sys: &mut Sys<'_>, index: u32, wanted: Tbf) -> Result<(), Failure> {
    let found =
        sys.host()?.qdisc_root_tbf(index)?.ok_or_else(|| Failure::internal("Failed to find qdisc"))?;
    let agree = [
        ("Rate", found.rate == wanted.rate),
        ("Limit", found.limit == wanted.limit),
        ("Buffer", found.buffer == wanted.buffer),
    ];
    match agree.into_iter().find(|(_, agrees)| !agrees) {
        Some((what, _)) => Err(Failure::internal(format!("{what} doesn't match"))),
        None => Ok(()),
    }
}

/// The host's end of the container's pair, which must be among prevResult's interfaces. Opens the namespace.
fn host_link(sys: &mut Sys<'_>, args: &AddArgs, interfaces: &[Interface]) -> Result<Link, Failure> {
    sys.open_pod_named(&args.netns)?;
    if interfaces.is_empty() {
        return Err(Failure::internal("no interfaces provided"));
    }
    let ifname = args.attachment.ifname.as_str();
    let pod = sys.rtnl(Place::Pod)?.link_by_name(ifname).or_say(|error| {
        format!("container interface {ifname} has no veth peer: could not look up {ifname:?}: {error}")
    })?;
    let peer = pod.peer_index.filter(|_| pod.is_kind("veth"));
    let peer = peer.ok_or_else(|| {
        Failure::internal(format!(
            "container interface {ifname} has no veth peer: interface {ifname:?} was not a veth interface"
        ))
    })?;
    // A container may have put a pair of its own in its interface's place: its peer's index is a number of the container's.
    let host = sys.host()?.link_by_index(peer).ok().filter(|host| host.peer_index == Some(pod.index));
    let host =
        host.ok_or_else(|| Failure::internal(format!("veth peer with index {peer} is not in host ns")))?;
    let listed = |interface: &Interface| interface.sandbox.is_empty() && interface.name == host.name;
    if interfaces.iter().any(listed) {
        Ok(host)
    } else {
        Err(Failure::internal("no veth peer of container interface found in host ns"))
    }
}
