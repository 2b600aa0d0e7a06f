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

use crate::rpc::address_text;

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
    ///
    /// # Errors
    /// Why there is none, in Go's words.
    pub(super) fn open(prefix: &str, path: &str) -> Result<Self, String> {
        let mut passed = ListenFd::from_env();
        match passed.len() {
            0 => {
                let file = PathBuf::from(format!("{prefix}{path}"));
                let socket = listen(&file)?;
                Ok(Self { socket, host_path: path.to_owned(), own: Some(OwnFile(file)) })
            }
            1 => {
                let socket =
                    passed.take_unix_listener(0).ok().flatten().ok_or("LISTEN_FDS=1 but no FD found")?;
                let host_path = path_of(&socket, prefix).unwrap_or_else(|| path.to_owned());
                Ok(Self { socket, host_path, own: None })
            }
            several => Err(format!("Too many ({several}) FDs passed through socket activation")),
        }
    }
}

fn path_of(socket: &UnixListener, prefix: &str) -> Option<String> {
    let address = socket.local_addr().ok()?;
    let path = address.as_pathname()?.to_str()?;
    Some(path.strip_prefix(prefix).unwrap_or(path).to_owned())
}

fn listen(path: &Path) -> Result<UnixListener, String> {
    if let Some(dir) = path.parent() {
        let made = DirBuilder::new().mode(0o700).recursive(true).create(dir);
        made.map_err(|error| format!("mkdir {}: {}", dir.display(), io_text(&error)))?;
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
    bound
        .and_then(restrict)
        .map_err(|error| format!("listen unix {}: bind: {}", path.display(), address_text(&error)))
}

/// Whether the path is a socket at which nobody listens.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).err().is_some_and(refused)
}

/// Writes the file with the daemon's process number, unless `path` is empty.
pub(super) fn write_pid_file(path: &str) -> Result<Option<OwnFile>, String> {
    let failed = |reason: &str| format!("Error writing pidfile {}: {reason}", quoted(path));
    if path.is_empty() {
        return Ok(None);
    }
    if !path.starts_with('/') {
        return Err(failed("path not absolute"));
    }
    fs::write(path, std::process::id().to_string())
        .map_err(|error| failed(&format!("open {path}: {}", io_text(&error))))?;
    Ok(Some(OwnFile(PathBuf::from(path))))
}
