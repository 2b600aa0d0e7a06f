// SPDX-License-Identifier: Apache-2.0
//! The `ptp` plugin: a veth pair between container and host, and nothing but routes: the container reaches everything
//! by the host, which has the gateway address on its end and a route to the container.
//!
//! Forwarding is shared and stays. The pair and its masquerade belong to one attachment; an ADD that fails takes them
//! back.

mod apply;
mod config;
mod plan;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{CniResult, Verb, check_expressible};
use cnibox_sys::{CheckWording, Failure, Masquerade, Sys, Txn};

pub use config::Config;

/// The plugin.
pub struct Ptp;

impl Plugin for Ptp {
    const NAME: &'static str = "ptp";
    const ROLE: Role = Role::Interface;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        sys.open_pod_named(&request.args.netns)?;
        // Addresses come before the pair.
        sys.attempt_begins()?;
        Txn::run(sys, |tx| add(tx, request))
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        del(request, sys)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, config, args } = request;
        let (result, link) = sys.check_interface(request.expected(Some(conf.required_ipam()), WORDING))?;
        if let Some(choice) = config.masquerade {
            sys.check_masquerade(&args.attachment, choice, &result.ips)?;
        }
        sys.check_layer3(&link, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_kind("veth")?;
        if let Some(choice) = request.config.masquerade {
            sys.require_masquerade(choice)?;
        }
        sys.ipam_forward(Verb::Status, Some(request.conf.required_ipam()))
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, args, .. } = request;
        let links = sys.host()?.links()?;
        let failures = [
            sys.stale_links_del(&links, &conf.network, &args.valid),
            sys.masquerade_collect(&conf.network, &args.valid),
            sys.ipam_forward(Verb::Gc, conf.ipam()),
        ];
        Failure::combine(failures.into_iter().filter_map(Result::err))
    }
}

fn add(tx: &mut Txn<'_, '_>, request: &Request<'_, Config, AddArgs>) -> Result<CniResult, Failure> {
    let Request { conf, config, args } = request;
    let ipam = tx.ipam_add(conf.required_ipam(), &conf.version_text)?;
    let peers = plan::peers(&ipam)?;
    let addresses: Vec<_> = peers.iter().map(|peer| peer.address).collect();
    tx.shared(|sys| apply::forwarding(sys, &addresses))?;
    let veth = apply::veth(tx, &args.attachment, config.mtu)?;
    let result = plan::result(request, ipam, &veth);
    let masquerade = Masquerade::of(&args.attachment);
    tx.masquerade_add_beside(&masquerade, config.masquerade, &addresses, |tx| {
        // Before the container's end, other than the reference: duplicate address detection of an IPv6 gateway then passes
        // while the container's is waited for. Until it has, nobody answers for the gateway.
        tx.shared(|sys| apply::host_end(sys, &veth.host, &peers))?;
        tx.shared(|sys| sys.interface_configure(&veth.pod, &result))?;
        tx.shared(|sys| apply::pod_routes(sys, &veth.pod, &peers))
    })?;
    check_expressible(conf.version, &result)?;
    Ok(result)
}

/// Everything is looked for under the names that ADD derives from network, container and interface, so neither
/// prevResult nor an unchanged configuration is needed.
fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let DelArgs { attachment, netns } = &request.args;
    let released = sys.ipam_forward(Verb::Del, request.conf.ipam());
    let host_end = |sys: &mut Sys<'_>| {
        let links = sys.host()?.links()?;
        sys.marked_links_del(&links, attachment)
    };
    let deleted = sys.masqueraded_pair_del(attachment, netns.as_ref(), host_end);
    Failure::combine([released, deleted].into_iter().filter_map(Result::err))
}

const WORDING: CheckWording = CheckWording {
    before_required: "ptp: ",
    before_interface: "ptp: ",
    ..CheckWording::of_kind("veth", "veth/p2p")
};
