// SPDX-License-Identifier: Apache-2.0
//! A directory that is this program's alone: real, nobody else's to write, and with files that are there whole or not
//! at all.
//!
//! Invariant: no link in place of a directory or a file of ours is ever followed, and what is read is a plain file of
//! bounded size. Knows nothing of what the files say.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory below one that only the superuser can write, such as `/run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateDir {
    /// From the outermost directory that is ours to the directory itself.
    chain: Vec<PathBuf>,
}

impl PrivateDir {
    /// The directory `/run/cnibox` below `prefix`, which is empty but for daemons that see the host elsewhere.
    #[must_use]
    pub fn of_host(prefix: &str) -> Self {
        Self::new(PathBuf::from(format!("{prefix}{ROOT}")))
    }

    /// The directory at `path`, which need not be there.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { chain: vec![path.into()] }
    }

    /// A directory in it.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let mut chain = self.chain.clone();
        chain.push(self.path().join(name));
        Self { chain }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.chain.last().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Whether it is there, and it and the directories of ours above it are what they should be.
    fn is_there(&self) -> bool {
        self.expect().is_ok()
    }

    /// As [`PrivateDir::is_there`], with the reason.
    fn expect(&self) -> io::Result<()> {
        self.chain.iter().try_for_each(|dir| expect_private(dir))
    }

    /// Makes it where it is missing.
    ///
    /// # Errors
    /// It cannot be made, or something else has its place (`ENOTDIR`).
    pub fn ensure(&self) -> io::Result<()> {
        if self.is_there() {
            return Ok(());
        }
        for dir in &self.chain {
            match DirBuilder::new().mode(0o700).recursive(dir == &self.chain[0]).create(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => expect_private(dir)?,
            }
        }
        Ok(())
    }

    /// Opens a plain file in it; nothing is waited for.
    ///
    /// # Errors
    /// There is none (`ENOENT`), it is no plain file (`EINVAL`, `ELOOP` for a link), or it cannot be opened.
    pub fn open(&self, name: &str) -> io::Result<File> {
        self.expect()?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(self.path().join(name))?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
    }

    /// The text of a file; `None` when there is none, or something else has its place or that of a directory.
    ///
    /// # Errors
    /// It cannot be opened or read, is larger than `limit` bytes (`EFBIG`) or no UTF-8.
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Option<String>> {
        let read_once = || match self.open(name) {
            Err(error) if is_no_file(&error) => Ok(None),
            opened => read(&opened?, limit).map(Some),
        };
        again(read_once)
    }

    /// Puts a file with this content in place of an older one, in one step, and answers with it, opened and locked
    /// (`flock(2)`): while the answer is kept, [`PrivateDir::is_held`] says so.
    ///
    /// # Errors
    /// It cannot be written, or another process is at it (`EAGAIN`); then an older one is as it was.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<File> {
        // The directories may vanish with another file between the steps.
        again(|| self.ensure().and_then(|()| self.replace_once(name, content)))
    }

    fn replace_once(&self, name: &str, content: &[u8]) -> io::Result<File> {
        let unfinished = self.path().join(unfinished(name));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = match options.open(&unfinished) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.sweep(name);
                options.open(&unfinished)?
            }
            opened => opened?,
        };
        let mut write = || {
            file.try_lock()?;
            file.write_all(content)?;
            fs::rename(&unfinished, self.path().join(name))
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })?;
        Ok(file)
    }

    /// Gives a file another name, in one step.
    ///
    /// # Errors
    /// There is none (`ENOENT`), or it cannot be renamed.
    pub fn rename(&self, name: &str, to: &str) -> io::Result<()> {
        self.expect()?;
        fs::rename(self.path().join(name), self.path().join(to))
    }

    /// Whether a process has the file as [`PrivateDir::replace`] left it, open and locked.
    #[must_use]
    pub fn is_held(&self, name: &str) -> bool {
        let mut attempts_left = ATTEMPTS;
        loop {
            let file = match self.open(name) {
                Ok(file) => file,
                // What cannot be found out is held.
                Err(error) => return !is_no_file(&error),
            };
            attempts_left -= 1;
            match file.try_lock_shared() {
                // Replaced between the two looks: the holder has the new one.
                Ok(()) if file.metadata().is_ok_and(|meta| meta.nlink() == 0) && attempts_left > 0 => {}
                Ok(()) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Removes a file; false when there was none.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_if_present(&self, name: &str) -> io::Result<bool> {
        again(|| match self.expect().and_then(|()| fs::remove_file(self.path().join(name))) {
            Err(error) if is_no_file(&error) => Ok(false),
            removed => removed.map(|()| true),
        })
        .inspect(|_| self.sweep(name))
    }

    /// The names of the files that are in it, as far as they are text; without those that are being written.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = self.listed();
        names.retain(|name| !name.starts_with(UNFINISHED));
        names
    }

    fn listed(&self) -> Vec<String> {
        let listed =
            again(|| self.expect().and_then(|()| fs::read_dir(self.path())?.collect::<io::Result<Vec<_>>>()));
        let entries = listed.unwrap_or_default().into_iter();
        entries.filter_map(|entry| OsString::into_string(entry.file_name()).ok()).collect()
    }

    /// Removes it and the directories of ours above it as far as they are empty.
    pub fn remove_if_empty(&self) {
        if self.is_there() {
            let _ = self.chain.iter().rev().try_for_each(|dir| again(|| fs::remove_dir(dir)));
        }
    }

    /// Removes what killed processes have left of files that they were writing, and the directory if nothing else is in it.
    pub(crate) fn sweep_all(&self) {
        let listed = self.listed();
        let mut unfinished = listed.iter().filter_map(|name| name.strip_prefix(UNFINISHED)).peekable();
        if unfinished.peek().is_some() {
            unfinished.for_each(|name| self.sweep(name));
            self.remove_if_empty();
        }
    }

    /// Removes what a killed process has left of a file that it was writing; one that lives has it locked.
    pub(crate) fn sweep(&self, name: &str) {
        if !self.is_there() {
            return;
        }
        let path = self.path().join(unfinished(name));
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let left = options.open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if left || fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// What a file is called while it is being written.
fn unfinished(name: &str) -> String {
    format!("{UNFINISHED}{name}")
}

/// The text of an open file of at most `limit` bytes.
///
/// # Errors
/// It cannot be read, is larger (`EFBIG`) or is no UTF-8.
pub(crate) fn read(file: &File, limit: u64) -> io::Result<String> {
    // Of a size that is known it takes two calls, and no copies.
    let size = usize::try_from(file.metadata()?.len().min(limit)).unwrap_or_default();
    let mut text = String::with_capacity(size + 1);
    file.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit { Err(io::Error::from_raw_os_error(libc::EFBIG)) } else { Ok(text) }
}

/// Tries again what may be refused by a kernel that is short of something for a moment.
fn again<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut attempts_left = ATTEMPTS;
    loop {
        attempts_left -= 1;
        match work() {
            Err(error) if attempts_left > 0 && error.kind() != io::ErrorKind::DirectoryNotEmpty => {}
            done => return done,
        }
    }
}

/// Whether there is nothing, or something that is no file of ours.
fn is_no_file(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EINVAL | libc::ENXIO)
    )
}

