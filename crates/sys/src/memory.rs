// SPDX-License-Identifier: Apache-2.0
//! What a plugin remembers of an attachment below `/run/cnibox`: a help for DEL without prevResult and for GC.
//!
//! It is never the truth. Everything works without it, with containers that the Go plugins added and where `/run` cannot
//! be written, so nothing here is an error to anybody. It ends with the boot, as packet filter rules do.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cnibox_spec::{Attachment, ContainerId, IfName, NetworkName, sha512_prefix};

/// The memory of one plugin.
#[derive(Clone, Debug)]
pub struct Memory {
    dir: PathBuf,
}

/// What is remembered of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memo {
    /// The network's name.
    pub network: String,
    /// The container's ID.
    pub container: String,
    /// The interface's name in the container.
    pub ifname: String,
    /// The plugin's own notes, lines without line ends.
    pub notes: Vec<String>,
}

impl Memo {
    /// An attachment of which nothing is noted yet.
    #[must_use]
    pub fn new(network: &NetworkName, container: &ContainerId, ifname: &IfName) -> Self {
        let [network, container, ifname] =
            [network.as_str(), container.as_str(), ifname.as_str()].map(str::to_owned);
        Self { network, container, ifname, notes: Vec::new() }
    }

    /// Whether both are about the same attachment.
    #[must_use]
    pub fn is_about(&self, other: &Self) -> bool {
        (&self.network, &self.container, &self.ifname) == (&other.network, &other.container, &other.ifname)
    }
}

impl Memory {
    /// The memory of the plugin called `plugin`.
    #[must_use]
    pub fn of(plugin: &str) -> Self {
        Self { dir: Path::new(ROOT).join(plugin) }
    }

    /// Remembers, in place of what was remembered of the same attachment. False when it could not.
    pub fn note(&self, memo: &Memo) -> bool {
        let path = self.path(memo);
        // The directories may vanish with another attachment between the steps, and a kernel that is short of something
        // for a moment may have it at the next try.
        for _ in 0..NOTE_ATTEMPTS {
            let mut directory = fs::DirBuilder::new();
            let _ = directory.mode(0o700).recursive(true).create(&self.dir);
            if let Some(parent) = path.parent().filter(|parent| self.is_real(parent)) {
                let _ = directory.recursive(false).create(parent);
            }
            if self.is_real(&path) && write(&path, memo).is_ok() {
                return true;
            }
        }
        false
    }

    /// What is remembered of this attachment.
    #[must_use]
    pub fn recall(&self, attachment: &Memo) -> Option<Memo> {
        let path = self.path(attachment);
        self.is_real(&path).then(|| read(&path))?.filter(|memo| memo.is_about(attachment))
    }

    /// Forgets the attachment.
    pub fn forget(&self, attachment: &Memo) {
        let path = self.path(attachment);
        if self.is_real(&path) {
            let _ = fs::remove_file(&path);
        }
        self.tidy_after(attachment);
        if self.is_there() {
            let _ = fs::remove_dir(&self.dir);
        }
    }

    /// Removes the directory of the attachment's container if it is empty: a killed call may have left it so. The other
    /// interfaces of the container keep it, and other containers the directory of all.
    pub(crate) fn tidy_after(&self, attachment: &Memo) {
        self.remove_empty(self.path(attachment).parent().map(Path::to_path_buf));
    }

    /// The same for all containers.
    pub(crate) fn tidy(&self) {
        self.remove_empty(entries(&self.dir));
    }

    /// Removes directories that are empty, and with the last one that of all. Files are no memos' directories: plugins
    /// that keep their state otherwise have some here.
    fn remove_empty(&self, containers: impl IntoIterator<Item = PathBuf>) {
        if self.is_there() && containers.into_iter().filter(|dir| fs::remove_dir(dir).is_ok()).count() > 0 {
            let _ = fs::remove_dir(&self.dir);
        }
    }

    /// Every attachment of the container that is remembered.
    #[must_use]
    pub fn of_container(&self, container: &str) -> Vec<Memo> {
        let dir = self.dir.join(component(container));
        self.memos(&dir).into_iter().filter(|memo| memo.container == container).collect()
    }

    /// Everything that is remembered.
    #[must_use]
    pub fn all(&self) -> Vec<Memo> {
        entries(&self.dir).flat_map(|dir| self.memos(&dir)).collect()
    }

    /// What is remembered of the network's attachments that are not among `valid`.
    pub fn stale<'a>(
        &self,
        network: &'a NetworkName,
        valid: &'a [Attachment],
    ) -> impl Iterator<Item = Memo> + use<'a> {
        let lives = |memo: &Memo| {
            valid.iter().any(|live| live.container_id == memo.container && live.ifname == memo.ifname)
        };
        self.all().into_iter().filter(move |memo| memo.network == network.as_str() && !lives(memo))
    }

    fn memos(&self, dir: &Path) -> Vec<Memo> {
        entries(dir).filter(|path| self.is_real(path)).filter_map(|path| read(&path)).collect()
    }

    /// Whether no directory of ours on the way to `path` is a link to somewhere else.
    fn is_real(&self, path: &Path) -> bool {
        path.ancestors().skip(1).take_while(|dir| *dir != self.dir).all(is_directory) && self.is_there()
    }

    /// Whether there is a directory of this plugin, and no link in its place.
    fn is_there(&self) -> bool {
        is_directory(&self.dir) && self.dir.parent().is_none_or(is_directory)
    }

    fn path(&self, memo: &Memo) -> PathBuf {
        self.dir
            .join(component(&memo.container))
            .join(component(&format!("{}:{}", memo.network, memo.ifname)))
    }
}

