// SPDX-License-Identifier: Apache-2.0
//! Changing and deleting links.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{AfSpecInet, AfSpecUnspec, InetDevConf, LinkAttribute, Prop};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use super::read::{about, named};
use crate::error::unless;
use crate::{Error, Mac, Rtnl};

/// Several changes of one link for one request: `ip link set dev NAME ...`. The kernel applies them in its own order
/// (namespace, MAC, MTU, name, alias, flags, master, queue length) and stops at the first that fails.
#[derive(Debug)]
#[must_use = "a change does nothing until it is given to `Rtnl::link_set`"]
pub struct LinkChange(LinkMessageBuilder<LinkUnspec>);

impl LinkChange {
    /// Changes of the link with this index.
    pub fn new(index: u32) -> Self {
        Self(LinkUnspec::new_with_index(index))
    }

    /// `up`.
    pub fn up(self) -> Self {
        Self(self.0.up())
    }

    /// `down`.
    pub fn down(self) -> Self {
        Self(self.0.down())
    }

    /// `master`; the bridge or VRF is given by its index.
    pub fn master(self, master: u32) -> Self {
        Self(self.0.controller(master))
    }

    /// `nomaster`.
    pub fn nomaster(self) -> Self {
        Self(self.0.nocontroller())
    }

    /// `address MAC`.
    pub fn mac(self, mac: Mac) -> Self {
        Self(self.0.address(mac.0.to_vec()))
    }

    /// `mtu BYTES`.
    pub fn mtu(self, mtu: u32) -> Self {
        Self(self.0.mtu(mtu))
    }

    /// `promisc on|off`.
    pub fn promisc(self, on: bool) -> Self {
        Self(self.0.promiscuous(on))
    }

    /// `allmulticast on|off`.
    pub fn allmulti(self, on: bool) -> Self {
        Self(self.0.allmulticast(on))
    }

    /// `alias TEXT`; an empty text removes the alias.
    pub fn alias(self, alias: &str) -> Self {
        // Not the builder's own: it sends a terminating zero, which the kernel would take for the text of an empty one.
        let value = netlink_packet_core::DefaultNla::new(libc::IFLA_IFALIAS, alias.as_bytes().to_vec());
        Self(self.0.append_extra_attribute(LinkAttribute::Other(value)))
    }

    /// `name NAME`. Before Linux 6.2 the link must be down.
    pub fn name(self, name: &str) -> Self {
        Self(self.0.name(name))
    }

    /// `txqueuelen PACKETS`.
    pub fn txqlen(self, packets: u32) -> Self {
        Self(self.0.txqueuelen(packets))
    }

    /// The sysctl `net/ipv4/conf/NAME/arp_notify`: tells the neighbours when an address comes or the link goes up.
    pub fn arp_notify(self) -> Self {
        let mut conf = InetDevConf::default();
        conf.arp_notify = 1;
        let family = AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(conf)]);
        Self(self.0.append_extra_attribute(LinkAttribute::AfSpecUnspec(vec![family])))
    }

    /// `netns FD`. Flags, addresses and routes do not survive the move; a name that is taken there is an error
    /// (`file exists`).
    pub fn netns(self, netns: BorrowedFd<'_>) -> Self {
        Self(self.0.setns_by_fd(netns.as_raw_fd()))
    }

    /// With `change` to this value, if there is one.
    pub fn given<T>(self, value: Option<T>, change: fn(Self, T) -> Self) -> Self {
        value.into_iter().fold(self, change)
    }
}

impl Rtnl {
    /// `ip link set`: all of `change` in one request.
    ///
    /// # Errors
    /// What the kernel says about the first part that fails; earlier parts stay.
    pub fn link_set(&mut self, change: LinkChange) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::SetLink(change.0.build()), 0)
    }

    /// `ip link set INDEX up`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_set_up(&mut self, index: u32) -> Result<(), Error> {
        self.link_set(LinkChange::new(index).up())
    }

    /// `ip link set INDEX down`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_set_down(&mut self, index: u32) -> Result<(), Error> {
        self.link_set(LinkChange::new(index).down())
    }

    /// `ip link property del dev INDEX altname NAME` (Linux 5.5).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_alternative_name_del(&mut self, index: u32, name: &str) -> Result<(), Error> {
        let names = LinkAttribute::PropList(vec![Prop::AltIfName(name.to_owned())]);
        self.change(RouteNetlinkMessage::DelLinkProp(about(index, vec![names])), 0)
    }

    /// `ip link delete NAME` in one request; false if there is no such link.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_del_by_name_if_present(&mut self, name: &str) -> Result<bool, Error> {
        let done = self.change(RouteNetlinkMessage::DelLink(about(0, vec![named(name)])), 0);
        Ok(unless(done.map_err(Error::for_link), Error::is_link_not_found)?.is_some())
    }
}
