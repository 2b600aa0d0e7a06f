// SPDX-License-Identifier: Apache-2.0
//! The lock that all calls for a namespace share: `flock` on its file, as the reference takes it. Unlike there, a path
//! that is gone stays so, and nobody is waited for for ever: any process of the container may hold the lock.

use std::fs::File;
use std::time::Duration;

use cnibox_netns::errno;
use cnibox_spec::Code;
use cnibox_sys::{Failure, lock_within};

/// Waits for the lock of the namespace at `path`. Closing the file gives it back.
///
/// # Errors
/// The file cannot be opened or locked, or another process has the lock.
pub(crate) fn lock(path: &str) -> Result<File, Failure> {
    within(path, PATIENCE)?.ok_or_else(|| {
        let text =
            format!("lock {path}: another process has had it for more than {} seconds", PATIENCE.as_secs());
        Failure::new(Code::TRY_AGAIN_LATER, text)
    })
}

/// The same for DEL, which the container must not keep from working: `None` if it tries. No other call chooses a table by
/// what DEL does.
pub(crate) fn lock_if_free(path: &str) -> Result<Option<File>, Failure> {
    within(path, SHORT_PATIENCE)
}

fn within(path: &str, patience: Duration) -> Result<Option<File>, Failure> {
    let locked = File::open(path).and_then(|file| lock_within(file, patience));
    locked.map_err(|error| Failure::internal(format!("lock {path}: {}", errno::io_text(&error))))
}

/// Far longer than a call holds it.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
