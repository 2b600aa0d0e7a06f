// SPDX-License-Identifier: Apache-2.0
//! A blocking netlink socket: whole datagrams from the kernel and nobody else, with an optional deadline.
//!
//! Knows nothing about the messages inside.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use netlink_sys::{SocketAddr, protocols};

use crate::Error;

/// One `NETLINK_ROUTE` socket, bound, in the namespace that the thread was in when it was opened.
#[derive(Debug)]
pub struct Socket {
    inner: netlink_sys::Socket,
    buffer: Vec<u8>,
}

/// Multicast groups of `NETLINK_ROUTE`, see `rtnetlink(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Multicast {
    /// `RTNLGRP_LINK`: links appear, change and disappear.
    Link,
    /// `RTNLGRP_IPV6_IFADDR`: IPv6 addresses do.
    Ipv6Addr,
    /// `RTNLGRP_IPV6_ROUTE`: IPv6 routes do.
    Ipv6Route,
    /// `RTNLGRP_NSID`: other namespaces get numbers and lose them, at the latest as they end.
    Nsid,
}

impl Socket {
    /// Opens and binds a socket with extended acknowledgements (`NETLINK_EXT_ACK`), short ones (`NETLINK_CAP_ACK`) and
    /// strictly checked dump requests (`NETLINK_GET_STRICT_CHK`).
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn open() -> Result<Self, Error> {
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
        Ok(Self { inner, buffer: vec![0; RECEIVE_BUFFER] })
    }

    /// Receives the notifications of a group from now on.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn join(&self, group: Multicast) -> Result<(), Error> {
        let number = match group {
            Multicast::Link => RTNLGRP_LINK,
            Multicast::Ipv6Addr => RTNLGRP_IPV6_IFADDR,
            Multicast::Ipv6Route => RTNLGRP_IPV6_ROUTE,
            Multicast::Nsid => RTNLGRP_NSID,
        };
        self.inner.add_membership(number).map_err(Error::socket("join a group"))
    }

    /// Sends one datagram to the kernel.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn send(&self, datagram: &[u8]) -> Result<(), Error> {
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
    pub fn receive(&mut self) -> Result<&[u8], Error> {
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
    pub fn receive_until(&mut self, deadline: Instant) -> Result<Option<&[u8]>, Error> {
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
            match self.look(0, libc::MSG_DONTWAIT) {
                Ok(None) => break,
                Err(error) if error.errno() != Some(libc::ENOBUFS) => return Err(error),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// The length of the next datagram, which is in the buffer then; `None` if there was none, or none of the kernel's.
    fn receive_once(&mut self, flags: libc::c_int) -> Result<Option<usize>, Error> {
        let Some((length, sender)) = self.look(self.buffer.len(), libc::MSG_PEEK | flags)? else {
            return Ok(None);
        };
        // Usually all that is left to do is to take it off the queue.
        let missing = if length > self.buffer.len() { length } else { 0 };
        self.buffer.resize(self.buffer.len().max(missing), 0);
        self.look(missing, libc::MSG_DONTWAIT)?;
        Ok((sender.port_number() == KERNEL).then_some(length))
    }

    /// The real length of the next datagram, however much of it goes into the first `room` bytes of the buffer.
    fn look(&mut self, room: usize, flags: libc::c_int) -> Result<Option<(usize, SocketAddr)>, Error> {
        let mut buffer = self.buffer.get_mut(..room).unwrap_or_default();
        match self.inner.recv_from(&mut buffer, libc::MSG_TRUNC | flags) {
            Ok(received) => Ok(Some(received)),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(None)
            }
            Err(source) => Err(Error::Socket { operation: "receive", source }),
        }
    }

    /// The kernel's number for the socket's namespace (`SO_NETNS_COOKIE`); `None` before Linux 5.14.
    pub fn netns_cookie(&self) -> Option<u64> {
        let mut cookie = 0_u64;
        let mut length = libc::socklen_t::try_from(size_of::<u64>()).ok()?;
        // SAFETY: the kernel writes at most `length` bytes to `cookie`, which has as many.
        let done = unsafe {
            libc::getsockopt(
                self.inner.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_NETNS_COOKIE,
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
            // Rounded up, or the last millisecond would be spent in a busy loop.
            let millis = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            let mut poll = libc::pollfd { fd: self.inner.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: `poll` is one valid, exclusively borrowed pollfd, and the count says one.
            match unsafe { libc::poll(&raw mut poll, 1, millis) } {
                0 if left <= Duration::from_millis(u64::from(i32::MAX.unsigned_abs())) => return Ok(false),
                0 => {}
                1.. => return Ok(true),
                _ => {
                    let source = io::Error::last_os_error();
                    if source.kind() != io::ErrorKind::Interrupted {
                        return Err(Error::Socket { operation: "poll", source });
                    }
                }
            }
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// `asm-generic/socket.h`; the same on every architecture with 64 bits that Rust builds for, but sparc64.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The port number of the kernel itself.
const KERNEL: u32 = 0;

/// `enum rtnetlink_groups` of `linux/rtnetlink.h`.
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_IPV6_IFADDR: u32 = 9;
const RTNLGRP_IPV6_ROUTE: u32 = 11;
const RTNLGRP_NSID: u32 = 28;

/// What the kernel fills in one datagram of a dump (`NLMSG_GOODSIZE` up to 32 KiB), unless one message is longer: a link
/// can have hundreds of names.
const RECEIVE_BUFFER: usize = 32 * 1024;
