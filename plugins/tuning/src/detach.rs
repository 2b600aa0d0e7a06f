// SPDX-License-Identifier: Apache-2.0
//! DEL and GC: settings back as they were, and no file left.

use cnibox_harness::{DelArgs, GcArgs, Plugin, Request};
use cnibox_spec::{Attachment, NetnsPath};
use cnibox_sys::{Failure, Ledger, Place, Sys};

use crate::Tuning;
use crate::backup::{Backup, BackupFile};
use crate::config::Config;

/// DEL. As in the reference nothing that cannot be restored is an error: the interface is about to go anyway, and an
/// error would keep the plugins before this one from removing it. Where there is nothing left to restore, the file goes;
/// it stays for a later DEL while the interface may live, wherever that is, and where another attachment needs it.
pub(crate) fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    let (attachment, netns) = (&args.attachment, args.netns.as_ref());
    let file = BackupFile::new(&config.data_dir, attachment.container.as_str(), attachment.ifname.as_str());
    let is_done = match file.read() {
        Some(backup) if or_warn(sys, |sys| is_reached(sys, netns)) => {
            or_warn(sys, |sys| restore(sys, attachment, &backup))
        }
        Some(_) => !sys.interface_may_live(netns),
        None => true,
    };
    if !is_done {
        sys.notes_kept();
        return Ok(());
    }
    if is_anothers(attachment) {
        return Ok(());
    }
    file.remove_if_present()
}

/// Whether the file is that of the same interface of the same container in another network, which its name does not tell.
fn is_anothers(attachment: &Attachment) -> bool {
    let records = Ledger::of_host().of_container(&attachment.container);
    let mut others = records.iter().filter(|record| record.attachment != *attachment);
    others.any(|record| {
        let share = record.shares.get(Tuning::NAME);
        record.attachment.is_same_interface(attachment) && share.is_some_and(|share| !share.superseded)
    })
}

fn is_reached(sys: &mut Sys<'_>, netns: Option<&NetnsPath>) -> Result<bool, Failure> {
    let Some(netns) = netns else { return Ok(false) };
    Ok(sys.open_pod_if_present(netns)?.is_some())
}

/// Restores what it can. Answers whether there is nothing left to restore: the interface is as it was, or is gone, or is
/// another attachment's.
fn restore(sys: &mut Sys<'_>, attachment: &Attachment, backup: &Backup) -> Result<bool, Failure> {
    let Some(link) = sys.interface_in_pod(attachment)? else { return Ok(!sys.is_elsewhere()) };
    if sys.is_anothers(&link)? {
        return Ok(true);
    }
    let rtnl = sys.rtnl(Place::Pod)?;
    let outcomes = backup.changes(link.index).map(|(what, change)| (what, rtnl.link_set(change)));
    let failed: Vec<_> = outcomes
        .filter_map(|(what, outcome)| Some(format!("failed to restore {what}: {}", outcome.err()?)))
        .collect();
    if !failed.is_empty() {
        sys.warn(failed.join("; "));
    }
    Ok(failed.is_empty())
}

/// What could not be found out or done is a warning, and not so.
fn or_warn(sys: &mut Sys<'_>, ask: impl FnOnce(&mut Sys<'_>) -> Result<bool, Failure>) -> bool {
    ask(sys).unwrap_or_else(|failure| {
        sys.warn(failure);
        false
    })
}

/// GC. The name of a backup does not tell the network, and other networks' backups are in the same directory. So only
/// those go that ADD has remembered for this network; a backup that the Go plugin made is left to DEL.
pub(crate) fn gc(request: &Request<'_, Config, GcArgs>) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut stale = Ledger::of_host().stale(&request.conf.network, &request.args.valid);
    stale.retain(|record| record.shares.contains_key(Tuning::NAME));
    for record in stale {
        let (container, ifname) = (record.attachment.container.as_str(), record.attachment.ifname.as_str());
        let dir = record.notes(Tuning::NAME).first();
        let dir = dir.map_or(request.config.data_dir.as_path(), std::path::Path::new);
        failures.extend(BackupFile::new(dir, container, ifname).remove_if_present().err());
    }
    Failure::combine(failures)
}
