// SPDX-License-Identifier: Apache-2.0
//! The lock that all host-local plugins of a network share: `flock` on `lock`, as the reference takes it.

use std::fs::File;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::Mode;

use crate::error::{FileError, StoreError};
use crate::files::{LOCK, StateDir};

/// How long another process may hold the lock before this one gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: Flock<File>,
}

impl Lock {
    /// Takes the lock of a state directory.
    ///
    /// # Errors
    /// Another process holds it for longer than `patience`; the file cannot be opened.
    pub(crate) fn take(dir: &StateDir, patience: Duration) -> Result<Self, StoreError> {
        let file = dir.open_file(LOCK, OFlag::O_CREAT | OFlag::O_RDONLY, Mode::from_bits_truncate(0o750))?;
        let failed = |errno| StoreError::File(FileError::new("lock", &dir.path_of(LOCK), errno));
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Self { _held: held }),
            Err((file, Errno::EWOULDBLOCK)) => match wait(file, patience).map_err(failed)? {
                Some(held) => Ok(Self { _held: held }),
                None => Err(StoreError::Busy { path: dir.path_of(LOCK), waited: patience }),
            },
            Err((_, errno)) => Err(failed(errno)),
        }
    }
}

/// `flock` has no deadline, so that a thread waits in it. One that is left behind gives the lock back at once, since
/// nobody receives it.
fn wait(file: File, patience: Duration) -> Result<Option<Flock<File>>, Errno> {
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::Builder::new().name("flock".to_owned()).stack_size(64 << 10);
    let spawned = waiter.spawn(move || {
        let _ = sender.send(lock_uninterrupted(file));
    });
    spawned.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
    receiver.recv_timeout(patience).ok().transpose()
}

fn lock_uninterrupted(mut file: File) -> Result<Flock<File>, Errno> {
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(held) => return Ok(held),
            Err((again, Errno::EINTR)) => file = again,
            Err((_, errno)) => return Err(errno),
        }
    }
}
