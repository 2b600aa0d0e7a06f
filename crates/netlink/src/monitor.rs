// SPDX-License-Identifier: Apache-2.0
//! Waiting for the kernel without sleeping or polling: subscribe, look once, then follow the notifications.

use std::time::Instant;

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::rtnl::packets;
use crate::socket::Socket;
use crate::{Addr, Error, Family, Link, Multicast, Rtnl, link};

/// Notifications of one namespace, from its opening on. Open it before the change whose effect is awaited, or at least
/// before the wait: every wait reads the present state once, so nothing is missed in between.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
}

/// How a wait for a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The condition became true.
    Reached(Link),
    /// The deadline passed; this is the link as it was last seen.
    TimedOut(Link),
}

/// How a wait for IPv6 addresses ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// No address is tentative, or there is none.
    All,
    /// Duplicate address detection found this address in use.
    DadFailed(Addr),
    /// The deadline passed while addresses were still tentative.
    TimedOut,
}

impl Monitor {
    /// Subscribes to news of one kind in the calling thread's namespace.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn of(group: Multicast) -> Result<Self, Error> {
        let socket = Socket::open()?;
        socket.join(group)?;
        Ok(Self { socket })
    }

    /// Waits for any news at all; false at the deadline. The caller looks at the present state before each wait.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn wait_any(&mut self, deadline: Instant) -> Result<bool, Error> {
        Ok(!matches!(self.next(deadline)?, Seen::Deadline))
    }

    /// Waits until `condition` holds for a link, at most until `deadline`. `rtnl` must be of the same namespace.
    ///
    /// # Errors
    /// [`Error::LinkNotFound`] when the link does not exist or disappears.
    pub fn wait_link(
        &mut self,
        rtnl: &mut Rtnl,
        index: u32,
        deadline: Instant,
        condition: impl Fn(&Link) -> bool,
    ) -> Result<Waited, Error> {
        let mut link = rtnl.link_by_index(index)?;
        while !condition(&link) {
            link = match self.next(deadline)? {
                Seen::Messages(messages) => match newest_link(messages, index)? {
                    Some(newer) => newer,
                    None => link,
                },
                Seen::Lost => rtnl.link_by_index(index)?,
                Seen::Deadline => return Ok(Waited::TimedOut(link)),
            };
        }
        Ok(Waited::Reached(link))
    }

    /// Waits until no IPv6 address of a link is tentative, at most until `deadline`. `rtnl` must be of the same
    /// namespace. A failed detection ends the wait at once, as in the reference (`ip.SettleAddresses`).
    ///
    /// # Errors
    /// What the kernel says, `no such device` for a missing link.
    pub fn wait_addrs_settled(
        &mut self,
        rtnl: &mut Rtnl,
        index: u32,
        deadline: Instant,
    ) -> Result<Settled, Error> {
        loop {
            if let Some(settled) = settled(rtnl.addrs(index, Some(Family::V6))?) {
                return Ok(settled);
            }
            if !self.wait_addr_event(index, deadline)? {
                return Ok(Settled::TimedOut);
            }
        }
    }

    /// Waits for news about an address of the link; false at the deadline.
    fn wait_addr_event(&mut self, index: u32, deadline: Instant) -> Result<bool, Error> {
        loop {
            match self.next(deadline)? {
                Seen::Messages(messages) if messages.iter().any(|message| is_addr_of(message, index)) => {
                    return Ok(true);
                }
                Seen::Messages(_) => {}
                Seen::Lost => return Ok(true),
                Seen::Deadline => return Ok(false),
            }
        }
    }

    fn next(&mut self, deadline: Instant) -> Result<Seen, Error> {
        match self.socket.receive_until(deadline) {
            Ok(None) => Ok(Seen::Deadline),
            // What cannot be decoded may have been about our link: look for ourselves.
            Ok(Some(datagram)) => Ok(messages(datagram).map_or(Seen::Lost, Seen::Messages)),
            // What comes after the look that makes up for this must not be dropped as well.
            Err(error) if error.errno() == Some(libc::ENOBUFS) => {
                self.socket.discard(deadline).map(|()| Seen::Lost)
            }
            Err(error) => Err(error),
        }
    }
}

enum Seen {
    Messages(Vec<RouteNetlinkMessage>),
    /// Notifications were lost; the state must be read again.
    Lost,
    Deadline,
}

fn messages(datagram: &[u8]) -> Result<Vec<RouteNetlinkMessage>, Error> {
    let mut messages = Vec::new();
    for packet in packets::<RouteNetlinkMessage>(datagram) {
        if let NetlinkPayload::InnerMessage(message) = packet?.payload? {
            messages.push(message);
        }
    }
    Ok(messages)
}

/// The last word about a link. Bridge ports are also reported by the bridge (`AF_BRIDGE`), with half of the attributes.
#[expect(clippy::wildcard_enum_match_arm, reason = "only two kinds of messages are about links")]
fn newest_link(messages: Vec<RouteNetlinkMessage>, index: u32) -> Result<Option<Link>, Error> {
    let mut newest = None;
    for message in messages {
        match message {
            RouteNetlinkMessage::NewLink(m) if is_link(&m, index) => newest = Some(link::decode(m)),
            RouteNetlinkMessage::DelLink(m) if is_link(&m, index) => return Err(Error::LinkNotFound),
            _ => {}
        }
    }
    Ok(newest)
}

fn is_link(message: &netlink_packet_route::link::LinkMessage, index: u32) -> bool {
    message.header.index == index && message.header.interface_family == AddressFamily::Unspec
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only two kinds of messages are about addresses")]
fn is_addr_of(message: &RouteNetlinkMessage, index: u32) -> bool {
    match message {
        RouteNetlinkMessage::NewAddress(m) | RouteNetlinkMessage::DelAddress(m) => m.header.index == index,
        _ => false,
    }
}

/// `None` while an address is tentative. As in the reference, addresses are looked at in order and the first that is
/// either failed or tentative decides.
fn settled(addrs: Vec<Addr>) -> Option<Settled> {
    for addr in addrs {
        if addr.is_dad_failed() {
            return Some(Settled::DadFailed(addr));
        }
        if addr.is_tentative() {
            return None;
        }
    }
    Some(Settled::All)
}
