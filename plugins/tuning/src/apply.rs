// SPDX-License-Identifier: Apache-2.0
//! ADD: sysctls, then the interface, taken back when something fails.

use cnibox_harness::{AddArgs, Request};
use cnibox_netlink::{Error, LinkChange};
use cnibox_netns::sysctl;
use cnibox_spec::CniResult;
use cnibox_sys::{Coded, Failure, Place, Sys, Txn, Undo};
use thiserror::Error as ThisError;

use crate::allowlist;
use crate::backup::{Backup, BackupFile};
use crate::config::{Config, LinkPlan};
use crate::sysctls::SysctlName;

/// What the kernel refused.
#[derive(Debug, ThisError)]
enum ApplyError {
    #[error("failed to get {0:?}: {1}")]
    NoLink(String, #[source] Error),
}

impl Coded for ApplyError {}

/// ADD. Nothing is touched before all names are known to be allowed.
pub(crate) fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    allowlist::check(&config.sysctls)?;
    let mut sysctls = Vec::new();
    for (key, value) in &config.sysctls.0 {
        sysctls.push((SysctlName::new(key, args.attachment.ifname.as_str())?, value.as_str()));
    }
    sys.open_pod(&args.netns)?;
    Txn::run(sys, |tx| {
        for (name, value) in &sysctls {
            write(tx, name, value)?;
        }
        if config.link.is_empty() {
            return Ok(());
        }
        // Before there is a file that GC could miss.
        tx.note(config.data_dir.to_str().map(str::to_owned).into_iter().collect())?;
        tune(tx, request)
    })
}

fn write(tx: &mut Txn<'_, '_>, name: &SysctlName, value: &str) -> Result<(), Failure> {
    // What cannot be read (some sysctls are actions) cannot be taken back either.
    let before = tx.sys().inside(Place::Pod, || sysctl::read(name.as_str()))?;
    let work = |sys: &mut Sys<'_>| Ok::<_, Failure>(sys.inside(Place::Pod, || name.write(value))??);
    match before {
        Ok(before) => {
            tx.step(Undo::Sysctl { place: Place::Pod, name: name.as_str().to_owned(), value: before }, work)
        }
        Err(_) => tx.shared(work),
    }
}

/// Saves what the interface is like, then changes it.
fn tune(tx: &mut Txn<'_, '_>, request: &Request<'_, Config, AddArgs>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    let ifname = args.attachment.ifname.as_str();
    let link = tx.sys().rtnl(Place::Pod)?.link_by_name(ifname);
    let link = link.map_err(|error| ApplyError::NoLink(ifname.to_owned(), error))?;
    let file = BackupFile::new(&config.data_dir, args.attachment.container.as_str(), ifname);
    let backup = Backup::new(&config.link, &link);
    let save = |_: &mut Sys<'_>| file.write(&backup);
    if file.exists() {
        // An earlier ADD's, which is replaced as the reference replaces it.
        tx.shared(save)?;
    } else {
        tx.step(Undo::File(file.path().to_owned()), save)?;
    }
    let index = link.index;
    tx.risky_step(Undo::Settings { place: Place::Pod, link: Box::new(link) }, |sys| {
        Ok::<_, Failure>(sys.rtnl(Place::Pod)?.link_set(config.link.change(index))?)
    })
}

impl LinkPlan {
    /// All of it in one request.
    fn change(&self, index: u32) -> LinkChange {
        let mut change = LinkChange::new(index);
        if let Some(mac) = self.mac {
            change = change.mac(mac);
        }
        if self.promisc {
            change = change.promisc(true);
        }
        if let Some(mtu) = self.mtu {
            change = change.mtu(mtu);
        }
        if let Some(on) = self.allmulti {
            change = change.allmulti(on);
        }
        if let Some(packets) = self.txqlen {
            change = change.txqlen(packets);
        }
        change
    }
}

/// The earlier plugin's result, with the new hardware address as the configuration writes it.
pub(crate) fn result(request: &Request<'_, Config, AddArgs>, previous: &CniResult) -> CniResult {
    let mut result = previous.clone();
    if request.config.link.mac.is_some() {
        let ours = result
            .interfaces
            .iter_mut()
            .filter(|interface| interface.name == request.args.attachment.ifname.as_str());
        ours.for_each(|interface| interface.mac.clone_from(&request.config.mac_text));
    }
    result
}
