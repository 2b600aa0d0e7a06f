// SPDX-License-Identifier: Apache-2.0
//! The lock that all calls for a namespace share: `flock` on its file, as the reference takes it. Unlike there, a path
//! that is gone stays so, and nobody is waited for for ever: any process of the container may hold the lock.

use std::fs::File;
use std::io;
use std::time::Duration;

use cnibox_netns::errno;
use cnibox_spec::Code;
use cnibox_sys::{Coded, lock_within};
use thiserror::Error;

/// Why the namespace could not be locked.
#[derive(Debug, Error)]
pub(crate) enum LockError {
    #[error("lock {path}: {}", errno::io_text(source))]
    Refused { path: String, source: io::Error },
    #[error("lock {path}: another process has had it for more than {} seconds", PATIENCE.as_secs())]
    Busy { path: String },
}

impl Coded for LockError {
    fn code(&self) -> Code {
        match self {
            Self::Refused { .. } => Code::INTERNAL,
            Self::Busy { .. } => Code::TRY_AGAIN_LATER,
        }
    }
}

/// Waits for the lock of the namespace at `path`. Closing the file gives it back.
///
/// # Errors
/// The file cannot be opened or locked, or another process has the lock.
pub(crate) fn lock(path: &str) -> Result<File, LockError> {
    within(path, PATIENCE)?.ok_or_else(|| LockError::Busy { path: path.to_owned() })
}

/// The same for DEL, which the container must not keep from working: `None` if it tries. No other call chooses a table by
/// what DEL does.
pub(crate) fn lock_if_free(path: &str) -> Result<Option<File>, LockError> {
    within(path, SHORT_PATIENCE)
}

fn within(path: &str, patience: Duration) -> Result<Option<File>, LockError> {
    let failed = |source| LockError::Refused { path: path.to_owned(), source };
    lock_within(File::open(path).map_err(failed)?, patience).map_err(failed)
}

/// Far longer than a call holds it.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
