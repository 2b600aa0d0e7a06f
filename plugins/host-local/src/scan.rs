// SPDX-License-Identifier: Apache-2.0
//! The whole state read from its files: what the reference does on every call, and what is done here when the index
//! cannot be trusted.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::rc::Rc;

use nix::dir::{Dir, Type};
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::error::FileError;
use crate::files::{Holder, LAST_RESERVED, LOCK, RESERVING, StateDir, read_at};
use crate::owner::Owner;
use crate::{boot, sticky};

/// Everything in a state directory.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Who holds the addresses that are taken.
    pub(crate) taken: BTreeMap<IpAddr, Option<Owner>>,
    /// Addresses with a file that a crash left empty or damaged.
    pub(crate) debris: Vec<IpAddr>,
    /// Files that look like reservations but stand where no plugin puts any; the reference finds and releases them.
    pub(crate) strays: Vec<Stray>,
    /// Whether there are directories in here, which an index does not see change.
    pub(crate) has_directories: bool,
}

/// A reservation's content under a name that is no address, or below a directory.
#[derive(Debug)]
pub(crate) struct Stray {
    dir: Rc<File>,
    name: String,
    pub(crate) owner: Owner,
}

impl Stray {
    /// Removes the file. What refuses to go is left, as by the reference.
    pub(crate) fn remove(&self) {
        let _ = unlinkat(&*self.dir, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
    }
}

impl Scan {
    /// Reads every file.
    pub(crate) fn of(dir: &StateDir) -> Result<Self, FileError> {
        let mut scan = Self::default();
        let failed = |source: std::io::Error| FileError::new("open", &dir.path_of("."), source);
        for (name, kind) in entries(dir.fd()).map_err(failed)? {
            if !is_ours(&name) {
                scan.take_in(dir, &name, kind);
            }
        }
        Ok(scan)
    }

    fn take_in(&mut self, dir: &StateDir, name: &str, kind: Option<Type>) {
        if kind == Some(Type::Directory) {
            self.has_directories = true;
            self.descend(dir.fd(), name, MAX_DEPTH);
        }
        let Some(ip) = address_named(name) else { return self.take_in_stray(dir.fd(), name, kind) };
        match dir.holder(ip) {
            Holder::Nobody => {}
            Holder::Debris => self.debris.push(ip),
            Holder::Taken(owner) => drop(self.taken.insert(ip, owner)),
        }
    }

    fn take_in_stray(&mut self, dir: &Rc<File>, name: &str, kind: Option<Type>) {
        if !matches!(kind, Some(Type::File) | None) {
            return;
        }
        let owner = read_at(dir, name).ok().and_then(|content| Owner::read(&content));
        let Some(owner) = owner.filter(Owner::is_attachment) else { return };
        self.strays.push(Stray { dir: Rc::clone(dir), name: name.to_owned(), owner });
    }

    /// Takes in the files below a directory. What cannot be read is passed over, as by the reference.
    fn descend(&mut self, parent: &File, name: &str, depth: usize) {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let Ok(dir) = openat(parent, name, flags, Mode::empty()) else { return };
        let dir = Rc::new(File::from(dir));
        for (name, kind) in entries(&dir).unwrap_or_default() {
            match kind {
                Some(Type::Directory) if depth > 0 => self.descend(&dir, &name, depth - 1),
                kind => self.take_in_stray(&dir, &name, kind),
            }
        }
    }

    /// The addresses of an owner, as its files say.
    pub(crate) fn addresses_of(&self, owner: &Owner) -> Vec<IpAddr> {
        let held = |(ip, holder): (&IpAddr, &Option<Owner>)| (holder.as_ref() == Some(owner)).then_some(*ip);
        self.taken.iter().filter_map(held).collect()
    }

    /// The first address of `from..=to` that is not taken.
    pub(crate) fn first_unused(&self, from: IpAddr, to: IpAddr) -> Option<IpAddr> {
        let mut candidate = from;
        for ip in self.taken.range(from..=to).map(|(ip, _)| *ip) {
            if ip != candidate {
                break;
            }
            candidate = crate::range::successor(ip)?;
        }
        (candidate <= to).then_some(candidate)
    }
}

/// How deep directories are searched.
const MAX_DEPTH: usize = 16;

/// The address that a file name stands for; only the canonical text does.
fn address_named(name: &str) -> Option<IpAddr> {
    name.parse::<IpAddr>().ok().filter(|ip| ip.to_string() == name)
}

/// Files that are no reservations and never become any.
fn is_ours(name: &str) -> bool {
    name.starts_with(LAST_RESERVED) || [LOCK, RESERVING, sticky::FILE, boot::FILE].contains(&name)
}

/// The kind of a file where the directory does not tell it.
fn kind_of(dir: &File, name: &str) -> Option<Type> {
    let stat = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => Some(Type::Directory),
        SFlag::S_IFREG => Some(Type::File),
        SFlag::S_IFLNK => Some(Type::Symlink),
        _ => Some(Type::Fifo),
    }
}

fn entries(dir: &File) -> std::io::Result<Vec<(String, Option<Type>)>> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut stream = Dir::openat(dir, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in stream.iter() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." {
            continue;
        }
        let kind = entry.file_type().or_else(|| kind_of(dir, &name));
        names.push((name.into_owned(), kind));
    }
    Ok(names)
}
