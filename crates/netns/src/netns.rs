// SPDX-License-Identifier: Apache-2.0
//! One network namespace as an open file: checks, identity, entering and coming back.
#![expect(clippy::disallowed_methods, reason = "the only home of setns")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;
use nix::sys::statfs::{NSFS_MAGIC, PROC_SUPER_MAGIC, fstatfs};

use crate::Error;

/// An open network namespace. Holding it keeps the namespace alive.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
}

/// The calling thread is inside another namespace until this is dropped.
struct Entered {
    home: NetNs,
}

impl NetNs {
    /// Opens the namespace at `path` after the reference's checks (`pkg/ns`: `IsNSorErr`, `GetNS`).
    ///
    /// # Errors
    /// [`Error::Statfs`] (its `ENOENT` case is [`Error::is_gone`]), [`Error::NotANamespace`], [`Error::Open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let unread = |source| Error::Statfs { path: path.to_path_buf(), source };
        // One look: what is asked about is what is opened. Whatever it is, it is not opened for more before it is known: a
        // pipe would be waited for. (Not by the standard library, which takes musl's O_PATH for a part of the access mode.)
        let found = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
        let found = found.map_err(|errno| unread(io::Error::from(errno)))?;
        let magic = fstatfs(&found).map_err(|errno| unread(io::Error::from(errno)))?.filesystem_type();
        if magic != NSFS_MAGIC && magic != PROC_SUPER_MAGIC {
            return Err(Error::NotANamespace { path: path.to_path_buf(), magic: format!("{:x}", magic.0) });
        }
        let again = format!("/proc/thread-self/fd/{}", found.as_raw_fd());
        let file = File::open(again).map_err(|source| Error::Open { path: path.to_path_buf(), source })?;
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

    /// Device and inode of the namespace file, which make two namespaces the same, see `namespaces(7)`.
    ///
    /// # Errors
    /// [`Error::Open`] when `fstat` fails.
    pub fn identity(&self) -> Result<(u64, u64), Error> {
        let meta = self.file.metadata().map_err(|source| Error::Open { path: self.path.clone(), source })?;
        Ok((meta.dev(), meta.ino()))
    }

    /// Whether the calling thread is in this very namespace.
    ///
    /// # Errors
    /// As [`NetNs::current`] and [`NetNs::identity`].
    pub fn same_as_current(&self) -> Result<bool, Error> {
        Ok(self.identity()? == Self::current()?.identity()?)
    }

    /// Runs `work` inside the namespace and returns from it, whatever `work` returns. A thread that is there already needs
    /// no privilege for it. One that could not come back, because its own namespace belongs to a user namespace that it is
    /// not privileged in, stays where it is: the work is done on another, which ends inside (as all of the reference's).
    ///
    /// # Errors
    /// [`Error::Current`], [`Error::Enter`], [`Error::Thread`]; `work` has not run then.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let home = Self::current()?;
        if self.identity()? == home.identity()? {
            return Ok(work());
        }
        // Where the thread is: the kernel asks for the same privilege as on the way back.
        if home.set().is_err() {
            return on_own_thread(|| self.move_in().map(|()| work()))?;
        }
        self.move_in()?;
        let _inside = Entered { home };
        Ok(work())
    }

    fn move_in(&self) -> Result<(), Error> {
        self.set().map_err(|source| Error::Enter { path: self.path.clone(), source })
    }

    fn set(&self) -> io::Result<()> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.home.set().is_err() {
            // It was possible a moment ago. Going on would configure the wrong namespace, and there is nobody to return
            // an error to.
            std::process::abort();
        }
    }
}

/// Whether `path` is the namespace the calling thread is in; a path at which nothing can be found is not. Nothing is opened:
/// what is there tells what it is, whoever has put it there.
pub fn is_current(path: impl AsRef<Path>) -> bool {
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino()));
    identity(path.as_ref()).is_ok_and(|named| identity(Path::new(CURRENT)).is_ok_and(|own| own == named))
}

/// Runs `work` on a thread of its own and passes a panic on.
fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work);
        let thread = thread.map_err(|source| Error::Thread { source })?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Not `/proc/self/ns/net`: that is the main thread's.
const CURRENT: &str = "/proc/thread-self/ns/net";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_path_is_gone_with_the_references_text() {
        let error = NetNs::open("/no/such/ns").unwrap_err();
        assert!(error.is_gone());
        assert_eq!(error.to_string(), "failed to Statfs \"/no/such/ns\": no such file or directory");
    }

    /// Nobody writes to it: who opened it to read would wait for ever.
    #[test]
    fn a_pipe_is_no_namespace() {
        let path = std::env::temp_dir().join(format!("cnibox-netns-pipe-{}", std::process::id()));
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let opened = NetNs::open(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(opened, Err(Error::NotANamespace { .. })), "{opened:?}");
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
