// SPDX-License-Identifier: Apache-2.0
//! Taking attachments away: DEL, the leftovers of an unfinished ADD, GC.
//!
//! Everything is looked for under the names that ADD derives from network, container and interface, so neither
//! prevResult nor an unchanged configuration is needed.

use cnibox_harness::{DelArgs, GcArgs, Plugin, Request};
use cnibox_netlink::Link;
use cnibox_spec::{LiveAttachment, NetworkName, Verb};
use cnibox_sys::{Failure, Ledger, Record, Sys};

use crate::Bridge;
use crate::config::Config;
use crate::spoof::SpoofCheck;

/// DEL. The spoof check stays until nothing can be sent any more, and the address until nobody has it.
pub(crate) fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let DelArgs { attachment, netns } = &request.args;
    let host_end = |sys: &mut Sys<'_>| {
        let ports = ports(sys, &request.config)?;
        sys.marked_links_del(&ports, attachment)
    };
    let outcomes = [
        sys.masqueraded_pair_del(attachment, netns.as_ref(), host_end),
        sys.ipam_forward(Verb::Del, request.conf.ipam()),
        SpoofCheck::of(attachment).remove_if_present(sys),
    ];
    Failure::combine(outcomes.into_iter().filter_map(Result::err))
}

fn ports(sys: &mut Sys<'_>, config: &Config) -> Result<Vec<Link>, Failure> {
    let rtnl = sys.host()?;
    match rtnl.link_by_name_if_present(&config.bridge)? {
        Some(bridge) => Ok(rtnl.links_of_master(bridge.index)?),
        None => Ok(Vec::new()),
    }
}

/// GC: ports and rules of attachments that are not in the list, then the IPAM plugin's.
pub(crate) fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let (network, valid) = (&request.conf.network, &request.args.valid);
    let ports = ports(sys, &request.config)?;
    let outcomes = [
        sys.stale_links_del(&ports, network, valid),
        stale_spoof_checks_remove(sys, network, valid),
        sys.masquerade_collect(network, valid),
        sys.ipam_forward(Verb::Gc, request.conf.ipam()),
    ];
    Failure::combine(outcomes.into_iter().filter_map(Result::err))
}

/// Those that are noted: the rules do not say whose network they are for.
fn stale_spoof_checks_remove(
    sys: &mut Sys<'_>,
    network: &NetworkName,
    valid: &[LiveAttachment],
) -> Result<(), Failure> {
    let has_rules = |note: &String| note == SpoofCheck::NOTE;
    let mut stale = Ledger::of_host().stale(network, valid);
    stale.retain(|record| record.notes(Bridge::NAME).iter().any(has_rules));
    let removed = |record: &Record| SpoofCheck::of(&record.attachment).remove_if_present(sys);
    Failure::combine(stale.iter().map(removed).filter_map(Result::err))
}
