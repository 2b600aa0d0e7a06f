// SPDX-License-Identifier: Apache-2.0
//! Ends a NETLINK_NETFILTER socket without waiting for the kernel to free what was deleted.
//!
//! Whoever closes such a socket, or exits with one, waits until the rules deleted last in that namespace have been freed
//! (`nft_rcv_nl_event` in `net/netfilter/nf_tables_api.c`): a grace period of RCU, 6 to 16 ms for a plugin whose DEL takes
//! 2 otherwise. Nothing of ours depends on it: the transaction is complete when it is acknowledged. So the socket goes
//! into the queue of a pair of Unix sockets that nothing but that queue refers to, and the kernel's collector of
//! descriptors in flight (`net/unix/garbage.c`) closes it from a worker of its own.
//!
//! The collector runs whenever somebody on the host closes a Unix socket; [`sweep`] is that somebody when nobody else is.
//! Until then the socket holds on to its network namespace, so every process that gives up none ends with a sweep: DEL
//! of a chain with that of its first plugin, at the latest.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};

/// A socket closed this long after a deletion does not wait any more.
pub(crate) const GRACE: Duration = Duration::from_millis(16);

/// Whether this process gave up a socket.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Gives up the socket. Where the kernel refuses (too many descriptors in flight, no Unix sockets) it is closed as usual.
pub(crate) fn leave(socket: &impl AsRawFd) {
    LEFT.store(true, Ordering::Relaxed);
    let _closed_as_usual = into_flight(socket);
}

fn into_flight(socket: &impl AsRawFd) -> Result<(), Errno> {
    let (one, other) = pair()?;
    let rights = [one.as_raw_fd(), other.as_raw_fd(), socket.as_raw_fd()];
    let payload = [IoSlice::new(b"x")];
    let fds = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(one.as_raw_fd(), &payload, &fds, MsgFlags::MSG_DONTWAIT, None).map(drop)
}

/// Has the kernel close the sockets that earlier processes gave up. Does nothing in a process that has just given up one
/// itself: whoever changes rules next would wait for it.
pub fn sweep() {
    if !LEFT.load(Ordering::Relaxed) {
        drop(pair());
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_CLOEXEC)
}
