// SPDX-License-Identifier: Apache-2.0
//! What stands under a name in a directory of plugins. Decided by content: a file that may be anything is not executed.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use super::BINARY;
use crate::operator::help::MARK;

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// A cnibox, or a link to one.
    Cnibox,
    /// Another CNI plugin.
    Plugin,
    /// Something else that a rename can replace, and what it is.
    NoPlugin(&'static str),
    /// A directory, which no rename can replace.
    Directory,
}

impl Found {
    /// Why it must not be replaced, if so.
    pub(super) fn reason_to_refuse(self, force: bool) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::Cnibox | Self::Plugin => None,
            Self::NoPlugin(_) if force => None,
            Self::NoPlugin(what) => Some(what),
            Self::Directory => Some("is a directory"),
        }
    }

    /// Whether replacing it without keeping it would lose something.
    pub(super) fn is_worth_keeping(self) -> bool {
        matches!(self, Self::Plugin | Self::NoPlugin(_))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "new",
            Self::Cnibox => "was cnibox already",
            Self::Plugin => "replaces another plugin",
            Self::NoPlugin(_) | Self::Directory => "replaces what is no plugin",
        })
    }
}

/// Looks at `name` in `dir`.
///
/// # Errors
/// When it is there but cannot be read.
pub(super) fn look(dir: &Path, name: &str) -> Result<Found> {
    let path = dir.join(name);
    let context = || format!("look at {}", path.display());
    let Some(own) = present(fs::symlink_metadata(&path)).with_context(context)? else {
        return Ok(Found::Nothing);
    };
    if own.is_symlink() && fs::read_link(&path).with_context(context)? == Path::new(BINARY) {
        return Ok(Found::Cnibox);
    }
    match present(fs::metadata(&path)).with_context(context)? {
        None => Ok(Found::NoPlugin("is a link to nothing")),
        Some(meta) if own.is_dir() && meta.is_dir() => Ok(Found::Directory),
        Some(meta) if meta.is_file() => Ok(classify(&fs::read(&path).with_context(context)?)),
        Some(_) => Ok(Found::NoPlugin("is no regular file")),
    }
}

fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Every CNI plugin reads `CNI_COMMAND`, so a compiled one has the name in it.
fn classify(bytes: &[u8]) -> Found {
    if !bytes.starts_with(b"\x7fELF") {
        Found::NoPlugin("is no compiled program")
    } else if contains(bytes, MARK.as_bytes()) {
        Found::Cnibox
    } else if contains(bytes, b"CNI_COMMAND") {
        Found::Plugin
    } else {
        Found::NoPlugin("is a program but no CNI plugin")
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
