// SPDX-License-Identifier: Apache-2.0
//! DEL and GC: settings back as they were, and no file left.

use cnibox_harness::{DelArgs, GcArgs, Plugin, Request};
use cnibox_spec::NetnsPath;
use cnibox_sys::{Failure, Memo, Memory, Place, Sys};

use crate::Tuning;
use crate::backup::{Backup, BackupFile};
use crate::config::Config;

/// DEL. As in the reference nothing that cannot be restored is an error: the interface is about to go anyway, and an
/// error would keep the plugins before this one from removing it. Where there is nothing left to restore, the file goes.
pub(crate) fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { conf, config, args } = request;
    let (container, ifname) = (args.container.as_str(), args.ifname.as_str());
    let file = BackupFile::new(&config.data_dir, container, ifname);
    let failed = match (&args.netns, file.read()) {
        (Some(netns), Some(backup)) => restore(sys, netns, ifname, &backup),
        _ => Vec::new(),
    };
    if !failed.is_empty() {
        // A second DEL may have more luck.
        sys.warn(failed.join("; "));
        return Ok(());
    }
    file.remove_if_present()?;
    Memory::of(Tuning::NAME).forget(&Memo::new(&conf.network, &args.container, &args.ifname));
    Ok(())
}

/// What could not be restored of an interface that is there.
fn restore(sys: &mut Sys<'_>, netns: &NetnsPath, ifname: &str, backup: &Backup) -> Vec<String> {
    match sys.open_pod_if_present(netns) {
        Ok(Some(_)) => {}
        Ok(None) => return Vec::new(),
        Err(failure) => {
            sys.warn(failure);
            return Vec::new();
        }
    }
    let Ok(rtnl) = sys.rtnl(Place::Pod) else { return Vec::new() };
    let Ok(link) = rtnl.link_by_name(ifname) else { return Vec::new() };
    let changes = backup.changes(link.index);
    let outcomes = changes.map(|(what, change)| (what, rtnl.link_set(change)));
    outcomes
        .filter_map(|(what, outcome)| Some(format!("failed to restore {what}: {}", outcome.err()?)))
        .collect()
}

/// GC. The name of a backup does not tell the network, and other networks' backups are in the same directory. So only
/// those go that ADD has remembered for this network; a backup that the Go plugin made is left to DEL.
pub(crate) fn gc(request: &Request<'_, Config, GcArgs>) -> Result<(), Failure> {
    let memory = Memory::of(Tuning::NAME);
    let mut failures = Vec::new();
    for memo in memory.stale(&request.conf.network, &request.args.valid) {
        let dir = memo.notes.first().map_or(request.config.data_dir.as_path(), std::path::Path::new);
        match BackupFile::new(dir, &memo.container, &memo.ifname).remove_if_present() {
            Ok(()) => memory.forget(&memo),
            Err(error) => failures.push(error.into()),
        }
    }
    Failure::collect(failures)
}
