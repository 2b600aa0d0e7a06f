// SPDX-License-Identifier: Apache-2.0
//! Numbers by which one namespace names another: links that cross namespaces are asked for and reported with them
//! (`ip netns list-id`). Needs neither a path nor an open file of the other namespace, only its number.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use crate::addr::{Addr, as_addr};
use crate::error::unless;
use crate::{Error, Link, Rtnl, link};

impl Rtnl {
    /// The number that the socket's namespace has for `other`; it is given one if it has none (`ip netns set`).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ensure_nsid(&mut self, other: BorrowedFd<'_>) -> Result<i32, Error> {
        if let Some(id) = self.nsid(other)? {
            return Ok(id);
        }
        let message = about(other, Some(NsidAttribute::Id(NOT_ASSIGNED)));
        // Somebody else may have been faster.
        unless(self.change(RouteNetlinkMessage::NewNsId(message), 0), Error::is_exists)?;
        self.nsid(other)?.ok_or(Error::NoAnswer)
    }

    /// The numbers of all other namespaces that have one (`ip netns list-id`).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn nsids(&mut self) -> Result<Vec<i32>, Error> {
        let dump = self.dump(&RouteNetlinkMessage::GetNsId(NsidMessage::default()))?;
        Ok(dump.iter().filter_map(number).collect())
    }

    /// Whether the number leads to a namespace that somebody holds. One that nobody holds any more answers nothing, although
    /// links may be told with its number until the kernel gets to its end (`get_net_ns_by_id` of
    /// `net/core/net_namespace.c`). Before Linux 4.16 always true.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn nsid_is_held(&mut self, nsid: i32) -> Result<bool, Error> {
        match self.link_asked(LOOPBACK, vec![link_target(nsid)]) {
            Ok(_) => Ok(true),
            Err(error) if error.is_invalid() => Ok(false),
            // It is there, and another user namespace's (`rtnl_get_net_ns_capable` of `net/core/rtnetlink.c`).
            Err(error) if error.errno() == Some(libc::EACCES) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// `ip link show` of the link with this index in the namespace of this number (Linux 4.16); `None` when there is no
    /// such link, or no namespace of that number any more.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_in(&mut self, nsid: i32, index: u32) -> Result<Option<Link>, Error> {
        unless(self.link_asked(index, vec![link_target(nsid)]), is_gone)
    }

    /// `ip link del` of the link with this index in the namespace of this number (Linux 4.16); a link or a namespace that
    /// is gone is no error.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_del_in(&mut self, nsid: i32, index: u32) -> Result<(), Error> {
        let request = link::about(index, vec![link_target(nsid)]);
        unless(self.change(RouteNetlinkMessage::DelLink(request), 0), is_gone).map(drop)
    }

    /// All addresses of the namespace of this number, or of the socket's own; none when there is no namespace of that
    /// number any more. Before Linux 4.20 the kernel does not look at the number, and tells the own ones.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn addrs_in(&mut self, nsid: Option<i32>) -> Result<Vec<Addr>, Error> {
        let mut request = AddressMessage::default();
        let target = nsid.map(|nsid| AddressAttribute::Other(target(IFA_TARGET_NETNSID, nsid)));
        request.attributes.extend(target);
        // A container that never rests must not stop others.
        let dump = self.dump_of(&RouteNetlinkMessage::GetAddress(request), nsid.is_some());
        let dump = unless(dump, |error| error.is_invalid() && nsid.is_some())?.unwrap_or_default();
        Ok(dump.into_iter().filter_map(as_addr).collect())
    }

    /// `ip netns list-id` of the namespace that `other` is open on; `None` when it has no number.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn nsid(&mut self, other: BorrowedFd<'_>) -> Result<Option<i32>, Error> {
        let answer = self.ask(RouteNetlinkMessage::GetNsId(about(other, None)))?;
        Ok(number(&answer))
    }
}

/// The number that an answer tells.
fn number(answer: &RouteNetlinkMessage) -> Option<i32> {
    let RouteNetlinkMessage::NewNsId(message) = answer else { return None };
    let ids = message.attributes.iter();
    let mut ids =
        ids.filter_map(|attribute| if let NsidAttribute::Id(id) = attribute { Some(*id) } else { None });
    ids.next().filter(|id| *id != NOT_ASSIGNED)
}

/// No namespace has the number any more, or it has no such link.
fn is_gone(error: &Error) -> bool {
    error.is_invalid() || error.is_not_found()
}

fn link_target(nsid: i32) -> LinkAttribute {
    LinkAttribute::Other(target(libc::IFLA_TARGET_NETNSID, nsid))
}

fn target(kind: u16, nsid: i32) -> DefaultNla {
    DefaultNla::new(kind, nsid.to_ne_bytes().to_vec())
}

fn about(other: BorrowedFd<'_>, id: Option<NsidAttribute>) -> NsidMessage {
    let mut message = NsidMessage::default();
    // An open descriptor is never negative.
    message.attributes = vec![NsidAttribute::Fd(other.as_raw_fd().unsigned_abs())];
    message.attributes.extend(id);
    message
}

/// The index of every namespace's loopback (`LOOPBACK_IFINDEX` of `include/net/flow.h`).
const LOOPBACK: u32 = 1;
/// `NETNSA_NSID_NOT_ASSIGNED` of `linux/net_namespace.h`.
const NOT_ASSIGNED: i32 = -1;
/// `linux/if_addr.h`.
const IFA_TARGET_NETNSID: u16 = 10;
