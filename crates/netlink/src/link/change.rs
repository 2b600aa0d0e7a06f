// SPDX-License-Identifier: Apache-2.0
//! Changing and deleting links.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{AfSpecInet, AfSpecUnspec, InetDevConf, LinkAttribute, LinkMessage, Prop};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use crate::{Error, Mac, Rtnl};

/// Several changes of one link for one request: `ip link set dev NAME ...`. The kernel applies them in its own order
/// (namespace, MAC, MTU, name, alias, flags, master, queue length) and stops at the first that fails.
#[derive(Debug)]
#[must_use = "a change does nothing until it is given to `Rtnl::link_set`"]
pub struct LinkChange {
    message: LinkMessageBuilder<LinkUnspec>,
}

impl LinkChange {
    /// Changes of the link with this index.
    pub fn new(index: u32) -> Self {
        Self { message: LinkUnspec::new_with_index(index) }
    }

    /// `up`.
    pub fn up(self) -> Self {
        self.with(LinkMessageBuilder::up)
    }

    /// `down`.
    pub fn down(self) -> Self {
        self.with(LinkMessageBuilder::down)
    }

    /// `master`; the bridge or VRF is given by its index.
    pub fn master(self, master: u32) -> Self {
        self.with(|message| message.controller(master))
    }

    /// `nomaster`.
    pub fn nomaster(self) -> Self {
        self.with(LinkMessageBuilder::nocontroller)
    }

    /// `address MAC`.
    pub fn mac(self, mac: Mac) -> Self {
        self.with(|message| message.address(mac.0.to_vec()))
    }

    /// `mtu BYTES`.
    pub fn mtu(self, mtu: u32) -> Self {
        self.with(|message| message.mtu(mtu))
    }

    /// `promisc on|off`.
    pub fn promisc(self, on: bool) -> Self {
        self.with(|message| message.promiscuous(on))
    }

    /// `allmulticast on|off`.
    pub fn allmulti(self, on: bool) -> Self {
        self.with(|message| message.allmulticast(on))
    }

    /// `alias TEXT`; an empty text removes the alias.
    pub fn alias(self, alias: &str) -> Self {
        // Not the builder's own: it sends a terminating zero, which the kernel would take for the text of an empty one.
        let value = netlink_packet_core::DefaultNla::new(IFLA_IFALIAS, alias.as_bytes().to_vec());
        self.with(|message| message.append_extra_attribute(LinkAttribute::Other(value)))
    }

    /// `name NAME`. Before Linux 6.2 the link must be down.
    pub fn name(self, name: &str) -> Self {
        self.with(|message| message.name(name))
    }

    /// `txqueuelen PACKETS`.
    pub fn txqlen(self, packets: u32) -> Self {
        self.with(|message| message.txqueuelen(packets))
    }

    /// The sysctl `net/ipv4/conf/NAME/arp_notify`: tells the neighbours when an address comes or the link goes up.
    pub fn arp_notify(self) -> Self {
        let mut conf = InetDevConf::default();
        conf.arp_notify = 1;
        let family = AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(conf)]);
        self.with(|message| message.append_extra_attribute(LinkAttribute::AfSpecUnspec(vec![family])))
    }

    /// `netns FD`. Flags, addresses and routes do not survive the move; a name that is taken there is an error
    /// (`file exists`).
    pub fn netns(self, netns: BorrowedFd<'_>) -> Self {
        self.with(|message| message.setns_by_fd(netns.as_raw_fd()))
    }

    fn with(
        self,
        add: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Self {
        Self { message: add(self.message) }
    }
}

impl Rtnl {
    /// `ip link set`: all of `change` in one request.
    ///
    /// # Errors
    /// What the kernel says about the first part that fails; earlier parts stay.
    pub fn link_set(&mut self, change: LinkChange) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::SetLink(change.message.build()), 0)
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

    /// `ip link set INDEX master MASTER`.
    ///
    /// # Errors
    /// What the kernel says; its text tells more than the errno (`ELOOP`).
    pub fn link_set_master(&mut self, index: u32, master: u32) -> Result<(), Error> {
        self.link_set(LinkChange::new(index).master(master))
    }

    /// `ip link set INDEX nomaster`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_set_nomaster(&mut self, index: u32) -> Result<(), Error> {
        self.link_set(LinkChange::new(index).nomaster())
    }

    /// `ip link set INDEX address MAC`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_set_mac(&mut self, index: u32, mac: Mac) -> Result<(), Error> {
        self.link_set(LinkChange::new(index).mac(mac))
    }

    /// `ip link set INDEX mtu BYTES`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Error> {
        self.link_set(LinkChange::new(index).mtu(mtu))
    }

    /// `ip link set INDEX promisc on|off`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_set_promisc(&mut self, index: u32, on: bool) -> Result<(), Error> {
        self.link_set(LinkChange::new(index).promisc(on))
    }

    /// `ip link set INDEX alias TEXT`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_set_alias(&mut self, index: u32, alias: &str) -> Result<(), Error> {
        self.link_set(LinkChange::new(index).alias(alias))
    }

    /// `ip link property del dev INDEX altname NAME` (Linux 5.5).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_alternative_name_del(&mut self, index: u32, name: &str) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::PropList(vec![Prop::AltIfName(name.to_owned())])];
        self.change(RouteNetlinkMessage::DelLinkProp(message), 0)
    }

    /// `ip link delete NAME` in one request; false if there is no such link.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link_del_by_name_if_present(&mut self, name: &str) -> Result<bool, Error> {
        let mut message = LinkMessage::default();
        message.attributes = vec![super::read::named(name)];
        match self.change(RouteNetlinkMessage::DelLink(message), 0).map_err(Error::for_link) {
            Ok(()) => Ok(true),
            Err(Error::LinkNotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

const IFLA_IFALIAS: u16 = 20;
