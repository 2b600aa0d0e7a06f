// SPDX-License-Identifier: Apache-2.0
//! Where the daemon is found: its socket, own or systemd's, and its pid file. Both go when it ends.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use cnibox_netns::errno::io_text;
use cnibox_spec::quoted;
use listenfd::ListenFd;
use thiserror::Error;

use crate::rpc::address_text;

/// Why there is no socket. The texts are Go's.
#[derive(Debug, Error)]
pub(super) enum ListenerError {
    /// systemd was told to listen at several places.
    #[error("Too many ({0}) FDs passed through socket activation")]
    TooMany(usize),
    /// What systemd passed is no socket to listen at.
    #[error("LISTEN_FDS=1 but no FD found")]
    NotASocket,
    /// The socket's directory could not be made.
    #[error("mkdir {}: {}", path.display(), io_text(source))]
    Directory { path: PathBuf, source: io::Error },
    /// Another daemon has the path, or nobody may have it.
    #[error("listen unix {}: bind: {}", path.display(), address_text(source))]
    Bind { path: PathBuf, source: io::Error },
}

/// A file that goes when this is dropped.
#[derive(Debug)]
pub(super) struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The socket that plugins connect to.
#[derive(Debug)]
pub(super) struct Listener {
    /// The socket itself.
    pub(super) socket: UnixListener,
    /// The path as plugins know it, without the host's prefix.
    pub(super) host_path: String,
    /// The socket's file; systemd's is not ours to remove.
    pub(super) own: Option<OwnFile>,
}

impl Listener {
    /// systemd's socket if there is one, else one at `prefix` and `path`.
    pub(super) fn open(prefix: &str, path: &str) -> Result<Self, ListenerError> {
        let mut passed = ListenFd::from_env();
        match passed.len() {
            0 => {
                let file = PathBuf::from(format!("{prefix}{path}"));
                let socket = listen(&file)?;
                Ok(Self { socket, host_path: path.to_owned(), own: Some(OwnFile(file)) })
            }
            1 => {
                let socket = passed.take_unix_listener(0).ok().flatten().ok_or(ListenerError::NotASocket)?;
                let host_path = path_of(&socket, prefix).unwrap_or_else(|| path.to_owned());
                Ok(Self { socket, host_path, own: None })
            }
            several => Err(ListenerError::TooMany(several)),
        }
    }
}

fn path_of(socket: &UnixListener, prefix: &str) -> Option<String> {
    let address = socket.local_addr().ok()?;
    let path = address.as_pathname()?.to_str()?;
    Some(path.strip_prefix(prefix).unwrap_or(path).to_owned())
}

fn listen(path: &Path) -> Result<UnixListener, ListenerError> {
    if let Some(dir) = path.parent() {
        let made = DirBuilder::new().mode(0o700).recursive(true).create(dir);
        made.map_err(|source| ListenerError::Directory { path: dir.to_owned(), source })?;
    }
    let bind = || UnixListener::bind(path);
    let bound = match bind() {
        // Left by a daemon that was killed.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            fs::remove_file(path).and_then(|()| bind())
        }
        bound => bound,
    };
    let restrict = |socket| fs::set_permissions(path, Permissions::from_mode(0o660)).map(|()| socket);
    bound.and_then(restrict).map_err(|source| ListenerError::Bind { path: path.to_owned(), source })
}

/// Whether the path is a socket at which nobody listens.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).err().is_some_and(refused)
}

/// Why there is no pid file.
#[derive(Debug, Error)]
#[error("Error writing pidfile {}: {reason}", quoted(.path))]
pub(super) struct PidFileError {
    path: String,
    reason: String,
}

/// Writes the file with the daemon's process number, unless `path` is empty.
pub(super) fn write_pid_file(path: &str) -> Result<Option<OwnFile>, PidFileError> {
    let failed = |reason: String| PidFileError { path: path.to_owned(), reason };
    if path.is_empty() {
        return Ok(None);
    }
    if !path.starts_with('/') {
        return Err(failed("path not absolute".to_owned()));
    }
    fs::write(path, std::process::id().to_string())
        .map_err(|error| failed(format!("open {path}: {}", io_text(&error))))?;
    Ok(Some(OwnFile(PathBuf::from(path))))
}
