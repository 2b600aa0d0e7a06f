// SPDX-License-Identifier: Apache-2.0
//! Asking for links.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};

use super::{Link, decode};
use crate::error::unless;
use crate::{Error, Rtnl};

impl Rtnl {
    /// `ip link show dev NAME`; alternative names work too.
    ///
    /// # Errors
    /// [`Error::LinkNotFound`], or what the kernel says.
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, Error> {
        self.link_asked(0, vec![named(name)])
    }

    /// As [`Rtnl::link_by_name`], with `None` for a link that does not exist.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_by_name_if_present(&mut self, name: &str) -> Result<Option<Link>, Error> {
        unless(self.link_by_name(name), Error::is_link_not_found)
    }

    /// `ip link show` of the link with this index.
    ///
    /// # Errors
    /// [`Error::LinkNotFound`], or what the kernel says.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, Error> {
        self.link_asked(index, Vec::new())
    }

    /// As [`Rtnl::link_by_index`], with `None` for a link that does not exist.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_by_index_if_present(&mut self, index: u32) -> Result<Option<Link>, Error> {
        unless(self.link_by_index(index), Error::is_link_not_found)
    }

    /// `ip link show`: all links of the namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        self.links_dumped(Vec::new())
    }

    /// `ip link show master NAME`: the ports of the bridge or VRF with this index.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn links_of_master(&mut self, master: u32) -> Result<Vec<Link>, Error> {
        let mut links = self.links_dumped(vec![LinkAttribute::Controller(master)])?;
        links.retain(|link| link.master == Some(master));
        Ok(links)
    }

    pub(crate) fn link_asked(&mut self, index: u32, attributes: Vec<LinkAttribute>) -> Result<Link, Error> {
        let answer = self.ask(question(index, attributes)).map_err(Error::for_link)?;
        as_link(answer).ok_or(Error::NoAnswer)
    }

    fn links_dumped(&mut self, attributes: Vec<LinkAttribute>) -> Result<Vec<Link>, Error> {
        let dump = self.dump(&question(0, attributes))?;
        Ok(dump.into_iter().filter_map(as_link).collect())
    }
}

/// Counters are the most expensive part of the answer for links with many queues, and nobody here reads them.
fn question(index: u32, mut attributes: Vec<LinkAttribute>) -> RouteNetlinkMessage {
    attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    RouteNetlinkMessage::GetLink(about(index, attributes))
}

/// A message about the link with this index, or about the one that the attributes name.
pub(crate) fn about(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
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
    LinkAttribute::Other(DefaultNla::new(libc::IFLA_ALT_IFNAME, terminated))
}
