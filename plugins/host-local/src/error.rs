// SPDX-License-Identifier: Apache-2.0
//! Everything that can go wrong, with the reference's texts where it has any.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cnibox_netns::errno::io_text;
use cnibox_spec::Code;
use cnibox_sys::{Coded, Failure};
use thiserror::Error;

use crate::owner::Owner;

/// A file operation that failed, told as Go's `os.PathError`.
#[derive(Debug, Error)]
#[error("{operation} {}: {}", .path.display(), io_text(.source))]
pub(crate) struct FileError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    pub(crate) fn new(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { operation, path: path.to_owned(), source: source.into() }
    }
}

impl Coded for FileError {
    const CODE: Code = Code::IO_FAILURE;
}

/// The state cannot be used.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("lock {} is held by another process for more than {} seconds", .path.display(), .waited.as_secs())]
    Busy { path: PathBuf, waited: Duration },
}

impl Coded for StoreError {
    fn code(&self) -> Code {
        match self {
            Self::File(error) => error.code(),
            Self::Busy { .. } => Code::TRY_AGAIN_LATER,
        }
    }
}

/// No address from one range set.
#[derive(Debug, Error)]
pub(crate) enum SetError {
    #[error("requested ip {0} is subnet's gateway")]
    Gateway(IpAddr),
    #[error("requested ip {0} is excluded from allocation")]
    Excluded(IpAddr),
    #[error("requested IP address {ip} is not available in range set {set}")]
    Taken { ip: IpAddr, set: String, owner: Option<Owner> },
    #[error("{ip} has been allocated to {}, duplicate allocation is not allowed", .owner.container())]
    Duplicate { ip: IpAddr, owner: Owner },
    #[error("no IP addresses available in range set: {0}")]
    Exhausted(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Coded for SetError {
    fn code(&self) -> Code {
        if let Self::Store(error) = self { error.code() } else { Code::INTERNAL }
    }
}

impl SetError {
    /// The failure for the range set of this number, with the owner of a contested address in its details.
    pub(crate) fn in_set(self, set: usize) -> Failure {
        let contested =
            if let Self::Taken { ip, owner: Some(owner), .. } | Self::Duplicate { ip, owner } = &self {
                Some(format!("{ip} belongs to {owner}"))
            } else {
                None
            };
        let mut failure = Failure::from(self).prefixed(&format!("failed to allocate for range {set}: "));
        if let Some(details) = contested {
            failure.add_details(&details);
        }
        failure
    }
}
