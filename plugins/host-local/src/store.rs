// SPDX-License-Identifier: Apache-2.0
//! A network's reservations, locked: the files, and the catalog that finds things in them.
//!
//! Owns the order in which files, memory and index change. Must never know a range or a configuration. Invariant: a
//! call that fails has reserved nothing that it did not report.

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use cnibox_spec::LiveAttachment;
use cnibox_sys::PrivateDir;

use crate::boot;
use crate::catalog::Catalog;
use crate::error::{FileError, StoreError};
use crate::files::{Holder, StateDir};
use crate::lock::{self, PATIENCE};
use crate::owner::Owner;

/// Where the index lives and how long the lock is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Directory of the indexes.
    pub(crate) index: PrivateDir,
    /// The longest wait for the lock.
    pub(crate) patience: Duration,
}

impl Terms {
    /// Those of a plugin in use.
    pub(crate) fn of_host() -> Self {
        Self { index: PrivateDir::of_host("").below(INDEX_DIR), patience: PATIENCE }
    }
}

/// Where indexes live below what is this program's own: gone after a boot, and made by whoever needs it.
const INDEX_DIR: &str = "host-local";

/// What came of an attempt to reserve an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// It is reserved now.
    Done,
    /// It was reserved before, by this owner if that can be told.
    Taken(Option<Owner>),
}

/// The locked state of a network.
#[derive(Debug)]
pub(crate) struct Store {
    catalog: Catalog,
    // Given back when the catalog is done: fields are dropped in this order.
    _lock: File,
}

impl Store {
    /// Opens and locks the state, which is made where it is missing.
    ///
    /// # Errors
    /// It cannot be made, opened, locked in time or read.
    pub(crate) fn ensure(path: &Path, terms: &Terms) -> Result<Self, StoreError> {
        Self::lock(StateDir::ensure(path)?, terms)
    }

    /// Opens and locks the state; `None` when there is none, which is then left so.
    pub(crate) fn open_if_present(path: &Path, terms: &Terms) -> Result<Option<Self>, StoreError> {
        let dir = StateDir::open_if_present(path)?;
        dir.map(|dir| Self::lock(dir, terms)).transpose()
    }

    fn lock(dir: StateDir, terms: &Terms) -> Result<Self, StoreError> {
        let lock = lock::take(&dir, terms.patience)?;
        Ok(Self { catalog: Catalog::open(dir, &terms.index)?, _lock: lock })
    }

    /// The directory, for what is kept beside the reservations.
    pub(crate) fn dir(&self) -> &StateDir {
        &self.catalog.dir
    }

    /// The addresses of an owner.
    pub(crate) fn addresses_of(&mut self, owner: &Owner) -> Result<Vec<IpAddr>, StoreError> {
        Ok(self.catalog.addresses_of(owner)?)
    }

    /// Whether any file is an owner's.
    pub(crate) fn has(&mut self, owner: &Owner) -> Result<bool, StoreError> {
        Ok(!self.addresses_of(owner)?.is_empty() || self.catalog.has_strays_of(owner))
    }

    /// The first address of `from..=to` that is not taken.
    pub(crate) fn first_unused(&mut self, from: IpAddr, to: IpAddr) -> Result<Option<IpAddr>, StoreError> {
        Ok(self.catalog.first_unused(from, to)?)
    }

    /// Reads all files again unless that was done already. `false`: it was.
    pub(crate) fn doubt(&mut self) -> Result<bool, StoreError> {
        let news = !self.catalog.is_scanned();
        self.catalog.scan()?;
        Ok(news)
    }

