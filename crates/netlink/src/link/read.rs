// SPDX-License-Identifier: Apache-2.0
//! Asking for links.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};

use super::{Link, decode};
use crate::{Error, Rtnl};

impl Rtnl {
    /// `ip link show dev NAME`; alternative names work too.
    ///
    /// # Errors
    /// [`Error::LinkNotFound`], or what the kernel says.
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, Error> {
        let mut request = LinkMessage::default();
        request.attributes = vec![named(name), without_statistics()];
        self.link_asked(request)
    }

    /// As [`Rtnl::link_by_name`], with `None` for a link that does not exist.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_by_name_if_present(&mut self, name: &str) -> Result<Option<Link>, Error> {
        match self.link_by_name(name) {
            Ok(link) => Ok(Some(link)),
            Err(Error::LinkNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `ip link show` of the link with this index.
    ///
    /// # Errors
    /// [`Error::LinkNotFound`], or what the kernel says.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, Error> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        request.attributes = vec![without_statistics()];
        self.link_asked(request)
    }

    /// As [`Rtnl::link_by_index`], with `None` for a link that does not exist.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_by_index_if_present(&mut self, index: u32) -> Result<Option<Link>, Error> {
        match self.link_by_index(index) {
            Ok(link) => Ok(Some(link)),
            Err(Error::LinkNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `ip link show`: all links of the namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let mut request = LinkMessage::default();
        request.attributes = vec![without_statistics()];
        self.links_dumped(request)
    }

    /// `ip link show master NAME`: the ports of the bridge or VRF with this index.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn links_of_master(&mut self, master: u32) -> Result<Vec<Link>, Error> {
        let mut request = LinkMessage::default();
        request.attributes = vec![LinkAttribute::Controller(master), without_statistics()];
        let mut links = self.links_dumped(request)?;
        links.retain(|link| link.master == Some(master));
        Ok(links)
    }

    pub(crate) fn link_asked(&mut self, request: LinkMessage) -> Result<Link, Error> {
        let answer = self.ask(RouteNetlinkMessage::GetLink(request)).map_err(Error::for_link)?;
        as_link(answer).ok_or(Error::NoAnswer)
    }

    fn links_dumped(&mut self, request: LinkMessage) -> Result<Vec<Link>, Error> {
        let dump = self.dump(&RouteNetlinkMessage::GetLink(request))?;
        Ok(dump.into_iter().filter_map(as_link).collect())
    }
}

fn as_link(message: RouteNetlinkMessage) -> Option<Link> {
    if let RouteNetlinkMessage::NewLink(message) = message { Some(decode(message)) } else { None }
}

/// Names that no link can have may still be alternative names.
pub(super) fn named(name: &str) -> LinkAttribute {
    if name.len() < libc::IFNAMSIZ {
        return LinkAttribute::IfName(name.to_owned());
    }
    let terminated = name.bytes().chain([0]).collect();
    LinkAttribute::Other(DefaultNla::new(IFLA_ALT_IFNAME, terminated))
}

/// Counters are the most expensive part of the answer for links with many queues, and nobody here reads them.
fn without_statistics() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}

const IFLA_ALT_IFNAME: u16 = 53;
