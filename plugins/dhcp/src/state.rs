// SPDX-License-Identifier: Apache-2.0
//! What a daemon remembers of its leases, one file each below `/run/cnibox/dhcp`: its successor goes on with them, and
//! DEL can give one back without a daemon. A lease does not outlive the boot, and neither does `/run`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use cnibox_netns::NetNs;
use cnibox_netns::errno::io_text;
use cnibox_spec::{LiveAttachment, sha512_prefix};
use cnibox_sys::{Failure, PrivateDir};
use serde::{Deserialize, Serialize};

use crate::lease::Lease;
use crate::options::Options;

/// A lease and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What the file's fields mean; a file of another form is left alone.
    pub(crate) version: u32,
    /// Where the daemon listens whose lease it is.
    pub(crate) socket: String,
    /// Whose it is.
    #[serde(rename = "attachment")]
    pub(crate) holder: Holder,
    /// What every request says.
    pub(crate) options: Options,
    /// The lease as it was granted last.
    pub(crate) lease: Lease,
}

/// Whose a lease is. The names are as a plugin of any origin said them to the daemon: nobody has checked them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) container: String,
    pub(crate) network: String,
    pub(crate) ifname: String,
    /// The container's namespace as the runtime wrote it, and what is there: device and inode.
    pub(crate) netns: String,
    pub(crate) netns_id: (u64, u64),
}

impl Holder {
    /// What the daemon keeps its lease under, and the server knows it by as far as an option has room for it.
    pub(crate) fn name(&self) -> String {
        name(&self.container, &self.network, &self.ifname)
    }

    /// Whether the namespace at `path` is the one that the lease was acquired in.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        netns_id(path).is_some_and(|id| id == self.netns_id)
    }

    /// Whether it is of this network and not among the network's living attachments.
    pub(crate) fn is_dead(&self, network: &str, live: &[LiveAttachment]) -> bool {
        let is_this =
            |live: &LiveAttachment| live.container_id == self.container && live.ifname == self.ifname;
        self.network == network && !live.iter().any(is_this)
    }

    /// Whether this namespace is the one, whatever is at its path by now.
    pub(crate) fn is_in(&self, netns: &NetNs) -> bool {
        netns.identity().is_ok_and(|id| id == self.netns_id)
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

/// The leases of the daemon that listens at one path.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: PrivateDir,
    socket: String,
}

impl Store {
    /// `prefix` is in front of every path of the host, `socket` the daemon's path without it.
    pub(crate) fn new(prefix: &str, socket: &str) -> Self {
        Self { dir: PrivateDir::of_host(prefix).below(DIR), socket: socket.to_owned() }
    }

    /// A record for this store.
    pub(crate) fn record(&self, holder: Holder, options: Options, lease: Lease) -> Record {
        Record { version: VERSION, socket: self.socket.clone(), holder, options, lease }
    }

    /// Writes the record in place of an older one of the attachment.
    pub(crate) fn save(&self, record: &Record) -> Result<(), Failure> {
        let file = self.file(&record.holder.name());
        let content = serde_json::to_vec(record).map_err(io::Error::from);
        let saved = content.and_then(|content| self.dir.replace(&file, &content));
        saved.map(drop).map_err(|error| self.failed("save lease", &file, &error))
    }

    /// The record of an attachment.
    pub(crate) fn load(&self, name: &str) -> Option<Record> {
        self.read(&self.file(name)).filter(|record| record.holder.name() == name)
    }

    /// Removes the record of an attachment, if there is one.
    pub(crate) fn forget(&self, name: &str) -> Result<(), Failure> {
        let file = self.file(name);
        let removed = self.dir.remove_if_present(&file);
        removed.map(drop).map_err(|error| self.failed("forget lease", &file, &error))?;
        self.dir.remove_if_empty();
        Ok(())
    }

    /// Every record.
    pub(crate) fn all(&self) -> Vec<Record> {
        self.dir.names().iter().filter_map(|file| self.read(file)).collect()
    }

    fn read(&self, file: &str) -> Option<Record> {
        let text = self.dir.read(file, SIZE_LIMIT).ok().flatten()?;
        let record: Record = serde_json::from_str(&text).ok()?;
        (record.version == VERSION && record.socket == self.socket).then_some(record)
    }

    fn file(&self, name: &str) -> String {
        sha512_prefix(&[&self.socket, "\0", name], 40)
    }

    fn failed(&self, doing: &str, file: &str, error: &io::Error) -> Failure {
        let path = self.dir.path().join(file);
        Failure::internal(format!("{doing} {}: {}", path.display(), io_text(error)))
    }
}

/// In the directory of all that this executable notes.
const DIR: &str = "dhcp";
const VERSION: u32 = 1;
/// Far more than any record has, in bytes.
const SIZE_LIMIT: u64 = 1 << 18;

#[cfg(test)]
mod tests;
