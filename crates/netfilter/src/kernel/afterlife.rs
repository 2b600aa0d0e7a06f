// SPDX-License-Identifier: Apache-2.0
//! Ends a NETLINK_NETFILTER socket without waiting for the kernel to free what was deleted.
//!
//! Whoever closes such a socket, or exits with one, waits until the rules deleted last in that namespace have been freed
//! (`nft_rcv_nl_event` in `net/netfilter/nf_tables_api.c`): a grace period of RCU, 6 to 16 ms each time where everything
//! else that DEL does takes 3. Nothing of ours depends on it: the transaction is complete when it is acknowledged. So the
//! socket is left to the kernel's garbage collector for descriptors in flight (`net/unix/garbage.c`): it goes into the
//! queue of a pair of Unix sockets that nothing but that queue refers to. The next Unix socket that anybody on the host
//! closes has it collected, by a worker of the kernel.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};

/// Gives up the socket. Where the kernel refuses (too many descriptors in flight, no Unix sockets) it is closed as usual.
pub(crate) fn leave(socket: &impl AsRawFd) {
    let _closed_as_usual = into_limbo(socket);
}

fn into_limbo(socket: &impl AsRawFd) -> Result<(), Errno> {
    let (one, other): (OwnedFd, OwnedFd) =
        socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_CLOEXEC)?;
    let rights = [one.as_raw_fd(), other.as_raw_fd(), socket.as_raw_fd()];
    let payload = [IoSlice::new(b"x")];
    sendmsg::<()>(
        one.as_raw_fd(),
        &payload,
        &[ControlMessage::ScmRights(&rights)],
        MsgFlags::MSG_DONTWAIT,
        None,
    )
    .map(drop)
}
