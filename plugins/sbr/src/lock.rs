// SPDX-License-Identifier: Apache-2.0
//! The lock that all calls for a namespace share: `flock` on its file, as the reference takes it. Unlike there, a path
//! that is gone stays so.

use std::fs::File;
use std::io::ErrorKind;

use cnibox_netns::errno;
use cnibox_sys::Coded;
use thiserror::Error;

/// The lock, held until it is dropped: closing the file gives it back.
#[derive(Debug)]
pub(crate) struct NetnsLock {
    _held: File,
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
        let file = File::open(path).map_err(failed)?;
        loop {
            match file.lock() {
                Ok(()) => return Ok(Self { _held: file }),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}
