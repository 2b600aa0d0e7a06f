// SPDX-License-Identifier: Apache-2.0
//! The lock that all host-local plugins of a network share: `flock` on `lock`, as the reference takes it.

use std::fs::File;
use std::io;
use std::time::Duration;

use cnibox_sys::lock_within;
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
        match lock_within(file, patience).map_err(failed)? {
            Some(held) => Ok(Self { _held: held }),
            None => Err(StoreError::Busy { path: dir.path_of(LOCK), waited: patience }),
        }
    }
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
