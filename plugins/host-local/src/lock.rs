// SPDX-License-Identifier: Apache-2.0
//! The lock that all host-local plugins of a network share: `flock` on `lock`, as the reference takes it.

use std::fs::File;
use std::time::Duration;

use cnibox_sys::lock_within;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::error::{FileError, StoreError};
use crate::files::{LOCK, StateDir};

/// How long another process may hold the lock before this one gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Takes the lock of a state directory, which is held until the file is closed.
///
/// # Errors
/// Another process holds it for longer than `patience`; the file cannot be opened.
pub(crate) fn take(dir: &StateDir, patience: Duration) -> Result<File, StoreError> {
    let file = dir.open_file(LOCK, OFlag::O_CREAT | OFlag::O_RDONLY, Mode::from_bits_truncate(0o750))?;
    match lock_within(file, patience) {
        Ok(Some(held)) => Ok(held),
        Ok(None) => Err(StoreError::Busy { path: dir.path_of(LOCK), waited: patience }),
        Err(error) => Err(FileError::new("lock", &dir.path_of(LOCK), error).into()),
    }
}
