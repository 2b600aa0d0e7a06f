// SPDX-License-Identifier: Apache-2.0
//! What a daemon remembers of its leases, one file each below `/run/cnibox/dhcp`: its successor goes on with them, and
//! DEL can give one back without a daemon. A lease does not outlive the boot, and neither does `/run`.
//!
//! Invariant: a file is there whole or not at all, and is on disk when its name is. Links in place of our directories
//! and files are never followed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cnibox_netns::errno::io_text;
use cnibox_spec::sha512_prefix;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::lease::Lease;
use crate::options::Options;

/// A lease and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What the file's fields mean; a file of another form is left alone.
    pub(crate) version: u32,
    /// Where the daemon listens whose lease it is.
    pub(crate) socket: String,
    /// The attachment.
    pub(crate) attachment: Attachment,
    /// What every request says.
    pub(crate) options: Options,
    /// The lease as it was granted last.
    pub(crate) lease: Lease,
}

/// Whose a lease is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) container: String,
    pub(crate) network: String,
    pub(crate) ifname: String,
    /// The container's namespace as the runtime wrote it, and what is there: device and inode.
    pub(crate) netns: String,
    pub(crate) netns_id: (u64, u64),
}

impl Attachment {
    /// What the daemon keeps its lease under, and the server knows it by as far as an option has room for it.
    pub(crate) fn name(&self) -> String {
        name(&self.container, &self.network, &self.ifname)
    }

    /// Whether the namespace at `path` is the one that the lease was acquired in.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        netns_id(path).is_some_and(|id| id == self.netns_id)
    }
}

/// The name of an attachment: `<container>/<network>/<interface>`, as in the reference, which cuts it to 254 bytes and so
/// takes two attachments for one when both are called at length.
pub(crate) fn name(container: &str, network: &str, ifname: &str) -> String {
    format!("{container}/{network}/{ifname}")
}

/// What distinguishes the namespace at `path`; `None` when nothing is there.
pub(crate) fn netns_id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Why a lease could not be remembered or forgotten.
#[derive(Debug, Error)]
#[error("{doing} {}: {}", path.display(), io_text(source))]
pub(crate) struct StateError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The leases of the daemon that listens at one path.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    socket: String,
}

impl Store {
    /// `prefix` is in front of every path of the host, `socket` the daemon's path without it.
    pub(crate) fn new(prefix: &str, socket: &str) -> Self {
        Self { dir: PathBuf::from(format!("{prefix}{ROOT}")), socket: socket.to_owned() }
    }

    /// A record for this store.
    pub(crate) fn record(&self, attachment: Attachment, options: Options, lease: Lease) -> Record {
        Record { version: VERSION, socket: self.socket.clone(), attachment, options, lease }
    }

    /// Writes the record in place of an older one of the attachment.
    pub(crate) fn save(&self, record: &Record) -> Result<(), StateError> {
        let path = self.path(&record.attachment.name());
        let failed = |source| StateError { doing: "save lease", path: path.clone(), source };
        let save = || {
            self.ensure()?;
            let mut file = tempfile::Builder::new().prefix(PARTIAL).tempfile_in(&self.dir)?;
            file.write_all(&serde_json::to_vec(record)?)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            File::open(&self.dir)?.sync_all()
        };
        save().map_err(failed)
    }

    /// The record of an attachment.
    pub(crate) fn load(&self, name: &str) -> Option<Record> {
        let is_its = |record: &Record| record.attachment.name() == name;
        self.is_real().then(|| self.read(&self.path(name)))?.filter(is_its)
    }

    /// Removes the record of an attachment, if there is one.
    pub(crate) fn forget(&self, name: &str) -> Result<(), StateError> {
        let path = self.path(name);
        if !self.is_real() {
            return Ok(());
        }
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(StateError { doing: "forget lease", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Every record, and the end of what a killed predecessor has not finished writing.
    pub(crate) fn all(&self) -> Vec<Record> {
        if !self.is_real() {
            return Vec::new();
        }
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut records = Vec::new();
        for path in entries.map(|entry| entry.path()) {
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PARTIAL.as_bytes())) {
                self.sweep(&path);
            } else {
                records.extend(self.read(&path));
            }
        }
        records
    }

    /// Another daemon may be about to finish a young one.
    fn sweep(&self, partial: &Path) {
        let age = fs::symlink_metadata(partial).and_then(|meta| meta.modified()).map(|at| at.elapsed());
        if matches!(age, Ok(Ok(age)) if age > PARTIAL_AGE) {
            let _ = fs::remove_file(partial);
        }
    }

    fn read(&self, path: &Path) -> Option<Record> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
        let mut bytes = Vec::new();
        file.take(SIZE_LIMIT).read_to_end(&mut bytes).ok()?;
        let record: Record = serde_json::from_slice(&bytes).ok()?;
        (record.version == VERSION && record.socket == self.socket).then_some(record)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(sha512_prefix(&[&self.socket, "\0", name], 40))
    }

    /// Whether our directories are directories.
    fn is_real(&self) -> bool {
        let is_directory = |dir: &Path| fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir());
        is_directory(&self.dir) && self.dir.parent().is_none_or(is_directory)
    }

    fn ensure(&self) -> io::Result<()> {
        DirBuilder::new().mode(0o700).recursive(true).create(&self.dir)?;
        if self.is_real() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOTDIR)) }
    }
}

/// Below the host's prefix.
const ROOT: &str = "/run/cnibox/dhcp";
const PARTIAL: &str = ".lease";
const PARTIAL_AGE: std::time::Duration = std::time::Duration::from_secs(60);
const VERSION: u32 = 1;
/// Far more than any record has, in bytes.
const SIZE_LIMIT: u64 = 1 << 18;

#[cfg(test)]
mod tests;
