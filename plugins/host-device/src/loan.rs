// SPDX-License-Identifier: Apache-2.0
//! A link of the host that is lent to a container. Which one it was and what it was called is noted in the ledger, where
//! the container cannot change it; for the reference's sake its name on the host is in its `ifalias`, too, so that
//! either can take back what the other has lent.
//!
//! Invariant: a link changes its name only inside the container. On the host, udev and NetworkManager would see a
//! second name for a moment and act on it. So it goes back in two steps; whoever is killed between them has left it in
//! the container under its former name, where the next DEL knows it by its index.

use std::os::fd::AsFd;

use cnibox_harness::Plugin;
use cnibox_netlink::{Error, Link, LinkChange, Rtnl};
use cnibox_netns::NetNs;
use cnibox_spec::{Attachment, IfName, NetnsPath};
use cnibox_sys::{Failure, Ledger, OrSay, Place, Sys, Txn, UndoStep, is_name_pattern};

use crate::HostDevice;
use crate::config::Wanted;
use crate::device::Device;
use crate::find;

/// Moves the host's `link` into the container as `ifname` and brings it up there.
///
/// # Errors
/// What the kernel refused; the link is back on the host then, as it was.
pub(crate) fn lend(tx: &mut Txn<'_, '_>, link: &Link, ifname: &IfName) -> Result<Link, Failure> {
    let name = ifname.as_str();
    let not_found =
        |error: &Error| format!("failed to move link failed to find {name:?} in container NS: {error}");
    if is_name_pattern(ifname) {
        return Err(Failure::internal(not_found(&Error::LinkNotFound)));
    }
    if tx.sys().rtnl(Place::Pod)?.link_by_name_if_present(name)?.is_some() {
        return Err(Failure::internal(format!("{}: file exists", cannot_lend(link, ifname))));
    }
    tx.sys().attempt_begins()?;
    let device = Device::of(link);
    tx.note(device.notes())?;
    // A move that fails half-way (somebody takes the name in this very moment) is taken back as well.
    let loan = Loan { device, ifname: ifname.clone(), was_up: link.is_up() };
    tx.risky_step(loan, |sys| move_in(sys, link, ifname))?;
    tx.shared(|sys| {
        let rtnl = sys.rtnl(Place::Pod)?;
        let lent = rtnl.link_by_name(name).or_say(not_found)?;
        sys.attempt_made_link(&lent)?;
        let up = sys.rtnl(Place::Pod)?.link_set_up(lent.index);
        up.or_say(|error| format!("failed to move link failed to set {name:?} up: {error}"))?;
        Ok::<_, Failure>(lent)
    })
}

/// Takes back the link that was lent to the attachment, under its name on the host, where it stays down: nobody knows how it
/// was. With the namespace gone the kernel has already given it back. What the ledger says counts; what is lent and not
/// noted there has its name on the host for an alias, as the reference gives it. While the `wanted` device is on the host
/// under another name, a link that the container can have made is no loan.
///
/// # Errors
/// What the kernel refused; the link is in the container then.
pub(crate) fn take_back(
    sys: &mut Sys<'_>,
    netns: Option<&NetnsPath>,
    attachment: &Attachment,
    wanted: Option<&Wanted>,
) -> Result<(), Failure> {
    let Some(netns) = netns else { return Ok(()) };
    if sys.open_pod_named_if_present(netns)?.is_none() {
        return Ok(());
    }
    let (lent, host_name) = match Device::noted(sys.notes()) {
        Some(device) => match lent_link(sys, &device, &attachment.ifname)? {
            // It was given back before, and lent again.
            Some(lent) if sys.noted_as_anothers(&lent)?.is_some() => return Ok(()),
            Some(lent) => (lent, device.host_name),
            None => return expect_home(sys, &device),
        },
        None => {
            let lent = sys.rtnl(Place::Pod)?.link_by_name_if_present(attachment.ifname.as_str())?;
            let Some(lent) = lent else { return Ok(()) };
            match unnoted_name(sys, attachment, wanted, &lent)? {
                Some(host_name) => (lent, host_name),
                None => return Ok(()),
            }
        }
    };
    move_out(sys, &lent, &host_name)
}

/// The name on the host of a link that nobody noted for this attachment; `None` for one that is not its loan.
fn unnoted_name(
    sys: &mut Sys<'_>,
    attachment: &Attachment,
    wanted: Option<&Wanted>,
    lent: &Link,
) -> Result<Option<String>, Failure> {
    let home = wanted.and_then(|device| find::link(sys, device).ok());
    if let Some(owner) = sys.noted_as_anothers(lent)? {
        // What the same container was lent as this interface is this attachment's under an earlier name of the network, unless
        // this one's device has never left the host.
        if home.is_some() || !owner.is_same_interface(attachment) {
            return Ok(None);
        }
        let device =
            Ledger::of_host().read(&owner).and_then(|record| Device::noted(record.notes(HostDevice::NAME)));
        return Ok(device.filter(|device| device.is(lent)).map(|device| device.host_name));
    }
    if sys.is_anothers(lent)? {
        return Ok(None);
    }
    let host_name = lent.alias.clone().filter(|alias| !alias.is_empty());
    let host_name = host_name.ok_or_else(|| {
        Failure::internal(format!("failed to find original ifname for {:?} (alias is not set)", lent.name))
    })?;
    // By its own name on the host there may be another device by now, so that this one cannot go home.
    let is_home = home.is_some_and(|home| home.name != host_name);
    if is_home && !sys.came_from_host(Place::Pod, lent)? {
        return Ok(None);
    }
    Ok(Some(host_name))
}