/// Identifiers are plain names; one that is too long for a file is there by its hash.
fn component(name: &str) -> String {
    if name.len() <= NAME_LIMIT { name.to_owned() } else { format!("+{}", sha512_prefix(&[name], 64)) }
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn write(path: &Path, memo: &Memo) -> std::io::Result<()> {
    let mut text = format!("{} {} {}\n", memo.network, memo.container, memo.ifname);
    for note in &memo.notes {
        text.push_str(note);
        text.push('\n');
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options.open(path)?.write_all(text.as_bytes()).inspect_err(|_| {
        // Half of it would say something else.
        let _ = fs::remove_file(path);
    })
}

fn read(path: &Path) -> Option<Memo> {
    let mut text = String::new();
    let file: File = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    file.take(SIZE_LIMIT).read_to_string(&mut text).ok()?;
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split(' ').map(str::to_owned).collect();
    // Whoever was killed between making the file and writing it has left its names only.
    let Ok([network, container, ifname]) = <[String; 3]>::try_from(names) else { return of_path(path) };
    Some(Memo { network, container, ifname, notes: lines.map(str::to_owned).collect() })
}

/// The attachment that a file without content is about; a hash does not tell.
fn of_path(path: &Path) -> Option<Memo> {
    let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
    let (container, file) = (name(path.parent()?)?, name(path)?);
    let (network, ifname) = file.rsplit_once(':')?;
    let [network, ifname] = [network, ifname].map(str::to_owned);
    let memo = Memo { network, container, ifname, notes: Vec::new() };
    (!memo.container.starts_with('+') && !file.starts_with('+')).then_some(memo)
}

/// A crowd of first and last attachments makes and removes the directories.
const NOTE_ATTEMPTS: u32 = 10;
const ROOT: &str = "/run/cnibox";
/// Below `NAME_MAX`, 255 bytes.
const NAME_LIMIT: usize = 200;
/// Far more than any plugin notes, in bytes.
const SIZE_LIMIT: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn memo(network: &str, container: &str, ifname: &str) -> Memo {
        let names = [network, container, ifname].map(str::to_owned);
        let [network, container, ifname] = names;
        Memo { network, container, ifname, notes: vec!["one".into(), "two".into()] }
    }

    fn scratch(name: &str) -> Memory {
        let dir = std::env::temp_dir().join(format!("cnibox-memory-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Memory { dir }
    }

    #[test]
    fn attachments_are_remembered_apart_and_forgotten_without_a_trace() {
        let memory = scratch("apart");
        let (one, other) = (memo("n", "c", "eth0"), memo("n", "c", "eth1"));
        memory.note(&one);
        memory.note(&other);
        assert_eq!(memory.recall(&one), Some(one.clone()));
        assert_eq!(
            (memory.of_container("c").len(), memory.of_container("d").len(), memory.all().len()),
            (2, 0, 2)
        );
        memory.forget(&one);
        memory.forget(&one);
        assert_eq!(memory.all(), std::slice::from_ref(&other));
        memory.forget(&other);
        assert!(!memory.dir.exists());
    }

    #[test]
    fn a_memo_that_a_kill_left_empty_is_forgotten_like_any_other() {
        let memory = scratch("empty");
        let attachment = memo("n", "c", "eth0");
        memory.note(&attachment);
        fs::write(memory.path(&attachment), "").unwrap();
        assert_eq!(memory.all(), [Memo { notes: Vec::new(), ..attachment.clone() }]);
        assert!(memory.recall(&attachment).is_some());
        memory.forget(&attachment);
        assert!(!memory.dir.exists());
    }

    #[test]
    fn directories_that_a_kill_left_empty_go() {
        let memory = scratch("killed");
        let (one, other) = (memo("n", "c", "eth0"), memo("n", "d", "eth0"));
        let empty = |attachment: &Memo| {
            fs::create_dir_all(memory.path(attachment).parent().unwrap()).unwrap();
        };
        empty(&one);
        memory.note(&other);
        memory.tidy_after(&one);
        assert!(!memory.path(&one).parent().unwrap().exists());
        empty(&one);
        memory.tidy();
        assert!(!memory.path(&one).parent().unwrap().exists());
        assert_eq!(memory.all(), std::slice::from_ref(&other));
        memory.forget(&other);
        empty(&one);
        memory.forget(&one);
        assert!(!memory.dir.exists());
    }

    #[test]
    fn names_of_any_length_have_a_file() {
        let memory = scratch("long");
        let long = memo(&"n".repeat(300), &"c".repeat(300), "eth0");
        memory.note(&long);
        assert_eq!(memory.recall(&long), Some(long.clone()));
        fs::remove_dir_all(&memory.dir).unwrap();
    }

    #[test]
    fn a_link_in_place_of_a_memo_is_not_followed() {
        let memory = scratch("link");
        let attachment = memo("n", "c", "eth0");
        memory.note(&attachment);
        let path = memory.path(&attachment);
        let target = memory.dir.join("elsewhere");
        fs::rename(&path, &target).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert_eq!(memory.recall(&attachment), None);
        memory.note(&memo("n", "c", "eth0"));
        assert_eq!(memory.recall(&attachment), None);
        fs::remove_dir_all(&memory.dir).unwrap();
    }
}
