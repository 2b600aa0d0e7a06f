// SPDX-License-Identifier: Apache-2.0
//! STATUS: whether ADD could work, found out without reserving or releasing anything, and without making the state
//! directory. In one that is there the lock is taken and the index brought up to date, as by every call.

use std::path::Path;

use cnibox_spec::Code;
use cnibox_sys::Failure;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use crate::allocate::exhausted_set;
use crate::config::Config;
use crate::error::{FileError, SetError, StoreError};
use crate::store::{Store, Terms};

/// Answers STATUS.
///
/// # Errors
/// Code 50: the state cannot be written, or a range set has no address left. Code 11: the state stays locked.
pub(crate) fn status(config: &Config, terms: &Terms) -> Result<(), Failure> {
    writable(&config.state).map_err(|error| not_ready(error.into()))?;
    let opened = Store::open_if_present(&config.state, terms).map_err(not_ready)?;
    let Some(mut store) = opened else { return Ok(()) };
    let exhausted = exhausted_set(&mut store, config).map_err(not_ready)?;
    let Some(set) = exhausted else { return Ok(()) };
    if config.reclaim_on_boot && !store.of_other_boots().map_err(not_ready)?.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Code::PLUGIN_NOT_AVAILABLE, SetError::Exhausted(set.to_string()).to_string()))
}

/// ADD would fail.
fn not_ready(error: StoreError) -> Failure {
    match error {
        StoreError::File(error) => Failure::new(Code::PLUGIN_NOT_AVAILABLE, error.to_string()),
        StoreError::Busy { .. } => error.into(),
    }
}

/// Whether files can be made in a directory, or the directory itself in the nearest one that exists.
fn writable(path: &Path) -> Result<(), FileError> {
    let may = AccessFlags::W_OK | AccessFlags::X_OK;
    for at in path.ancestors().filter(|at| *at != Path::new("")) {
        match faccessat(AT_FDCWD, at, may, AtFlags::AT_EACCESS) {
            Ok(()) if at.is_dir() => return Ok(()),
            Ok(()) => return Err(FileError::new("mkdir", at, Errno::ENOTDIR)),
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(FileError::new("access", at, errno)),
        }
    }
    Ok(())
}