    /// Reserves an address and remembers it as the range set's last. What a crash left empty or damaged is replaced:
    /// all writers hold the lock, so nobody is about to fill it.
    pub(crate) fn reserve(&mut self, ip: IpAddr, owner: &Owner, set: usize) -> Result<Reserved, StoreError> {
        if !self.dir().create(ip, owner)? {
            let (replaced, holder) = match self.dir().holder(ip) {
                Holder::Debris => {
                    let removed = self.dir().remove_if_present(&ip.to_string()).is_ok();
                    (removed && self.dir().create(ip, owner)?, None)
                }
                Holder::Nobody => (self.dir().create(ip, owner)?, None),
                Holder::Taken(holder) => (false, holder),
            };
            if !replaced {
                self.catalog.insert(holder.as_ref(), ip)?;
                return Ok(Reserved::Taken(holder));
            }
        }
        let cursor = self.dir().set_last_reserved(set, ip);
        let kept = cursor.and_then(|()| self.catalog.insert(Some(owner), ip));
        if let Err(error) = kept {
            let _ = self.dir().remove_if_present(&ip.to_string());
            return Err(error.into());
        }
        Ok(Reserved::Done)
    }

    /// Releases one address.
    pub(crate) fn release(&mut self, ip: IpAddr, owner: &Owner) -> Result<(), StoreError> {
        self.dir().remove_if_present(&ip.to_string())?;
        Ok(self.catalog.remove(owner, ip)?)
    }

    /// Releases everything of an owner; answers with how much that was.
    ///
    /// # Errors
    /// The first address's file that could not be removed; the others were. A file of another name that cannot be
    /// removed stays and is no error, as in the reference.
    pub(crate) fn release_all(&mut self, owner: &Owner) -> Result<usize, StoreError> {
        let reservations: Vec<_> =
            self.addresses_of(owner)?.into_iter().map(|ip| (ip, owner.clone())).collect();
        let strays = self.catalog.take_strays_of(owner);
        strays.iter().for_each(|stray| stray.remove());
        self.release_each(&reservations)?;
        Ok(reservations.len() + strays.len())
    }

    /// Every reservation whose attachment is not in `valid`. A reservation without an interface is its container's; what no
    /// plugin wrote is nobody's.
    ///
    /// # Errors
    /// The files cannot be read.
    pub(crate) fn stale(&mut self, valid: &[LiveAttachment]) -> Result<Vec<(IpAddr, Owner)>, StoreError> {
        let mut owned = self.owned()?;
        owned.retain(|(_, owner)| owner.is_attachment() && !owner.is_among(valid));
        Ok(owned)
    }

    /// Removes what crashes left.
    ///
    /// # Errors
    /// The first file that could not be removed; the others were.
    pub(crate) fn sweep(&mut self) -> Result<(), StoreError> {
        let debris = std::mem::take(&mut self.catalog.scan()?.debris);
        let removed: Vec<_> = debris.iter().map(|ip| self.dir().remove_if_present(&ip.to_string())).collect();
        Ok(removed.into_iter().collect::<Result<Vec<_>, FileError>>().map(drop)?)
    }

    /// What was reserved before the host last booted.
    ///
    /// # Errors
    /// The files cannot be read.
    pub(crate) fn of_other_boots(&mut self) -> Result<Vec<(IpAddr, Owner)>, StoreError> {
        if !boot::is_another(self.dir()) {
            return Ok(Vec::new());
        }
        let mut owned = self.owned()?;
        owned.retain(|(ip, _)| boot::predates(self.dir(), &ip.to_string()));
        Ok(owned)
    }

    /// Releases what was reserved before the host last booted, and notes this boot.
    ///
    /// # Errors
    /// The first file that could not be removed; the others were.
    pub(crate) fn reclaim_other_boots(&mut self) -> Result<(), StoreError> {
        let older = self.of_other_boots()?;
        self.release_each(&older)?;
        Ok(boot::note_this(self.dir())?)
    }

    fn owned(&mut self) -> Result<Vec<(IpAddr, Owner)>, StoreError> {
        let taken = self.catalog.scan()?.taken.iter();
        Ok(taken.filter_map(|(ip, owner)| Some((*ip, owner.clone()?))).collect())
    }

    /// Releases these reservations.
    ///
    /// # Errors
    /// The first file that could not be removed; the others were.
    pub(crate) fn release_each(&mut self, reservations: &[(IpAddr, Owner)]) -> Result<(), StoreError> {
        let released: Vec<_> = reservations.iter().map(|(ip, owner)| self.release(*ip, owner)).collect();
        released.into_iter().collect()
    }
}
