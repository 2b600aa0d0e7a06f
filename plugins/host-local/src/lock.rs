// SPDX-License-Identifier: Apache-2.0
//! The lock that all host-local plugins of a network share: `flock` on `lock`, as the reference takes it.

use std::fs::{File, TryLockError};
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::error::{FileError, StoreError};
use crate::files::{LOCK, StateDir};

/// How long another process may hold the lock before this one gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The lock, held until it is dropped: closing the file gives it back.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: File,
}

impl Lock {
    /// Takes the lock of a state directory.
    ///
    /// # Errors
    /// Another process holds it for longer than `patience`; the file cannot be opened.
    pub(crate) fn take(dir: &StateDir, patience: Duration) -> Result<Self, StoreError> {
        let file = dir.open_file(LOCK, OFlag::O_CREAT | OFlag::O_RDONLY, Mode::from_bits_truncate(0o750))?;
        let failed = |error| StoreError::File(FileError::new("lock", &dir.path_of(LOCK), errno_of(&error)));
        match file.try_lock() {
            Ok(()) => Ok(Self { _held: file }),
            Err(TryLockError::WouldBlock) => match wait(file, patience).map_err(failed)? {
                Some(held) => Ok(Self { _held: held }),
                None => Err(StoreError::Busy { path: dir.path_of(LOCK), waited: patience }),
            },
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// `flock` has no deadline, so that a thread waits in it. One that is left behind gives the lock back at once, since
/// nobody receives it.
fn wait(file: File, patience: Duration) -> io::Result<Option<File>> {
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::Builder::new().name("flock".to_owned()).stack_size(64 << 10);
    waiter.spawn(move || {
        let _ = sender.send(lock_uninterrupted(file));
    })?;
    receiver.recv_timeout(patience).ok().transpose()
}

fn lock_uninterrupted(file: File) -> io::Result<File> {
    loop {
        match file.lock() {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
