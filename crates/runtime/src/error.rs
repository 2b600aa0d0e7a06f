// SPDX-License-Identifier: Apache-2.0
//! Why a runtime cannot do what it was asked for.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use cnibox_spec::{Attachment, IdentError, JsonError, VersionError, quoted};
use cnibox_sys::Failure;

/// What is wrong with a network's configuration, with what is remembered, or with what its plugins answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory has no configuration.
    #[error("no net configurations found in {}", .0.display())]
    NoneFound(PathBuf),
    /// The directory has configurations, but none of this name.
    #[error("no net configuration with name {} in {}", quoted(.0), .1.display())]
    NotFound(String, PathBuf),
    /// A directory cannot be listed, or a remembered attachment cannot be read.
    #[error("read {path}: {1}", path = .0.display())]
    Unread(PathBuf, io::Error),
    /// A file is no configuration.
    #[error("{file}: {1}", file = .0.display())]
    File(PathBuf, Box<Error>),
    /// It cannot be read.
    #[error("read: {0}")]
    Read(#[from] io::Error),
    /// It is no list of plugins.
    #[error("error parsing configuration list: {0}")]
    List(String),
    /// It is no plugin's configuration.
    #[error("error parsing configuration: {0}")]
    Conf(String),
    /// Neither the list nor the network's own folder has a plugin.
    #[error("no plugin configs found")]
    NoPlugins,
    /// The network's name is none.
    #[error(transparent)]
    Name(#[from] IdentError),
    /// The network's version is none.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The attachment's file is no JSON document.
    #[error("failed to unmarshal cached network {name} config: {1}", name = quoted(.0))]
    CachedJson(String, JsonError),
    /// The attachment's file is not libcni's.
    #[error("read cached network {} config has wrong kind", quoted(.0))]
    CachedKind(String),
    /// The attachment's file cannot be written.
    #[error("failed to set network {name} cached result: {1}", name = quoted(.0))]
    NotCached(String, io::Error),
    /// A plugin's ADD or DEL failed.
    #[error("plugin {0} failed ({1}): {2}")]
    Plugin(String, &'static str, Failure),
    /// A plugin's CHECK or STATUS failed.
    #[error(transparent)]
    Call(#[from] Failure),
    /// A plugin's GC failed.
    #[error("failed to GC plugin {0}: {1}")]
    Gc(String, Failure),
    /// An ADD failed beside an attachment that is remembered, which it must not take down.
    #[error("{0}; this attachment is remembered from an earlier add and was left as it is (del removes it)")]
    Known(Box<Error>),
    /// An ADD failed, and so did what was to undo it.
    #[error("{0}{undone}", undone = .1.iter().map(|error| format!("; undo: {error}")).collect::<String>())]
    NotUndone(Box<Error>, Vec<Error>),
    /// The network is older than CHECK.
    #[error("configuration version {} does not support the CHECK command", quoted(.0))]
    NoCheck(String),
    /// The result that is remembered is of no use to CHECK.
    #[error("failed to get network {name} cached result: failed to convert cached result to config version \"{1}\": {2}", name = quoted(.0))]
    Result(String, String, Failure),
    /// Plugins that failed while the others did their work.
    #[error("{}", joined(.0, "; "))]
    Several(Vec<Error>),
    /// An attachment that GC could not detach.
    #[error("failed to delete stale attachment {container} {ifname}: {1}", container = .0.container, ifname = .0.ifname)]
    Stale(Attachment, Box<Error>),
    /// What GC could not do, after everything else was done.
    #[error("{}", joined(.0, "\n"))]
    Left(Vec<Error>),
}

fn joined(errors: &[impl Display], separator: &str) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}
