// SPDX-License-Identifier: Apache-2.0
//! Who holds what: answered by the index while it can be believed, else by a scan that becomes the next index.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use cnibox_spec::shortened;
use cnibox_sys::PrivateDir;
use nix::sys::stat::{FileStat, futimens};
use nix::sys::time::TimeSpec;

use super::Store;
use crate::error::StoreError;
use crate::files::{Holder, StateDir};
use crate::index::{Index, PAGE, Page, Pages, Stamp};
use crate::owner::Owner;
use crate::scan::{Scan, Stray};
use crate::{boot, fnv};

impl Store {
    /// The scan, made now if there was none.
    pub(super) fn scan(&mut self) -> Result<&mut Scan, StoreError> {
        match &mut self.scan {
            Some(scan) => Ok(scan),
            none => {
                // Whatever made this necessary, the index is not to be used again, even if the files cannot be read.
                self.index = None;
                self.changed = true;
                self.opened = self.dir.stat()?;
                Ok(none.insert(Scan::of(&self.dir)?))
            }
        }
    }

    /// The addresses that an owner's files are for. An index that names a file which says otherwise is given up.
    pub(crate) fn addresses_of(&mut self, owner: &Owner) -> Result<Vec<IpAddr>, StoreError> {
        let says_so = |ip: &IpAddr| self.dir.holder(*ip) == Holder::Taken(Some(owner.clone()));
        if let Some(found) = self.index.as_ref().and_then(|index| index.addresses_of(owner.as_str()))
            && found.iter().all(says_so)
        {
            return Ok(found);
        }
        Ok(self.scan()?.addresses_of(owner))
    }

    /// Reservations of an owner that no index holds, which are about to be removed.
    pub(super) fn take_strays_of(&mut self, owner: &Owner) -> Vec<Stray> {
        let strays = self.scan.iter_mut().map(|scan| &mut scan.strays);
        strays.flat_map(|strays| strays.extract_if(.., |stray| stray.owner == *owner)).collect()
    }

    /// The first address of `from..=to` that is not taken.
    pub(crate) fn first_unused(&mut self, from: IpAddr, to: IpAddr) -> Result<Option<IpAddr>, StoreError> {
        match self.index.as_ref().and_then(|index| index.first_unused(from, to)) {
            Some(unused) => Ok(unused),
            None => Ok(self.scan()?.first_unused(from, to)),
        }
    }

    /// Notes a reservation that was made, or found.
    pub(super) fn note_reserved(&mut self, owner: Option<&Owner>, ip: IpAddr) -> Result<(), StoreError> {
        self.changed = true;
        let owner_text = owner.map(Owner::as_str);
        if self.index.as_mut().and_then(|index| index.insert(owner_text, ip)).is_none() {
            self.scan()?.taken.insert(ip, owner.cloned());
        }
        Ok(())
    }

    /// Notes a reservation that was removed.
    pub(super) fn note_released(&mut self, owner: &Owner, ip: IpAddr) -> Result<(), StoreError> {
        self.changed = true;
        if self.index.as_mut().and_then(|index| index.remove(owner.as_str(), ip)).is_none() {
            self.scan()?.taken.remove(&ip);
        }
        Ok(())
    }

    /// Whether the index is believed; leaves it as it is.
    #[cfg(test)]
    pub(crate) fn believes_index(mut self) -> bool {
        self.place = None;
        self.index.is_some()
    }
}

/// The index is made to match what was done. Nothing depends on that: when it fails, the next call scans.
impl Drop for Store {
    fn drop(&mut self) {
        let Some((root, name)) = &self.place else { return };
        let save = |index| save(&self.dir, root, name, index);
        if let Some(index) = self.index.as_mut().filter(|_| self.changed) {
            if index.is_crowded() {
                index.grown().and_then(save);
            } else {
                set_time(&self.dir).and_then(|stamp| index.seal(&stamp));
            }
        }
        if let Some(scan) = &self.scan {
            // Somebody without the lock was at work while the files were read.
            let disturbed =
                !self.changed && self.dir.stat().map_or(true, |now| stamp(&now) != stamp(&self.opened));
            if !disturbed && !scan.has_directories && scan.strays.is_empty() {
                index_of(scan).and_then(save);
            }
            // All of the directory was read: a look at the few names of the indexes is nothing beside that.
            sweep(root);
        }
    }
}

