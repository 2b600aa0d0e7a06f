// SPDX-License-Identifier: Apache-2.0
//! The lock that all calls for a namespace share: `flock` on its file, as the reference takes it. Unlike there, a path
//! that is gone stays so.

use std::fs::File;

use cnibox_netns::errno;
use cnibox_sys::Coded;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct NetnsLock {
    _held: Flock<File>,
}

/// Why the namespace could not be locked.
#[derive(Debug, Error)]
#[error("lock {path}: {}", errno::io_text(source))]
pub(crate) struct LockError {
    path: String,
    source: std::io::Error,
}

impl Coded for LockError {}

impl NetnsLock {
    /// Waits for the lock of the namespace at `path`.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub(crate) fn take(path: &str) -> Result<Self, LockError> {
        let failed = |source| LockError { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusive) {
                Ok(held) => return Ok(Self { _held: held }),
                Err((again, Errno::EINTR)) => file = again,
                Err((_, errno)) => return Err(failed(errno.into())),
            }
        }
    }
}
