// SPDX-License-Identifier: Apache-2.0
//! ADD: sysctls, then the interface, taken back when something fails.

use cnibox_harness::{AddArgs, Request};
use cnibox_netlink::LinkChange;
use cnibox_netns::sysctl;
use cnibox_spec::CniResult;
use cnibox_sys::{Failure, OrSay, Place, Sys, Txn, Undo, UndoStep};

use crate::allowlist;
use crate::backup::{Backup, BackupFile};
use crate::config::{Config, LinkPlan};
use crate::sysctls::sysctl_name;

/// ADD. Nothing is touched before all names are known to be allowed.
pub(crate) fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    allowlist::check(&config.sysctls)?;
    let mut sysctls = Vec::new();
    for (key, value) in &config.sysctls.0 {
        sysctls.push((sysctl_name(key, args.attachment.ifname.as_str())?, value.as_str()));
    }
    sys.open_pod(&args.netns)?;
    Txn::run(sys, |tx| {
        set(tx, &sysctls)?;
        if config.link.is_empty() {
            return Ok(());
        }
        // Before there is a file that GC could miss.
        tx.note(config.data_dir.to_str().map(str::to_owned).into_iter().collect())?;
        tune(tx, request)
    })
}

/// Sets sysctls in their order, all of them in one stay in the namespace: entering it costs more than a sysctl does.
fn set(tx: &mut Txn<'_, '_>, sysctls: &[(String, &str)]) -> Result<(), Failure> {
    if sysctls.is_empty() {
        return Ok(());
    }
    let mut former = Former::default();
    let replace = |(name, value): &(String, &str)| {
        former.0.extend(sysctl::replace(name, value)?.map(|before| (name.clone(), before)));
        Ok::<_, sysctl::Error>(())
    };
    let outcome = tx.shared(|sys| sys.inside(Place::Pod, || sysctls.iter().try_for_each(replace)))?;
    tx.risky_step(former, |_| outcome)
}

/// What sysctls were before they were replaced, oldest first. Of those that cannot be read (some are actions) nothing is
/// known, so they are not taken back.
#[derive(Debug, Default)]
struct Former(Vec<(String, String)>);

impl UndoStep for Former {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        // Each is tried: one that fails keeps none of the others from what it was.
        let restore = || self.0.iter().rev().filter_map(|(name, value)| sysctl::write(name, value).err());
        let failures: Vec<_> = sys.inside(Place::Pod, || restore().collect())?;
        Failure::combine(failures.into_iter().map(Failure::from))
    }
}

/// Saves what the interface is like, then changes it.
fn tune(tx: &mut Txn<'_, '_>, request: &Request<'_, Config, AddArgs>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    let ifname = args.attachment.ifname.as_str();
    let link = tx.sys().rtnl(Place::Pod)?.link_by_name(ifname);
    let link = link.or_say(|error| format!("failed to get {ifname:?}: {error}"))?;
    let file = BackupFile::new(&config.data_dir, args.attachment.container.as_str(), ifname);
    let backup = Backup::new(&config.link, &link);
    let save = |_: &mut Sys<'_>| file.write(&backup);
    if file.exists() {
        // An earlier ADD's, which is replaced as the reference replaces it.
        tx.shared(save)?;
    } else {
        tx.step(file.clone(), save)?;
    }
    let index = link.index;
    tx.risky_step(Undo::Settings { place: Place::Pod, link: Box::new(link) }, |sys| {
        Ok::<_, Failure>(sys.rtnl(Place::Pod)?.link_set(config.link.change(index))?)
    })
}

impl LinkPlan {
    /// All of it in one request.
    fn change(&self, index: u32) -> LinkChange {
        LinkChange::new(index)
            .given(self.mac, LinkChange::mac)
            .given(self.promisc.then_some(true), LinkChange::promisc)
            .given(self.mtu, LinkChange::mtu)
            .given(self.allmulti, LinkChange::allmulti)
            .given(self.txqlen, LinkChange::txqlen)
    }
}

/// The earlier plugin's result, with the new hardware address as the configuration writes it.
pub(crate) fn result(request: &Request<'_, Config, AddArgs>) -> CniResult {
    let mut result = request.config.prev_result.clone();
    if request.config.link.mac.is_some() {
        let ours = result
            .interfaces
            .iter_mut()
            .filter(|interface| interface.name == request.args.attachment.ifname.as_str());
        ours.for_each(|interface| interface.mac.clone_from(&request.config.mac_text));
    }
    result
}
