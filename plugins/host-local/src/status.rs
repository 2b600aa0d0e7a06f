// SPDX-License-Identifier: Apache-2.0
//! STATUS: whether ADD could work, found out without making or changing anything.

use std::path::Path;

use cnibox_spec::Code;
use cnibox_sys::{Coded, Failure};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use thiserror::Error;

use crate::allocate::exhausted_set;
use crate::config::Config;
use crate::error::{FileError, StoreError};
use crate::store::{Store, Terms};

/// ADD would fail.
#[derive(Debug, Error)]
enum NotReady {
    #[error("no IP addresses available in range set: {0}")]
    Exhausted(String),
    #[error(transparent)]
    State(#[from] StoreError),
}

impl Coded for NotReady {
    fn code(&self) -> Code {
        match self {
            Self::State(error @ StoreError::Busy { .. }) => error.code(),
            Self::Exhausted(_) | Self::State(StoreError::File(_)) => Code::PLUGIN_NOT_AVAILABLE,
        }
    }
}

/// Answers STATUS.
///
/// # Errors
/// Code 50: the state cannot be written, or a range set has no address left. Code 11: the state stays locked.
pub(crate) fn status(config: &Config, terms: &Terms) -> Result<(), Failure> {
    writable(&config.state).map_err(|error| NotReady::State(error.into()))?;
    let Some(mut store) = Store::open_if_present(&config.state, terms).map_err(NotReady::State)? else {
        return Ok(());
    };
    let exhausted = exhausted(&mut store, config);
    store.close();
    match exhausted.map_err(NotReady::State)? {
        Some(set) => Err(NotReady::Exhausted(set).into()),
        None => Ok(()),
    }
}

/// The first range set without an address for the next ADD.
fn exhausted(store: &mut Store, config: &Config) -> Result<Option<String>, StoreError> {
    let exhausted = exhausted_set(store, config)?.map(ToString::to_string);
    if exhausted.is_some() && config.reclaim_on_boot && store.has_reclaimable()? {
        return Ok(None);
    }
    Ok(exhausted)
}

/// Whether files can be made in a directory, or the directory itself in the nearest one that exists.
fn writable(path: &Path) -> Result<(), FileError> {
    let may = AccessFlags::W_OK | AccessFlags::X_OK;
    let mut at = path;
    loop {
        match faccessat(AT_FDCWD, at, may, AtFlags::AT_EACCESS) {
            Ok(()) if at.is_dir() => return Ok(()),
            Ok(()) => return Err(FileError::new("mkdir", at, Errno::ENOTDIR)),
            Err(Errno::ENOENT) => match at.parent().filter(|parent| *parent != Path::new("")) {
                Some(parent) => at = parent,
                None => return Ok(()),
            },
            Err(errno) => return Err(FileError::new("access", at, errno)),
        }
    }
}
