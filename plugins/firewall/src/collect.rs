// SPDX-License-Identifier: Apache-2.0
//! GC: removes rules of remembered attachments of this network that no longer exist. Rules that the Go plugins wrote
//! carry no owner and are left alone.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cnibox_harness::{GcArgs, Plugin, Request};
use cnibox_spec::Attachment;
use cnibox_sys::{Failure, Ledger, Record, Sys};

use crate::detach::{addresses, withdraw};
use crate::{Config, Firewall};

/// Removes what belongs to attachments of the network that are not among the valid ones.
///
/// # Errors
/// What could not be removed; it is remembered further.
pub(crate) fn stale(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let (network, valid) = (&request.conf.network, &request.args.valid);
    let mut all = Ledger::of_host().all();
    all.retain(|record| record.shares.contains_key(Firewall::NAME));
    // An address of an attachment that is gone may be somebody's again: of one that is remembered, or of one that the
    // Go plugins added, whose address is not known here.
    let is_known = |attachment: Attachment| all.iter().any(|record| record.attachment == attachment);
    let mut named = valid
        .iter()
        .filter_map(|live| Attachment::new(network.as_str(), &live.container_id, &live.ifname).ok());
    if !named.all(is_known) {
        sys.notes_kept();
        return Ok(());
    }
    let is_stale =
        |record: &Record| record.attachment.network == *network && !record.attachment.is_among(valid);
    let (stale, live): (Vec<_>, Vec<_>) = all.iter().partition(|record| is_stale(record));
    let in_use: BTreeSet<IpAddr> =
        live.iter().flat_map(|record| addresses(record.notes(Firewall::NAME))).collect();
    let gone = stale.iter().flat_map(|record| addresses(record.notes(Firewall::NAME)));
    withdraw(&request.config, gone.filter(|ip| !in_use.contains(ip)).collect(), sys)
}
