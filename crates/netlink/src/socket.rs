// SPDX-License-Identifier: Apache-2.0
//! A blocking netlink socket: whole datagrams from the kernel and nobody else, with an optional deadline.
//!
//! Knows nothing about the messages inside.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use netlink_sys::{SocketAddr, protocols};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::Error;

/// One `NETLINK_ROUTE` socket, bound, in the namespace that the thread was in when it was opened.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: netlink_sys::Socket,
    buffer: Vec<u8>,
}

/// Multicast groups of `NETLINK_ROUTE`, see `rtnetlink(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Multicast {
    /// Links appear, change and disappear.
    Link = libc::RTNLGRP_LINK,
    /// IPv6 addresses do.
    Ipv6Addr = libc::RTNLGRP_IPV6_IFADDR,
    /// IPv6 routes do.
    Ipv6Route = libc::RTNLGRP_IPV6_ROUTE,
    /// Other namespaces get numbers and lose them, at the latest as they end.
    Nsid = libc::RTNLGRP_NSID,
}

impl Socket {
    /// Opens and binds a socket with extended acknowledgements (`NETLINK_EXT_ACK`), short ones (`NETLINK_CAP_ACK`) and
    /// strictly checked dump requests (`NETLINK_GET_STRICT_CHK`).
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub(crate) fn open() -> Result<Self, Error> {
        let mut inner =
            netlink_sys::Socket::new(protocols::NETLINK_ROUTE).map_err(Error::socket("socket"))?;
        inner.set_ext_ack(true).map_err(Error::socket("set NETLINK_EXT_ACK"))?;
        inner.set_cap_ack(true).map_err(Error::socket("set NETLINK_CAP_ACK"))?;
        // Kernels before 4.20 lack it: they ignore dump filters, and every filter is applied again here.
        let _ = inner.set_netlink_get_strict_chk(true);
        inner.bind_auto().map_err(Error::socket("bind"))?;
        // Whoever owns the namespace could fill the receive buffer, and answers would be lost. A connected socket takes
        // nothing from others (`netlink_getsockbyportid` of net/netlink/af_netlink.c).
        inner.connect(&SocketAddr::new(KERNEL, 0)).map_err(Error::socket("connect"))?;
        Ok(Self { inner, buffer: Vec::with_capacity(RECEIVE_BUFFER) })
    }

    /// Receives the notifications of a group from now on.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub(crate) fn join(&self, group: Multicast) -> Result<(), Error> {
        self.inner.add_membership(group as u32).map_err(Error::socket("join a group"))
    }

    /// Sends one datagram to the kernel.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub(crate) fn send(&self, datagram: &[u8]) -> Result<(), Error> {
        loop {
            match self.inner.send(datagram, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { operation: "send", source }),
            }
        }
    }

    /// Receives one datagram from the kernel, however long it takes. Datagrams of other processes are dropped.
    ///
    /// # Errors
    /// [`Error::Socket`], with `ENOBUFS` when notifications were lost.
    pub(crate) fn receive(&mut self) -> Result<&[u8], Error> {
        loop {
            if let Some(length) = self.receive_once(0)? {
                return Ok(self.buffer.get(..length).unwrap_or_default());
            }
        }
    }

    /// Receives one datagram, or `None` once `deadline` has passed.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub(crate) fn receive_until(&mut self, deadline: Instant) -> Result<Option<&[u8]>, Error> {
        while self.readable_until(deadline)? {
            if let Some(length) = self.receive_once(libc::MSG_DONTWAIT)? {
                return Ok(self.buffer.get(..length));
            }
        }
        Ok(None)
    }

    /// Throws away what is queued, at most until `deadline`. The kernel says once that it dropped notifications (`ENOBUFS`),
    /// and goes on dropping them without a word until the queue was empty (`netlink_overrun` and `netlink_rcv_wake` in
    /// `net/netlink/af_netlink.c`).
    ///
    /// # Errors
    /// As [`Socket::receive`], but for more that is dropped.
    pub(crate) fn discard(&mut self, deadline: Instant) -> Result<(), Error> {
        while Instant::now() < deadline {
            match self.skip() {
                Ok(None) => break,
                Err(error) if error.errno() != Some(libc::ENOBUFS) => return Err(error),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// The length of the next datagram, which is in the buffer then; `None` if there was none, or none of the kernel's.
    fn receive_once(&mut self, flags: libc::c_int) -> Result<Option<usize>, Error> {
        let Some((length, sender)) = self.look(libc::MSG_PEEK | flags)? else { return Ok(None) };
        if length > self.buffer.len() {
            self.buffer.clear();
            self.buffer.reserve(length);
            self.look(libc::MSG_DONTWAIT)?;
        } else {
            // All that is left to do is to take it off the queue.
            self.skip()?;
        }
        Ok((sender.port_number() == KERNEL).then_some(length))
    }

    /// The real length of the next datagram, however much of it goes into the buffer.
    fn look(&mut self, flags: libc::c_int) -> Result<Option<(usize, SocketAddr)>, Error> {
        self.buffer.clear();
        received(self.inner.recv_from(&mut self.buffer, libc::MSG_TRUNC | flags))
    }

    /// Takes the next datagram off the queue, if there is one.
    fn skip(&self) -> Result<Option<(usize, SocketAddr)>, Error> {
        let mut nowhere: &mut [u8] = &mut [];
        received(self.inner.recv_from(&mut nowhere, libc::MSG_TRUNC | libc::MSG_DONTWAIT))
    }

    /// The kernel's number for the socket's namespace (`SO_NETNS_COOKIE`); `None` before Linux 5.14.
    pub(crate) fn netns_cookie(&self) -> Option<u64> {
        let mut cookie = 0_u64;
        let mut length = libc::socklen_t::try_from(size_of::<u64>()).ok()?;
        // SAFETY: the kernel writes at most `length` bytes to `cookie`, which has as many.
        let done = unsafe {
            libc::getsockopt(
                self.inner.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut length,
            )
        };
        (done == 0).then_some(cookie)
    }

    /// Whether something arrives before `deadline`. Afterwards nothing counts: whoever owns the namespace could go on
    /// for ever.
    fn readable_until(&self, deadline: Instant) -> Result<bool, Error> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let mut poll = [PollFd::new(self.inner.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut poll, Some(TimeSpec::from_duration(left)), None) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(Error::Socket { operation: "poll", source: errno.into() }),
            }
        }
    }
}

/// What was received, if anything was.
fn received(outcome: io::Result<(usize, SocketAddr)>) -> Result<Option<(usize, SocketAddr)>, Error> {
    match outcome {
        Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
            Ok(None)
        }
        Err(source) => Err(Error::Socket { operation: "receive", source }),
        Ok(received) => Ok(Some(received)),
    }
}

/// The port number of the kernel itself.
const KERNEL: u32 = 0;

/// What the kernel fills in one datagram of a dump (`NLMSG_GOODSIZE` up to 32 KiB), unless one message is longer: a link
/// can have hundreds of names.
const RECEIVE_BUFFER: usize = 32 * 1024;
