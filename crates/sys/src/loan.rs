// SPDX-License-Identifier: Apache-2.0
//! A link of the host that is lent to a container. Its name on the host is remembered in its `ifalias`, where the
//! reference keeps it, too: either can take back what the other has lent.
//!
//! Invariant: a link changes its name only inside the container. On the host, udev and NetworkManager would see a
//! second name for a moment and act on it. So it goes back in two steps, and between them its alias says whose it was.

use std::os::fd::AsFd;

use cnibox_netlink::{Error, Link, LinkChange};
use cnibox_netns::NetNs;
use cnibox_spec::IfName;
use thiserror::Error as ThisError;

use crate::{Coded, Failure, Place, Sys, Txn, Undo};

/// A lent link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Its name in the container.
    pub ifname: IfName,
    /// Its name on the host.
    pub host_name: String,
    /// Whether it was up there.
    pub was_up: bool,
}

/// Why a link could not be lent or taken back.
#[derive(Debug, ThisError)]
pub enum LoanError {
    /// The container refused it.
    #[error("failed to move link failed to move {ifname:?} (host: {host_name:?}) to container NS: {source}")]
    Lend {
        /// Its name in the container.
        ifname: String,
        /// Its name on the host.
        host_name: String,
        /// The kernel's answer.
        source: Error,
    },
    /// The container has an interface of that name.
    #[error(
        "failed to move link failed to move {ifname:?} (host: {host_name:?}) to container NS: file exists"
    )]
    NameTaken {
        /// The name.
        ifname: String,
        /// The link's name on the host.
        host_name: String,
    },
    /// It is not in the container although it has just been moved there.
    #[error("failed to move link failed to find {ifname:?} in container NS: {source}")]
    Find {
        /// Its name there.
        ifname: String,
        /// The kernel's answer.
        source: Error,
    },
    /// It did not go up.
    #[error("failed to move link failed to set {ifname:?} up: {source}")]
    Up {
        /// Its name.
        ifname: String,
        /// The kernel's answer.
        source: Error,
    },
    /// The interface is nobody's loan.
    #[error("failed to find original ifname for {0:?} (alias is not set)")]
    NoAlias(String),
    /// It could not get its former name.
    #[error("failed to rename device {ifname:?} to {host_name:?}: {source}")]
    Rename {
        /// Its name in the container.
        ifname: String,
        /// Its name on the host.
        host_name: String,
        /// The kernel's answer.
        source: Error,
    },
    /// The host refused it.
    #[error("failed to move {host_name:?} to hostNS: {source}")]
    Return {
        /// Its name.
        host_name: String,
        /// The kernel's answer.
        source: Error,
    },
}

impl Coded for LoanError {}

impl Txn<'_, '_> {
    /// Moves the host's `link` into the container as `ifname` and brings it up there.
    ///
    /// # Errors
    /// [`LoanError`]; the link is back on the host then, as it was.
    pub fn link_lend(&mut self, link: &Link, ifname: &IfName) -> Result<Link, Failure> {
        let name = || ifname.to_string();
        let loan = Loan { ifname: ifname.clone(), host_name: link.name.clone(), was_up: link.is_up() };
        if self.sys().rtnl(Place::Pod)?.link_by_name_if_present(ifname.as_str())?.is_some() {
            return Err(LoanError::NameTaken { ifname: name(), host_name: link.name.clone() }.into());
        }
        self.sys().attempt_begins()?;
        // A move that fails half-way (somebody takes the name in this very moment) is taken back as well.
        self.attempt(Undo::Loan(loan), |sys| sys.link_move_in(link, ifname))?;
        self.shared(|sys| {
            let rtnl = sys.rtnl(Place::Pod)?;
            let find = |source| Failure::from(LoanError::Find { ifname: name(), source });
            let lent = rtnl.link_by_name(ifname.as_str()).map_err(find)?;
            let refused = |source| LoanError::Up { ifname: name(), source };
            rtnl.link_set_up(lent.index).map_err(refused)?;
            Ok::<_, Failure>(lent)
        })
    }
}

