// SPDX-License-Identifier: Apache-2.0
//! Numbers by which one namespace names another: links that cross namespaces are asked for and reported with them
//! (`ip netns list-id`).

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use crate::{Error, Rtnl};

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
        match self.change(RouteNetlinkMessage::NewNsId(message), 0) {
            // Somebody else was faster.
            Err(error) if !error.is_exists() => return Err(error),
            _ => {}
        }
        self.nsid(other)?.ok_or(Error::NoAnswer)
    }

    fn nsid(&mut self, other: BorrowedFd<'_>) -> Result<Option<i32>, Error> {
        let answer = self.ask(RouteNetlinkMessage::GetNsId(about(other, None)))?;
        let RouteNetlinkMessage::NewNsId(message) = answer else { return Err(Error::NoAnswer) };
        let id = message
            .attributes
            .iter()
            .find_map(|attribute| if let NsidAttribute::Id(id) = attribute { Some(*id) } else { None });
        Ok(id.filter(|id| *id != NOT_ASSIGNED))
    }
}

fn about(other: BorrowedFd<'_>, id: Option<NsidAttribute>) -> NsidMessage {
    let mut message = NsidMessage::default();
    // An open descriptor is never negative.
    message.attributes = vec![NsidAttribute::Fd(other.as_raw_fd().unsigned_abs())];
    message.attributes.extend(id);
    message
}

/// `NETNSA_NSID_NOT_ASSIGNED` of `linux/net_namespace.h`.
const NOT_ASSIGNED: i32 = -1;
