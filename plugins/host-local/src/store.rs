// SPDX-License-Identifier: Apache-2.0
//! A network's reservations, locked: the files, and the catalog (`catalog.rs`) that finds things in them.
//!
//! Owns the order in which files, memory and index change. Must never know a range or a configuration. Invariant: a
//! call that fails has reserved nothing that it did not report.

mod catalog;

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use cnibox_spec::LiveAttachment;
use cnibox_sys::{PrivateDir, lock_within};
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode};

use crate::boot;
use crate::error::{FileError, StoreError};
use crate::files::{Holder, LOCK, StateDir};
use crate::index::Index;
use crate::owner::Owner;
use crate::scan::Scan;
use catalog::{FilePages, name_of, stamp};

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

/// How long another process may hold the lock before this one gives up.
const PATIENCE: Duration = Duration::from_secs(30);
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
    /// The directory, also for what is kept beside the reservations.
    pub(crate) dir: StateDir,
    /// `None` from the moment that it cannot be believed.
    index: Option<Index<FilePages>>,
    /// What the files say; not read as long as there is an index.
    scan: Option<Scan>,
    /// Where the index is kept, and what it is called there; `None` when it cannot be kept.
    place: Option<(PrivateDir, String)>,
    /// The directory as it was when the files were going to be read, or the index was opened.
    opened: FileStat,
    changed: bool,
    // Given back when everything else is done: fields are dropped in this order.
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

    /// Takes the lock that all host-local plugins of a network share: `flock` on `lock`, as the reference takes it. Then
    /// opens the index, or scans.
    fn lock(dir: StateDir, terms: &Terms) -> Result<Self, StoreError> {
        let file = dir.open_file(LOCK, OFlag::O_CREAT | OFlag::O_RDONLY, Mode::from_bits_truncate(0o750))?;
        let held = lock_within(file, terms.patience)
            .map_err(|error| FileError::new("lock", &dir.path_of(LOCK), error))?
            .ok_or_else(|| StoreError::Busy { path: dir.path_of(LOCK), waited: terms.patience })?;
        let opened = dir.stat()?;
        let root = &terms.index;
        let place = root.ensure().is_ok().then(|| (root.clone(), name_of(dir.path())));
        let pages = place.as_ref().and_then(|(root, name)| FilePages::open(&root.path().join(name)));
        let index = pages.and_then(|pages| Index::open(pages, &stamp(&opened)));
        let scan = if index.is_none() { Some(Scan::of(&dir)?) } else { None };
        Ok(Self { dir, index, scan, place, opened, changed: false, _lock: held })
    }

    /// Whether any file is an owner's.
    pub(crate) fn has(&mut self, owner: &Owner) -> Result<bool, StoreError> {
        let has_address = !self.addresses_of(owner)?.is_empty();
        // What has no address's name is in no index.
        let mut strays = self.scan.iter().flat_map(|scan| &scan.strays);
        Ok(has_address || strays.any(|stray| stray.owner == *owner))
    }

    /// Reads all files again unless that was done already. `false`: it was.
    pub(crate) fn doubt(&mut self) -> Result<bool, StoreError> {
        let news = self.scan.is_none();
        self.scan()?;
        Ok(news)
    }

    /// Reserves an address and remembers it as the range set's last. What a crash left empty or damaged is replaced:
    /// all writers hold the lock, so nobody is about to fill it.
    pub(crate) fn reserve(&mut self, ip: IpAddr, owner: &Owner, set: usize) -> Result<Reserved, StoreError> {
        if !self.dir.create(ip, owner)? {
            let (replaced, holder) = match self.dir.holder(ip) {
                Holder::Debris => {
                    let removed = self.dir.remove_if_present(&ip.to_string()).is_ok();
                    (removed && self.dir.create(ip, owner)?, None)
                }
                Holder::Nobody => (self.dir.create(ip, owner)?, None),
                Holder::Taken(holder) => (false, holder),
            };
            if !replaced {
                self.note_reserved(holder.as_ref(), ip)?;
                return Ok(Reserved::Taken(holder));
            }
        }
        let cursor = self.dir.set_last_reserved(set, ip);
        let kept = cursor.map_err(StoreError::from).and_then(|()| self.note_reserved(Some(owner), ip));
        if let Err(error) = kept {
            let _ = self.dir.remove_if_present(&ip.to_string());
            return Err(error);
        }
        Ok(Reserved::Done)
    }

    /// Releases one address.
    pub(crate) fn release(&mut self, ip: IpAddr, owner: &Owner) -> Result<(), StoreError> {
        self.dir.remove_if_present(&ip.to_string())?;
        self.note_released(owner, ip)
    }

    /// Releases everything of an owner; answers with how much that was.
    ///
    /// # Errors
    /// The first address's file that could not be removed; the others were. A file of another name that cannot be
    /// removed stays and is no error, as in the reference.
    pub(crate) fn release_all(&mut self, owner: &Owner) -> Result<usize, StoreError> {
        let reservations: Vec<_> =
            self.addresses_of(owner)?.into_iter().map(|ip| (ip, owner.clone())).collect();
        let strays = self.take_strays_of(owner);
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
        let debris = std::mem::take(&mut self.scan()?.debris);
        let removed: Vec<_> = debris.iter().map(|ip| self.dir.remove_if_present(&ip.to_string())).collect();
        Ok(removed.into_iter().collect::<Result<Vec<_>, FileError>>().map(drop)?)
    }

    /// What was reserved before the host last booted.
    ///
    /// # Errors
    /// The files cannot be read.
    pub(crate) fn of_other_boots(&mut self) -> Result<Vec<(IpAddr, Owner)>, StoreError> {
        if !boot::is_another(&self.dir) {
            return Ok(Vec::new());
        }
        let mut owned = self.owned()?;
        owned.retain(|(ip, _)| boot::predates(&self.dir, &ip.to_string()));
        Ok(owned)
    }

    /// Releases what was reserved before the host last booted, and notes this boot.
    ///
    /// # Errors
    /// The first file that could not be removed; the others were.
    pub(crate) fn reclaim_other_boots(&mut self) -> Result<(), StoreError> {
        let older = self.of_other_boots()?;
        self.release_each(&older)?;
        Ok(boot::note_this(&self.dir)?)
    }

    fn owned(&mut self) -> Result<Vec<(IpAddr, Owner)>, StoreError> {
        let taken = self.scan()?.taken.iter();
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
