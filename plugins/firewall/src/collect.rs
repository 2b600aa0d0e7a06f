// SPDX-License-Identifier: Apache-2.0
//! GC: removes rules of remembered attachments of this network that no longer exist. Rules that the Go plugins wrote
//! carry no owner and are left alone.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cnibox_harness::{GcArgs, Plugin, Request};
use cnibox_spec::Attachment;
use cnibox_sys::{Failure, Memo, Memory, Sys};

use crate::{Config, Firewall, addresses, withdraw};

/// Removes what belongs to attachments of the network that are not among the valid ones.
///
/// # Errors
/// What could not be removed; it is remembered further.
pub(crate) fn stale(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let (network, valid) = (request.conf.network.as_str(), &request.args.valid);
    let memory = Memory::of(Firewall::NAME);
    let all = memory.all();
    let is_of = |memo: &Memo, live: &Attachment| {
        memo.network == network && memo.container == live.container_id && memo.ifname == live.ifname
    };
    // An address of an attachment that is gone may be somebody's again: of one that is remembered, or of one that the
    // Go plugins added, whose address is not known here.
    if valid.iter().any(|live| !all.iter().any(|memo| is_of(memo, live))) {
        return Ok(());
    }
    let (stale, live): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|memo| memo.network == network && !valid.iter().any(|live| is_of(memo, live)));
    let in_use: BTreeSet<IpAddr> = live.iter().flat_map(addresses).collect();
    let gone: BTreeSet<IpAddr> = stale.iter().flat_map(addresses).filter(|ip| !in_use.contains(ip)).collect();
    withdraw(&request.config, gone, sys)?;
    for memo in &stale {
        memory.forget(memo);
    }
    Ok(())
}