fn index_of(scan: &Scan) -> Option<Index<Vec<Page>>> {
    let mut index = Index::empty(scan.taken.len() as u64);
    for (ip, owner) in &scan.taken {
        index.insert(owner.as_ref().map(Owner::as_str), *ip)?;
        if index.is_crowded() {
            index = index.grown()?;
        }
    }
    Some(index)
}

/// Puts a new index in place of the old one.
fn save(dir: &StateDir, root: &PrivateDir, name: &str, mut index: Index<Vec<Page>>) -> Option<()> {
    let stamp = set_time(dir)?;
    index.seal(&stamp)?;
    root.replace(name, &index.into_bytes()).ok().map(drop)
}

/// What the index of a state directory is called: its path, so that a directory that was removed and made anew has one.
pub(super) fn name_of(dir: &Path) -> String {
    let path = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    shortened(&path.to_string_lossy().replace('%', "%25").replace('/', "%2F"), NAME_LIMIT)
}

/// Removes the indexes of directories that are gone. One that only seems to be gets another index when it is back.
fn sweep(root: &PrivateDir) {
    for name in root.names().iter().filter(|name| !name.starts_with('+')) {
        let path = name.replace("%2F", "/").replace("%25", "%");
        if fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            let _ = root.remove_if_present(name);
        }
    }
}

/// Below `NAME_MAX`, 255 bytes.
const NAME_LIMIT: usize = 200;

/// Sets the directory's modification time to now, to the nanosecond, and answers with the stamp. `None` when the file
/// system does not keep it: then a later change could go unseen.
fn set_time(dir: &StateDir) -> Option<Stamp> {
    let now = TimeSpec::from_duration(SystemTime::now().duration_since(UNIX_EPOCH).ok()?);
    futimens(dir.fd(), &TimeSpec::UTIME_OMIT, &now).ok()?;
    let stat = dir.stat().ok()?;
    (stat.st_mtime == now.tv_sec() && stat.st_mtime_nsec == now.tv_nsec()).then(|| stamp(&stat))
}

/// What the index must have been sealed with to be believed.
pub(super) fn stamp(stat: &FileStat) -> Stamp {
    let mut stamp = [0; 56];
    let boot = fnv::hash(&[boot::id().as_bytes()]);
    let fields = [
        boot.to_le_bytes(),
        stat.st_dev.to_le_bytes(),
        stat.st_ino.to_le_bytes(),
        stat.st_mtime.to_le_bytes(),
        stat.st_mtime_nsec.to_le_bytes(),
        stat.st_ctime.to_le_bytes(),
        stat.st_ctime_nsec.to_le_bytes(),
    ];
    stamp.copy_from_slice(fields.as_flattened());
    stamp
}

/// An index's file.
#[derive(Debug)]
pub(super) struct FilePages(File);

impl FilePages {
    /// `None` when there is none.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok().map(Self)
    }
}

impl Pages for FilePages {
    fn page(&self, at: u64) -> Option<Page> {
        let mut page = [0; PAGE];
        self.0.read_exact_at(&mut page, at.checked_mul(PAGE as u64)?).ok()?;
        Some(page)
    }
    fn put(&mut self, at: u64, page: &Page) -> Option<()> {
        self.0.write_all_at(page, at.checked_mul(PAGE as u64)?).ok()
    }
    fn count(&self) -> Option<u64> {
        Some(self.0.metadata().ok()?.len() / PAGE as u64)
    }
}
