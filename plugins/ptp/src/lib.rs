// SPDX-License-Identifier: Apache-2.0
//! The `ptp` plugin: a veth pair between container and host, and nothing but routes: the container reaches everything
//! by the host, which has the gateway address on its end and a route to the container.
//!
//! Forwarding is shared and stays. The pair and its masquerade belong to one attachment; an ADD that fails takes them
//! back.

mod apply;
mod config;
mod plan;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, NetConf, Plugin, Request};
use cnibox_spec::CniResult;
use cnibox_sys::{
    CheckWording, Expected, Failure, Masquerade, Owner, Stage, Sys, Txn, Verb, ensure_printable, is_stale,
};

pub use config::Config;

/// The plugin.
pub struct Ptp;

impl Plugin for Ptp {
    const NAME: &'static str = "ptp";
    const REMEMBERED: bool = true;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let Request { conf, config, args } = request;
        let owner = Owner::new(&conf.network, &args.container, &args.ifname);
        sys.open_pod_named(&args.netns)?;
        if sys.attachment_is_unfinished(&owner, &args.ifname)? {
            let (container, netns, ifname) =
                (args.container.clone(), Some(args.netns.clone()), args.ifname.clone());
            del(conf, config, &DelArgs { container, netns, ifname }, sys)?;
        }
        // Addresses come before the pair.
        sys.attempt_begins()?;
        Txn::run(sys, |tx| add(tx, request, &owner))
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        del(request.conf, &request.config, &request.args, sys)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        let (result, _) = sys.check_interface(Expected {
            netns: &args.netns,
            ifname: &args.ifname,
            ipam: Some(config.ipam_name()),
            prev_result: conf.prev_result(),
            wording: WORDING,
        })?;
        if let Some(choice) = config.masquerade {
            let addresses: Vec<_> = result.ips.iter().map(|ip| ip.address).collect();
            let masquerade = Masquerade::new(&conf.network, &args.container, &args.ifname);
            sys.expect_masquerade(&masquerade, choice, &addresses)?;
        }
        sys.check_layer3(&args.ifname, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_kind("veth")?;
        sys.ipam_forward(Verb::Status, Some(request.config.ipam_name()))
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, config, args } = request;
        let links = sys.host()?.links()?;
        let failures = [
            sys.host_links_del(&links, |link| is_stale(link, &conf.network, &args.valid)),
            sys.attempt_links_collect(&conf.network, &args.valid),
            sys.masquerade_collect(conf.network.as_str(), &args.valid),
            sys.ipam_forward(Verb::Gc, config.ipam.as_deref()),
        ];
        Failure::collect(failures.into_iter().filter_map(Result::err))
    }
}

fn add(
    tx: &mut Txn<'_, '_>,
    request: &Request<'_, Config, AddArgs>,
    owner: &Owner,
) -> Result<CniResult, Failure> {
    let Request { conf, config, args } = request;
    let ipam = tx.ipam_add(config.ipam_name(), &conf.version_text)?;
    let peers = plan::peers(&ipam)?;
    tx.shared(|sys| apply::forwarding(sys, &peers))?;
    let veth = apply::veth(tx, &plan::veth(config, &args.ifname), owner)?;
    let (result, interface) = plan::layer3(config, args, ipam, &veth)?;
    // Before the container's end, other than the reference: duplicate address detection of an IPv6 gateway then passes
    // while the container's is waited for. Until it has, nobody answers for the gateway.
    tx.shared(|sys| apply::host_end(sys, &veth.host, &peers))?;
    tx.shared(|sys| sys.interface_configure(veth.pod.index, &interface))?;
    tx.shared(|sys| apply::pod_routes(sys, &veth.pod, &peers))?;
    if let Some(choice) = config.masquerade {
        let addresses: Vec<_> = peers.iter().map(|peer| peer.address).collect();
        let masquerade = Masquerade::new(&conf.network, &args.container, &args.ifname);
        tx.masquerade_add(&masquerade, choice, &addresses)?;
    }
    ensure_printable(conf.version, &result)?;
    if tx.sys().attempt_stage() != Stage::Ready {
        let ready = owner.alias(Stage::Ready);
        tx.shared(|sys| Ok::<_, Failure>(sys.host()?.link_set_alias(veth.host.index, &ready)?))?;
    }
    Ok(result)
}

/// Everything is looked for under the names that ADD derives from network, container and interface, so neither
/// prevResult nor an unchanged configuration is needed. Masquerade goes before the link: the kernel frees both after
/// grace periods of the same kind, which then pass together.
fn del(conf: &NetConf, config: &Config, args: &DelArgs, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let DelArgs { container, netns, ifname } = args;
    let mut failures = Vec::new();
    failures.extend(sys.ipam_forward(Verb::Del, config.ipam.as_deref()).err());
    let in_use = sys.pod_addresses_if_present(netns.as_ref(), ifname).unwrap_or_else(|failure| {
        failures.push(failure);
        None
    });
    let masquerade = Masquerade::new(&conf.network, container, ifname);
    failures.extend(sys.masquerade_remove(&masquerade, in_use.as_deref().unwrap_or_default()).err());
    let gone = match in_use {
        Some(_) => sys.pod_link_del(netns.as_ref(), ifname).map(drop),
        // The namespace's path can be gone while a process still holds the namespace, and the pair with it.
        None => host_link(sys, &Owner::new(&conf.network, container, ifname)),
    };
    failures.extend(gone.err());
    failures.extend(sys.attempt_link_del(&conf.network, container, ifname).err());
    Failure::collect(failures)
}

/// Deletes the attachment's end on the host, found by its owner's mark.
fn host_link(sys: &mut Sys<'_>, owner: &Owner) -> Result<(), Failure> {
    let links = sys.host()?.links()?;
    sys.host_links_del(&links, |link| owner.stage_of(link).is_some())
}

const WORDING: CheckWording = CheckWording {
    before_required: "ptp: ",
    before_interface: "ptp: ",
    ..CheckWording::of_kind("veth", "veth/p2p")
};
