// SPDX-License-Identifier: Apache-2.0
//! What an interface was like before: the reference's file, byte for byte.
//!
//! The state's directory may be anybody's who could write there before the boot finished: links in place of files are
//! never followed, and a file is there whole or not at all.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cnibox_netlink::{Link, LinkChange, Mac};
use cnibox_netns::errno::io_text;
use cnibox_sys::{Failure, Sys, UndoStep};
use serde::{Deserialize, Serialize};

use crate::config::LinkPlan;

/// Former settings, only those that are being changed. The order of the fields is the file's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Backup {
    #[serde(skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    promisc: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allmulti: Option<bool>,
    #[serde(rename = "txQLen", skip_serializing_if = "Option::is_none")]
    txqlen: Option<u32>,
}

impl Backup {
    /// What `plan` is about to change of `link`.
    pub(crate) fn new(plan: &LinkPlan, link: &Link) -> Self {
        Self {
            mac: plan.mac.map(|_| link.mac_text()).unwrap_or_default(),
            // What others have asked for counts, too; the reference looks at the same counter.
            promisc: plan.promisc.then_some(link.promiscuity != 0),
            mtu: plan.mtu.map(|_| link.mtu),
            allmulti: plan.allmulti.map(|_| link.is_allmulti()),
            txqlen: plan.txqlen.map(|_| link.txqlen),
        }
    }

    /// The changes that restore it, each with a name for people. Separate, so that one that fails hinders no other.
    pub(crate) fn changes(&self, index: u32) -> impl Iterator<Item = (&'static str, LinkChange)> {
        let change = move || LinkChange::new(index);
        let mac = self.mac.parse::<Mac>().ok();
        [
            self.mtu.filter(|mtu| *mtu != 0).map(|mtu| ("MTU", change().mtu(mtu))),
            mac.map(|mac| ("MAC address", change().mac(mac))),
            self.promisc.map(|on| ("promiscuous mode", change().promisc(on))),
            self.allmulti.map(|on| ("all-multicast mode", change().allmulti(on))),
            self.txqlen.map(|packets| ("transmit queue length", change().txqlen(packets))),
        ]
        .into_iter()
        .flatten()
    }

    /// The file's bytes: Go's `MarshalIndent` with one space.
    fn to_json(&self) -> Vec<u8> {
        if *self == Self::default() {
            return b"{}".to_vec();
        }
        let mut bytes = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
        // A structure of plain values: there is nothing that could fail.
        let _ = self.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter));
        bytes
    }
}

/// The file of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupFile {
    dir: PathBuf,
    ifname: String,
    path: PathBuf,
    /// The file while it is being written. Its name is known, so that DEL and GC clean up after a killed call.
    partial: PathBuf,
}

impl BackupFile {
    /// The file of the interface `ifname` of `container`; both are plain names.
    pub(crate) fn new(dir: &Path, container: &str, ifname: &str) -> Self {
        Self {
            dir: dir.to_path_buf(),
            ifname: ifname.to_owned(),
            path: dir.join(format!("{container}_{ifname}.json")),
            partial: dir.join(format!(".{container}_{ifname}.json")),
        }
    }

    /// Whether anything is there.
    pub(crate) fn exists(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    /// Writes it, in place of an older one.
    ///
    /// # Errors
    /// The directory cannot be made, or the file not written. No file is left then, or the older one.
    pub(crate) fn write(&self, backup: &Backup) -> Result<(), Failure> {
        // The reference's mode: only for who may override it. What is there and no directory cannot hold a file.
        match DirBuilder::new().recursive(true).mode(0o600).create(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (dir, error) = (self.dir.display(), io_text(&error));
                return Err(Failure::internal(format!(
                    "failed to create backup directory: mkdir {dir}: {error}"
                )));
            }
            _ => {}
        }
        let save = || {
            if !fs::metadata(&self.dir)?.is_dir() {
                return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
            }
            remove_if_present(&self.partial)?;
            // Follows no link, as one would be there already.
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.partial)?;
            file.write_all(&backup.to_json())?;
            fs::rename(&self.partial, &self.path)
        };
        save().map_err(|error| {
            let _ = remove_if_present(&self.partial);
            let (path, error) = (self.path.display(), io_text(&error));
            Failure::internal(format!("failed to save file {}.json: open {path}: {error}", self.ifname))
        })
    }

    /// What it says; `None` when there is no file, or nothing that could be restored from it.
    pub(crate) fn read(&self) -> Option<Backup> {
        let mut text = Vec::new();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&self.path)
            .ok()?;
        file.take(SIZE_LIMIT).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Removes it; one that is not there is no error.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub(crate) fn remove_if_present(&self) -> Result<(), Failure> {
        for path in [&self.partial, &self.path] {
            remove_if_present(path).map_err(|error| {
                let (path, error) = (path.display(), io_text(&error));
                Failure::internal(format!("failed to remove file {path}: {error}"))
            })?;
        }
        Ok(())
    }
}

impl UndoStep for BackupFile {
    fn undo(&self, _: &mut Sys<'_>) -> Result<(), Failure> {
        self.remove_if_present()
    }
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Far more than any backup has, in bytes.
const SIZE_LIMIT: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn everything() -> Backup {
        Backup {
            mac: "02:00:00:00:00:01".into(),
            promisc: Some(false),
            mtu: Some(1500),
            allmulti: Some(true),
            txqlen: Some(1000),
        }
    }

    #[test]
    fn the_file_is_the_references() {
        let text = "{\n \"mac\": \"02:00:00:00:00:01\",\n \"promisc\": false,\n \"mtu\": 1500,\n \"allmulti\": true,\n \
                    \"txQLen\": 1000\n}";
        assert_eq!(String::from_utf8(everything().to_json()).unwrap(), text);
        let one = Backup { txqlen: Some(0), ..Backup::default() };
        assert_eq!(one.to_json(), b"{\n \"txQLen\": 0\n}");
    }

    #[test]
    fn a_file_is_read_back_and_is_nobody_elses() {
        use std::os::unix::fs::PermissionsExt;
        let dir = scratch();
        let file = BackupFile::new(&dir.path().join("a/b"), "cont", "eth0");
        file.write(&everything()).unwrap();
        assert_eq!(file.read(), Some(everything()));
        assert!(file.path.ends_with("a/b/cont_eth0.json"));
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        file.remove_if_present().unwrap();
        file.remove_if_present().unwrap();
        assert_eq!(file.read(), None);
        assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_call_has_not_finished_is_cleaned() {
        let dir = scratch();
        let file = BackupFile::new(dir.path(), "cont", "eth0");
        fs::write(&file.partial, "{").unwrap();
        file.write(&everything()).unwrap();
        assert_eq!((file.read(), fs::read_dir(dir.path()).unwrap().count()), (Some(everything()), 1));
        fs::write(&file.partial, "{").unwrap();
        file.remove_if_present().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_are_not_followed() {
        let dir = scratch();
        let file = BackupFile::new(dir.path(), "cont", "eth0");
        let victim = dir.path().join("victim");
        fs::write(&victim, "{\"mtu\":1}").unwrap();
        std::os::unix::fs::symlink(&victim, &file.path).unwrap();
        std::os::unix::fs::symlink(&victim, &file.partial).unwrap();
        assert_eq!(file.read(), None);
        file.write(&everything()).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"{\"mtu\":1}");
        assert!(!fs::symlink_metadata(&file.path).unwrap().is_symlink());
    }
}
