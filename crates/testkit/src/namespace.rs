// SPDX-License-Identifier: Apache-2.0
//! Network namespaces that are made for a test. The calling thread stays where it is.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use cnibox_netns::NetNs;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// A new, empty namespace that lives as long as something holds it open.
///
/// # Panics
/// If it cannot be made.
#[expect(clippy::disallowed_methods, reason = "the thread ends at once")]
pub fn anonymous() -> NetNs {
    let make = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("unshare a network namespace");
        NetNs::current().expect("open the new network namespace")
    };
    std::thread::spawn(make).join().expect("make a network namespace")
}

/// A new namespace that is bound to `path`, whose directory must exist (`ip netns add`, without the sharing of
/// `/run/netns`).
///
/// # Errors
/// The path exists already or cannot be made a mount point.
pub fn create_at(path: impl AsRef<Path>) -> io::Result<NetNs> {
    let path = path.as_ref();
    let made = anonymous();
    File::create_new(path)?;
    let open = format!("/proc/self/fd/{}", made.as_fd().as_raw_fd());
    mount(Some(open.as_str()), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    NetNs::open(path).map_err(io::Error::other)
}
