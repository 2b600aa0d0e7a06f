// SPDX-License-Identifier: Apache-2.0
//! One network namespace as an open file: checks, identity, entering and coming back.
#![expect(clippy::disallowed_methods, reason = "the only home of setns and unshare")]

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, PROC_SUPER_MAGIC, statfs};

use crate::Error;

/// An open network namespace. Holding it keeps the namespace alive.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
}

/// What makes two namespaces the same: device and inode of the namespace file, see `namespaces(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
}

/// The calling thread is inside another namespace until this is dropped. Not `Send`: namespaces belong to threads.
#[must_use = "the thread returns to its namespace when this is dropped"]
#[derive(Debug)]
pub struct Entered {
    home: NetNs,
    not_send: PhantomData<*const ()>,
}

impl NetNs {
    /// Opens the namespace at `path` after the reference's checks (`pkg/ns`: `IsNSorErr`, `GetNS`).
    ///
    /// # Errors
    /// [`Error::Statfs`] (its `ENOENT` case is [`Error::is_gone`]), [`Error::NotANamespace`], [`Error::Open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let stat = statfs(path)
            .map_err(|errno| Error::Statfs { path: path.to_path_buf(), source: io::Error::from(errno) })?;
        let magic = stat.filesystem_type();
        if magic != NSFS_MAGIC && magic != PROC_SUPER_MAGIC {
            return Err(Error::NotANamespace { path: path.to_path_buf(), magic: format!("{:x}", magic.0) });
        }
        let file = File::open(path).map_err(|source| Error::Open { path: path.to_path_buf(), source })?;
        Ok(Self { file, path: path.to_path_buf() })
    }

    /// The namespace the calling thread is in.
    ///
    /// # Errors
    /// [`Error::Current`], practically only when `/proc` is not mounted.
    pub fn current() -> Result<Self, Error> {
        let path = PathBuf::from(CURRENT);
        let file = File::open(&path).map_err(|source| Error::Current { source })?;
        Ok(Self { file, path })
    }

    /// A new, empty namespace that lives as long as something holds it open. Made on a thread of its own, so the
    /// caller's namespace does not change. Equivalent of the reference's `TempNetNS`.
    ///
    /// # Errors
    /// [`Error::Persist`] with the operation `create`; [`Error::Current`].
    pub fn anonymous() -> Result<Self, Error> {
        on_own_thread(|| {
            unshare_net().map_err(|source| Error::Persist {
                operation: "create",
                path: PathBuf::from("(anonymous)"),
                source,
            })?;
            Self::current()
        })
    }

    /// The path the namespace was opened by, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode of the namespace.
    ///
    /// # Errors
    /// [`Error::Open`] when `fstat` fails.
    pub fn identity(&self) -> Result<Identity, Error> {
        let meta = self.file.metadata().map_err(|source| Error::Open { path: self.path.clone(), source })?;
        Ok(Identity { device: meta.dev(), inode: meta.ino() })
    }

    /// Whether the calling thread is in this very namespace.
    ///
    /// # Errors
    /// As [`NetNs::current`] and [`NetNs::identity`].
    pub fn same_as_current(&self) -> Result<bool, Error> {
        Ok(self.identity()? == Self::current()?.identity()?)
    }

    /// Moves the calling thread into the namespace; dropping the result moves it back.
    ///
    /// # Errors
    /// [`Error::Current`], [`Error::Enter`]. The thread has not moved then.
    pub fn enter(&self) -> Result<Entered, Error> {
        let home = Self::current()?;
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| Error::Enter { path: self.path.clone(), source: io::Error::from(errno) })?;
        Ok(Entered { home, not_send: PhantomData })
    }

    /// Runs `work` inside the namespace, on the calling thread, and always returns from it, whatever `work` returns.
    /// A thread that is there already needs no privilege for it.
    ///
    /// # Errors
    /// As [`NetNs::enter`]; `work` has not run then.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        let _inside = if self.same_as_current()? { None } else { Some(self.enter()?) };
        Ok(work())
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for NetNs {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Entered {
    /// The namespace the thread came from and will return to: the host's, while a plugin is inside a container's.
    pub fn home(&self) -> &NetNs {
        &self.home
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if setns(&self.home.file, CloneFlags::CLONE_NEWNET).is_err() {
            // Going on would configure the wrong namespace, and there is nobody to return an error to.
            std::process::abort();
        }
    }
}

/// Whether `path` is the namespace the calling thread is in; a path that cannot be opened is not.
pub fn is_current(path: impl AsRef<Path>) -> bool {
    NetNs::open(path).and_then(|ns| ns.same_as_current()).unwrap_or(false)
}

/// `unshare(CLONE_NEWNET)` for the calling thread, which should be one that ends soon.
pub(crate) fn unshare_net() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
}

/// Runs `work` on a thread of its own and passes a panic on.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Not `/proc/self/ns/net`: that is the main thread's.
pub(crate) const CURRENT: &str = "/proc/thread-self/ns/net";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_path_is_gone_with_the_references_text() {
        let error = NetNs::open("/no/such/ns").unwrap_err();
        assert!(error.is_gone());
        assert_eq!(error.to_string(), "failed to Statfs \"/no/such/ns\": no such file or directory");
    }

    #[test]
    fn path_below_a_file_is_an_error_but_not_gone() {
        let error = NetNs::open("/proc/version/x").unwrap_err();
        assert!(!error.is_gone());
        assert_eq!(error.to_string(), "failed to Statfs \"/proc/version/x\": not a directory");
    }

    #[test]
    fn plain_file_is_an_unknown_magic() {
        let error = NetNs::open("/sys/kernel").unwrap_err();
        assert!(!error.is_gone());
        assert_eq!(error.to_string(), "unknown FS magic on \"/sys/kernel\": 62656572");
    }

    #[test]
    fn own_namespace_is_current() {
        assert!(is_current(CURRENT));
        assert!(!is_current("/no/such/ns"));
        assert!(NetNs::current().unwrap().same_as_current().unwrap());
    }

    #[test]
    fn entering_what_is_no_namespace_has_the_references_text() {
        let error = NetNs::open("/proc/version").unwrap().run(|| ()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error switching to ns /proc/version: Error switching to ns /proc/version: invalid argument"
        );
    }
}
