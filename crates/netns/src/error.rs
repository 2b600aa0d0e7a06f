// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a namespace. The texts of opening and entering are the Go reference's.

use std::io;
use std::path::PathBuf;

use crate::errno::io_text;

/// An error of this crate. `Display` is complete: it already contains the text of the system error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `statfs` on the path failed. With `ENOENT` the container is gone; see [`Error::is_gone`].
    #[error("failed to Statfs {}: {}", quoted(path), io_text(source))]
    Statfs {
        /// The path as given.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The path names something that is not a namespace, for example the plain file left behind by an unmount.
    #[error("unknown FS magic on {}: {magic}", quoted(path))]
    NotANamespace {
        /// The path as given.
        path: PathBuf,
        /// `f_type` of `statfs(2)`, in hexadecimal.
        magic: String,
    },
    /// The path passed the check but could not be opened.
    #[error("open {}: {}", path.display(), io_text(source))]
    Open {
        /// The path as given.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// `setns` into the namespace failed.
    #[error("error switching to ns {0}: Error switching to ns {0}: {1}", path.display(), io_text(source))]
    Enter {
        /// The path the namespace was opened by.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The calling thread's own namespace could not be opened.
    #[error("failed to open current netns: {}", io_text(source))]
    Current {
        /// The system's answer.
        source: io::Error,
    },
    /// A thread that may stay in another namespace could not be started.
    #[error("start a thread for another netns: {}", io_text(source))]
    Thread {
        /// The system's answer.
        source: io::Error,
    },
}

impl Error {
    /// The path does not exist (`ENOENT` of `statfs`). Only this means "container already gone" on DEL.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Statfs { source, .. } if source.raw_os_error() == Some(libc::ENOENT))
    }
}

/// Go's `%q` for the paths that occur in practice; Rust's escapes differ only for control characters.
fn quoted(path: &std::path::Path) -> String {
    format!("{:?}", path.to_string_lossy())
}
