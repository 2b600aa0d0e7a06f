// SPDX-License-Identifier: Apache-2.0
//! Taking attachments away: DEL, the leftovers of an unfinished ADD, GC.
//!
//! Everything is looked for under the names that ADD derives from network, container and interface, so neither
//! prevResult nor an unchanged configuration is needed.

use cnibox_harness::{AddArgs, DelArgs, GcArgs, Request};
use cnibox_netlink::Link;
use cnibox_spec::IfName;
use cnibox_sys::{Failure, Masquerade, Memo, Owner, Place, Stage, Sys, Verb, is_stale};

use crate::config::Config;
use crate::memo::{self, Notebook};
use crate::spoof::SpoofCheck;

/// DEL. Masquerade goes before the link: the kernel frees rules and links after grace periods of the same kind, which
/// then pass together. The spoof check stays until nothing can be sent any more.
pub(crate) fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let DelArgs { container, netns, ifname } = &request.args;
    let network = &request.conf.network;
    let mut failures = Vec::new();
    let in_use = sys.pod_addresses_if_present(netns.as_ref(), ifname).unwrap_or_else(|failure| {
        failures.push(failure);
        None
    });
    let masquerade = Masquerade::new(network, container, ifname);
    failures.extend(sys.masquerade_remove(&masquerade, in_use.as_deref().unwrap_or_default()).err());
    let gone = match in_use {
        Some(_) => pod_link(sys, ifname),
        // The namespace's path can be gone while a process still holds the namespace, and the pair with it.
        None => host_link(sys, &request.config, &Owner::new(network, container, ifname)),
    };
    failures.extend(gone.err());
    let notebook = Notebook::open(network, container, ifname);
    failures.extend(notebook.clear(sys).err());
    failures.extend(sys.ipam_forward(Verb::Del, request.config.ipam.as_deref()).err());
    failures.extend(SpoofCheck::new(container.as_str(), ifname.as_str()).remove_if_present(sys).err());
    if failures.is_empty() {
        notebook.forget();
    }
    Failure::collect(failures)
}

/// Deletes the container's interface, and with it the host's end.
fn pod_link(sys: &mut Sys<'_>, ifname: &IfName) -> Result<(), Failure> {
    Ok(sys.rtnl(Place::Pod)?.link_del_by_name_if_present(ifname.as_str()).map(drop)?)
}

/// Deletes the attachment's port of the bridge, found by its owner's mark.
fn host_link(sys: &mut Sys<'_>, config: &Config, owner: &Owner) -> Result<(), Failure> {
    let ports = ports(sys, config)?;
    sys.host_links_del(&ports, |port| owner.stage_of(port).is_some())
}

fn ports(sys: &mut Sys<'_>, config: &Config) -> Result<Vec<Link>, Failure> {
    let rtnl = sys.host()?;
    match rtnl.link_by_name_if_present(&config.bridge)? {
        Some(bridge) => Ok(rtnl.links_of_master(bridge.index)?),
        None => Ok(Vec::new()),
    }
}

/// Removes what an unfinished ADD of the same attachment left: one that was killed, or whose chain failed later on.
/// Some runtimes (Nomad) try again without DEL. A finished attachment stays, and ADD fails on it.
pub(crate) fn clear_unfinished(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
    owner: &Owner,
) -> Result<(), Failure> {
    let AddArgs { container, netns, ifname } = &request.args;
    let Some(pod) = sys.rtnl(Place::Pod)?.link_by_name_if_present(ifname.as_str())? else { return Ok(()) };
    let Some(peer) = pod.peer_index else { return Ok(()) };
    let Ok(host) = sys.host()?.link_by_index(peer) else { return Ok(()) };
    let network = &request.conf.network;
    let unfinished = match owner.stage_of(&host) {
        Some(Stage::Pending | Stage::Failed) => true,
        stage => {
            Notebook::open(network, container, ifname).is_announced(&host, owner)
                || stage.is_some() && sys.chain_is_unfinished(network, container, ifname)
        }
    };
    if !unfinished {
        return Ok(());
    }
    let args = DelArgs { container: container.clone(), netns: Some(netns.clone()), ifname: ifname.clone() };
    del(&Request { conf: request.conf, config: request.config.clone(), args }, sys)?;
    sys.chain_links_del(&Memo::new(network, container, ifname))?;
    sys.attempt_forgotten(network, container, ifname, false);
    Ok(())
}

/// GC: ports and rules of attachments that are not in the list, then the IPAM plugin's.
pub(crate) fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let (network, valid) = (&request.conf.network, &request.args.valid);
    let ports = ports(sys, &request.config)?;
    let outcomes = [
        sys.host_links_del(&ports, |port| is_stale(port, network, valid)),
        memo::collect(sys, network, valid),
        sys.masquerade_collect(network.as_str(), valid),
        sys.ipam_forward(Verb::Gc, request.config.ipam.as_deref()),
    ];
    Failure::collect(outcomes.into_iter().filter_map(Result::err))
}
