// SPDX-License-Identifier: Apache-2.0
//! Namespaces bound to a path, as `ip netns add` makes them; for operator's tools and tests, never on a plugin's path.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::netns::{CURRENT, on_own_thread, unshare_net};
use crate::{Error, NetNs};

/// Creates a namespace and binds it to `path`, whose directory must exist (`ip netns add`, without the sharing of
/// `/run/netns`). The calling thread stays where it is.
///
/// # Errors
/// [`Error::Persist`]: the file exists already, no permission, no such directory; [`Error::Thread`]. Nothing is left
/// behind.
pub fn create_at(path: impl AsRef<Path>) -> Result<NetNs, Error> {
    let path = path.as_ref();
    File::create_new(path).map_err(|source| persist("create", path, source))?;
    let bound = on_own_thread(|| {
        unshare_net().map_err(|source| persist("unshare", path, source))?;
        mount(Some(CURRENT), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|errno| persist("mount", path, io::Error::from(errno)))
    });
    bound.flatten().and_then(|()| NetNs::open(path)).inspect_err(|_| {
        // The error at hand says more than one about the empty file.
        let _ = delete_at(path);
    })
}

/// Unbinds and removes what [`create_at`] made (`ip netns delete`); a plain file is just removed.
///
/// # Errors
/// [`Error::Persist`] when the file cannot be unmounted or removed.
pub fn delete_at(path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    match umount2(path, MntFlags::MNT_DETACH) {
        // EINVAL: not a mount point.
        Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
        Err(errno) => return Err(persist("unmount", path, io::Error::from(errno))),
    }
    fs::remove_file(path).map_err(|source| persist("remove", path, source))
}

fn persist(operation: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Persist { operation, path: path.to_path_buf(), source }
}