/// The link in the container: by its index there, whatever it is called now; or, as long as that is not noted, by its
/// name. Another link in its place is not it.
fn lent_link(sys: &mut Sys<'_>, device: &Device, ifname: &IfName) -> Result<Option<Link>, Failure> {
    let index = sys.made_link().map(|link| link.index);
    let rtnl = sys.rtnl(Place::Pod)?;
    let found = match index {
        Some(index) => rtnl.link_by_index_if_present(index)?,
        None => match rtnl.link_by_name_if_present(ifname.as_str())? {
            Some(link) => Some(link),
            None => rtnl.link_by_name_if_present(&device.host_name)?,
        },
    };
    Ok(found.filter(|link| device.is(link)))
}

/// A link that is not in the container must be on the host, or be of a kind that anybody can delete.
fn expect_home(sys: &mut Sys<'_>, device: &Device) -> Result<(), Failure> {
    let home = sys.host()?.link_by_name_if_present(&device.host_name)?;
    if home.is_some_and(|link| device.is(&link)) || device.is_virtual() {
        return Ok(());
    }
    Err(lost(device))
}

fn lost(device: &Device) -> Failure {
    Failure::internal(format!(
        "failed to find {:?}, which was lent to the container, in container NS",
        device.host_name
    ))
}

fn cannot_lend(link: &Link, ifname: &IfName) -> String {
    format!(
        "failed to move link failed to move {:?} (host: {:?}) to container NS",
        ifname.as_str(),
        link.name
    )
}

/// One request: the kernel moves first and changes name and alias in the container.
fn move_in(sys: &mut Sys<'_>, link: &Link, ifname: &IfName) -> Result<(), Failure> {
    let pod = sys.opened_pod()?.netns.as_fd().try_clone_to_owned();
    let pod = pod.map_err(|source| Error::Socket { operation: "dup", source })?;
    let change = LinkChange::new(link.index).netns(pod.as_fd()).name(ifname.as_str()).alias(&link.name);
    sys.host()?.link_set(change).or_say(|error| format!("{}: {error}", cannot_lend(link, ifname)))
}

/// In two steps. A name that is taken is found out before the first, since the kernel moves first.
fn move_out(sys: &mut Sys<'_>, lent: &Link, host_name: &str) -> Result<(), Failure> {
    if sys.host()?.link_by_name_if_present(host_name)?.is_some() {
        return Err(Failure::internal(format!("failed to move {host_name:?} to hostNS: file exists")));
    }
    let mut taken: Vec<&str> = vec![host_name];
    for name in &lent.alternative_names {
        if sys.host()?.link_by_name_if_present(name)?.is_some() {
            taken.push(name);
        }
    }
    let rtnl = sys.rtnl(Place::Pod)?;
    free_of_names(rtnl, lent, &taken)?;
    // Before Linux 6.2 only a link that is down changes its name; moving takes it down anyway.
    rtnl.link_set_down(lent.index)?;
    let mut home = LinkChange::new(lent.index);
    match rtnl.link_set(LinkChange::new(lent.index).name(host_name)) {
        Ok(()) => {}
        // Another interface of the container has the name: then it is changed on the host.
        Err(error) if error.is_exists() => home = home.name(host_name),
        refused => {
            stay(sys, lent)?;
            refused.or_say(|error| {
                format!("failed to rename device {:?} to {host_name:?}: {error}", lent.name)
            })?;
        }
    }
    let fd = NetNs::current()?;
    let moved = sys.rtnl(Place::Pod)?.link_set(home.alias("").netns(fd.as_fd()));
    if moved.is_err() {
        stay(sys, lent)?;
    }
    moved.or_say(|error| format!("failed to move {host_name:?} to hostNS: {error}"))
}

/// The link loses the alternative names that are `taken`: they move along, the kernel lets no two links of a namespace have
/// one name, and a container gives its links any.
fn free_of_names(rtnl: &mut Rtnl, lent: &Link, taken: &[&str]) -> Result<(), Failure> {
    for name in lent.alternative_names.iter().filter(|name| taken.contains(&name.as_str())) {
        rtnl.link_alternative_name_del(lent.index, name)?;
    }
    Ok(())
}

/// The link stays in the container, as it was. The failure is what matters; DEL will be tried again.
fn stay(sys: &mut Sys<'_>, lent: &Link) -> Result<(), Failure> {
    let mut restore = LinkChange::new(lent.index).name(&lent.name);
    if lent.is_up() {
        restore = restore.up();
    }
    let _ = sys.rtnl(Place::Pod)?.link_set(restore);
    Ok(())
}

/// Takes back a loan that failed, also one that got stuck under its own name, and restores the up state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loan {
    device: Device,
    /// The link's name in the container.
    ifname: IfName,
    /// Whether it was up on the host.
    was_up: bool,
}

impl UndoStep for Loan {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        if self.at_home(sys)?.is_none()
            && let Some(lent) = lent_link(sys, &self.device, &self.ifname)?
        {
            move_out(sys, &lent, &self.device.host_name)?;
        }
        let link = self.at_home(sys)?.ok_or_else(|| lost(&self.device))?;
        if self.was_up {
            sys.host()?.link_set_up(link.index)?;
        }
        Ok(())
    }
}

impl Loan {
    /// The device on the host. Somebody may have taken its name for another link.
    fn at_home(&self, sys: &mut Sys<'_>) -> Result<Option<Link>, Failure> {
        let found = sys.host()?.link_by_name_if_present(&self.device.host_name)?;
        Ok(found.filter(|link| self.device.is(link)))
    }
}