/// A directory and no link to one, that nobody but its owner can write.
fn expect_private(dir: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(dir)?;
    let is_private = meta.is_dir() && meta.mode() & 0o022 == 0;
    if is_private { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOTDIR)) }
}

const ROOT: &str = "/run/cnibox";
/// How the names of files begin that are being written.
const UNFINISHED: &str = ".new-";
const ATTEMPTS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PrivateDir {
        let path = std::env::temp_dir().join(format!("cnibox-private-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        PrivateDir::new(path)
    }

    #[test]
    fn files_are_replaced_whole_and_directories_go_with_the_last() {
        let dir = scratch("replace");
        let inner = dir.below("a").below("b");
        inner.replace("x", b"one").unwrap();
        inner.replace("x", b"two").unwrap();
        assert_eq!(inner.read("x", 3).unwrap().as_deref(), Some("two"));
        assert_eq!(inner.read("x", 2).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        assert_eq!(fs::metadata(inner.path().join("x")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(inner.path()).unwrap().mode() & 0o777, 0o700);
        inner.remove_if_empty();
        assert_eq!(inner.names(), ["x"]);
        assert!(inner.remove_if_present("x").unwrap() && !inner.remove_if_present("x").unwrap());
        inner.remove_if_empty();
        assert!(!dir.path().exists());
    }

    #[test]
    fn nothing_is_followed_and_nothing_foreign_is_used() {
        let dir = scratch("foreign");
        let inner = dir.below("inner");
        inner.replace("file", b"x").unwrap();
        std::os::unix::fs::symlink(inner.path().join("file"), inner.path().join("link")).unwrap();
        assert_eq!(inner.read("link", 9).unwrap(), None);
        inner.replace("link", b"y").unwrap();
        assert_eq!(
            inner.read("file", 9).unwrap().as_deref(),
            Some("x"),
            "the link was replaced, not written through"
        );
        std::os::unix::fs::symlink(inner.path(), dir.path().join("elsewhere")).unwrap();
        let linked = dir.below("elsewhere");
        let half = inner.path().join(".new-file");
        fs::write(&half, "half").unwrap();
        assert!(!linked.remove_if_present("file").unwrap() && half.exists(), "through the link");
        assert!(!linked.is_there() && linked.names().is_empty() && linked.replace("f", b"").is_err());
        let open = dir.below("open");
        fs::create_dir(open.path()).unwrap();
        fs::set_permissions(open.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(open.replace("f", b"").is_err());
        fs::remove_dir_all(dir.path()).unwrap();
    }

    #[test]
    fn a_file_is_held_as_long_as_its_writer_keeps_it() {
        let dir = scratch("held");
        let held = dir.replace("x", b"one").unwrap();
        assert!(dir.is_held("x") && !dir.is_held("y"));
        let newer = dir.replace("x", b"two").unwrap();
        drop(held);
        assert!(dir.is_held("x"));
        drop(newer);
        assert!(!dir.is_held("x"));
        fs::remove_dir_all(dir.path()).unwrap();
    }

    #[test]
    fn what_a_killed_writer_left_is_no_file_and_goes_with_it() {
        let dir = scratch("killed");
        dir.ensure().unwrap();
        fs::write(dir.path().join(".new-x"), "half").unwrap();
        assert!(dir.names().is_empty());
        dir.replace("x", b"whole").unwrap();
        assert_eq!(
            (dir.names(), dir.read("x", 9).unwrap()),
            (vec!["x".to_owned()], Some("whole".to_owned()))
        );
        fs::write(dir.path().join(".new-x"), "half").unwrap();
        dir.remove_if_present("x").unwrap();
        dir.remove_if_empty();
        assert!(!dir.path().exists());
    }
}
