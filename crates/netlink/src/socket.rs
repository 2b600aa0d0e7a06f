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
        };
        self.inner.add_membership(number).map_err(Error::socket("join a group"))
    }

    /// Sends one datagram to the kernel.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn send(&self, datagram: &[u8]) -> Result<(), Error> {
        loop {
            match self.inner.send_to(datagram, &SocketAddr::new(0, 0), 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { operation: "send", source }),
            }
        }
    }

    /// Receives one datagram from the kernel, however long it takes. Datagrams of other processes are dropped.
    ///
    /// # Errors
    /// [`Error::Socket`] (with `ENOBUFS` when notifications were lost), [`Error::Truncated`].
    pub fn receive(&mut self) -> Result<&[u8], Error> {
        loop {
            if let Some(length) = self.receive_once(0)? {
                return self.buffer.get(..length).ok_or(Error::Truncated { length });
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
                return self.buffer.get(..length).map(Some).ok_or(Error::Truncated { length });
            }
        }
        Ok(None)
    }

    /// The real length of the next datagram, which may exceed the buffer; `None` if it was none of the kernel's.
    fn receive_once(&mut self, flags: libc::c_int) -> Result<Option<usize>, Error> {
        let mut buffer = self.buffer.as_mut_slice();
        match self.inner.recv_from(&mut buffer, libc::MSG_TRUNC | flags) {
            Ok((length, sender)) => Ok((sender.port_number() == KERNEL).then_some(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(None)
            }
            Err(source) => Err(Error::Socket { operation: "receive", source }),
        }
    }

    /// Whether something arrives before `deadline`.
    fn readable_until(&self, deadline: Instant) -> Result<bool, Error> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
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

/// The port number of the kernel itself.
const KERNEL: u32 = 0;

/// `enum rtnetlink_groups` of `linux/rtnetlink.h`.
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_IPV6_IFADDR: u32 = 9;
const RTNLGRP_IPV6_ROUTE: u32 = 11;

/// What the kernel fills at most in one datagram of a dump (`NLMSG_GOODSIZE` up to 32 KiB).
const RECEIVE_BUFFER: usize = 32 * 1024;