impl Sys<'_> {
    /// One request: the kernel moves first and changes name and alias in the container.
    fn link_move_in(&mut self, link: &Link, ifname: &IfName) -> Result<(), Failure> {
        let pod = self.pod().ok_or(crate::PodNotOpen)?.netns.as_fd().try_clone_to_owned();
        let pod = pod.map_err(|source| Error::Socket { operation: "dup", source })?;
        let change = LinkChange::new(link.index).netns(pod.as_fd()).name(ifname.as_str()).alias(&link.name);
        let refused =
            |source| LoanError::Lend { ifname: ifname.to_string(), host_name: link.name.clone(), source };
        Ok(self.host()?.link_set(change).map_err(refused)?)
    }

    /// Takes back the container's interface `ifname` under its name on the host, where it stays down: nobody knows how
    /// it was. False when the container has no such interface.
    ///
    /// # Errors
    /// [`LoanError`]; the interface is in the container then, as it was.
    pub fn link_return(&mut self, ifname: &IfName) -> Result<bool, Failure> {
        let rtnl = self.rtnl(Place::Pod)?;
        let Some(lent) = rtnl.link_by_name_if_present(ifname.as_str())? else {
            return self.link_return_half_way(ifname);
        };
        let host_name = lent.alias.clone().filter(|alias| !alias.is_empty());
        let host_name = host_name.ok_or_else(|| LoanError::NoAlias(ifname.to_string()))?;
        // Before Linux 6.2 only a link that is down changes its name; moving takes it down anyway.
        rtnl.link_set_down(lent.index)?;
        let returned = self.link_move_out(&lent, &host_name);
        if returned.is_err() {
            let mut restore = LinkChange::new(lent.index).name(ifname.as_str()).alias(&host_name);
            if lent.is_up() {
                restore = restore.up();
            }
            // The failure is what matters; DEL will be tried again.
            let _ = self.rtnl(Place::Pod)?.link_set(restore);
        }
        returned.map(|()| true)
    }

    /// Takes back what a killed call has given its name already.
    fn link_return_half_way(&mut self, ifname: &IfName) -> Result<bool, Failure> {
        let returning = returning(ifname.as_str());
        let links = self.rtnl(Place::Pod)?.links()?;
        let Some(link) = links.into_iter().find(|link| link.alias.as_ref() == Some(&returning)) else {
            return Ok(false);
        };
        self.link_move_home(LinkChange::new(link.index), &link.name).map(|()| true)
    }

    fn link_move_out(&mut self, lent: &Link, host_name: &str) -> Result<(), Failure> {
        let rtnl = self.rtnl(Place::Pod)?;
        let renamed = LinkChange::new(lent.index).alias(&returning(&lent.name)).name(host_name);
        let mut change = LinkChange::new(lent.index);
        match rtnl.link_set(renamed) {
            Ok(()) => {}
            // Another interface of the container has the name: then it is changed on the host.
            Err(error) if error.is_exists() => change = change.name(host_name),
            Err(source) => {
                let (ifname, host_name) = (lent.name.clone(), host_name.to_owned());
                return Err(LoanError::Rename { ifname, host_name, source }.into());
            }
        }
        self.link_move_home(change, host_name)
    }

    fn link_move_home(&mut self, change: LinkChange, host_name: &str) -> Result<(), Failure> {
        let home = NetNs::current()?;
        // The kernel moves first.
        let moved = self.rtnl(Place::Pod)?.link_set(change.alias("").netns(home.as_fd()));
        Ok(moved.map_err(|source| LoanError::Return { host_name: host_name.to_owned(), source })?)
    }

    /// Takes back a loan that failed, also one that got stuck under its own name, and restores the up state.
    pub(crate) fn loan_undo(&mut self, loan: &Loan) -> Result<(), Failure> {
        if self.host()?.link_by_name_if_present(&loan.host_name)?.is_some() {
            return Ok(());
        }
        if !self.link_return(&loan.ifname)? {
            let home = NetNs::current()?;
            let rtnl = self.rtnl(Place::Pod)?;
            let stuck = rtnl.link_by_name(&loan.host_name)?;
            rtnl.link_set(LinkChange::new(stuck.index).netns(home.as_fd()))?;
        }
        let rtnl = self.host()?;
        let link = rtnl.link_by_name(&loan.host_name)?;
        if loan.was_up {
            rtnl.link_set_up(link.index)?;
        }
        Ok(())
    }
}

/// The alias of a link that has its name on the host again and is still in the container.
fn returning(ifname: &str) -> String {
    format!("cnibox:returning:{ifname}")
}
