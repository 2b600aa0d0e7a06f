// SPDX-License-Identifier: Apache-2.0
//! Creating links. Creation is always exclusive: a link that exists is an error ([`Error::is_exists`]).

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoVeth, InfoVlan, InfoVrf, IpVlanFlags,
    IpVlanMode, LinkAttribute, LinkMessage, MacVlanMode,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use crate::{Error, Mac, Rtnl};

/// A veth pair to create: one end here, the other directly where it belongs.
#[derive(Debug, Clone, Copy)]
pub struct VethSpec<'a> {
    /// Name of the end in the socket's namespace.
    pub name: &'a str,
    /// Its hardware address; `None` is a random one.
    pub mac: Option<Mac>,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// Namespace of the other end; `None` is the socket's.
    pub peer_netns: Option<BorrowedFd<'a>>,
    /// MTU of both ends; `None` is the kernel's 1500.
    pub mtu: Option<u32>,
}

/// A link to create on top of another one (macvlan, ipvlan, vlan).
#[derive(Debug, Clone, Copy)]
pub struct ParentSpec<'a> {
    /// Name of the new link.
    pub name: &'a str,
    /// Index of the parent.
    pub parent: u32,
    /// This namespace's number for the parent's ([`Rtnl::ensure_nsid`]); `None` is the socket's.
    pub parent_nsid: Option<i32>,
    /// MTU; `None` is the parent's.
    pub mtu: Option<u32>,
}

impl Rtnl {
    /// `ip link add NAME type veth peer name PEER txqueuelen 0 netns FD`, with all properties in one request. Without a
    /// queue the other end is as the Go plugins make it.
    ///
    /// # Errors
    /// [`Error::is_exists`] if either name is taken, or what else the kernel says.
    pub fn link_add_veth(&mut self, spec: &VethSpec<'_>) -> Result<(), Error> {
        let peer = LinkUnspec::new_with_name(spec.peer_name).txqueuelen(0);
        let peer = with_mtu(peer, spec.mtu);
        let peer = spec.peer_netns.iter().fold(peer, |peer, netns| peer.setns_by_fd(netns.as_raw_fd()));
        let data = InfoData::Veth(InfoVeth::Peer(peer.build()));
        let link = with_mtu(of_kind(InfoKind::Veth, spec.name).set_info_data(data), spec.mtu);
        self.link_add(with_mac(link, spec.mac).build())
    }

    /// `ip link add NAME [address MAC] type bridge [vlan_filtering 1]`. A bridge that is made with a MAC keeps it; any
    /// other takes the lowest of its ports' (`br_stp_recalculate_bridge_id` in `net/bridge/br_stp_if.c`).
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_bridge(
        &mut self,
        name: &str,
        mtu: Option<u32>,
        mac: Option<Mac>,
        vlan_filtering: bool,
    ) -> Result<(), Error> {
        let mut link = with_mtu(of_kind(InfoKind::Bridge, name), mtu);
        if vlan_filtering {
            link = link.set_info_data(InfoData::Bridge(vec![InfoBridge::VlanFiltering(true)]));
        }
        self.link_add(with_mac(link, mac).build())
    }

    /// `ip link add NAME link PARENT [address MAC] type macvlan mode MODE [bcqueuelen N]`. Without a MAC it gets a random
    /// one; the queue for broadcasts has room for 1000 packets unless said otherwise.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_macvlan(
        &mut self,
        parent: &ParentSpec<'_>,
        mode: MacVlanMode,
        mac: Option<Mac>,
        bcqueuelen: Option<u32>,
    ) -> Result<(), Error> {
        let mut infos = vec![InfoMacVlan::Mode(mode)];
        infos.extend(bcqueuelen.map(InfoMacVlan::BcQueueLen));
        let link = parent.message(InfoKind::MacVlan).set_info_data(InfoData::MacVlan(infos));
        self.link_add(with_mac(link, mac).build())
    }

    /// `ip link add NAME link PARENT type ipvlan mode MODE bridge`. An ipvlan cannot have an MTU of its own when
    /// created; the kernel gives it the parent's.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_ipvlan(&mut self, parent: &ParentSpec<'_>, mode: IpVlanMode) -> Result<(), Error> {
        let infos = vec![InfoIpVlan::Mode(mode), InfoIpVlan::Flags(IpVlanFlags::empty())];
        self.link_add(parent.message(InfoKind::IpVlan).set_info_data(InfoData::IpVlan(infos)).build())
    }

    /// `ip link add NAME link PARENT type vlan id ID`.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_vlan(&mut self, parent: &ParentSpec<'_>, id: u16) -> Result<(), Error> {
        let data = InfoData::Vlan(vec![InfoVlan::Id(id)]);
        self.link_add(parent.message(InfoKind::Vlan).set_info_data(data).build())
    }

    /// `ip link add NAME type dummy`.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_dummy(&mut self, name: &str) -> Result<(), Error> {
        self.link_add(of_kind(InfoKind::Dummy, name).build())
    }

    /// `ip link add NAME type vrf table TABLE`.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_vrf(&mut self, name: &str, table: u32) -> Result<(), Error> {
        let data = InfoData::Vrf(vec![InfoVrf::TableId(table)]);
        self.link_add(of_kind(InfoKind::Vrf, name).set_info_data(data).build())
    }

    /// `ip link add NAME mtu BYTES txqueuelen 0 up type ifb`: the half of traffic shaping that the kernel lacks.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_ifb(&mut self, name: &str, mtu: u32) -> Result<(), Error> {
        self.link_add(of_kind(InfoKind::Ifb, name).mtu(mtu).txqueuelen(0).up().build())
    }

    /// Whether the kernel has links of this kind, or a module for them. Asks for one without a transmit queue, which is
    /// refused (`rtnl_create_link`) by whoever knows the kind.
    ///
    /// # Errors
    /// What else the kernel says.
    pub fn link_kind_is_known(&mut self, kind: &str) -> Result<bool, Error> {
        let link = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Other(kind.to_owned()))
            .append_extra_attribute(LinkAttribute::NumTxQueues(0));
        match self.link_add(link.build()) {
            Err(error) if error.is_unsupported() => Ok(false),
            Err(error) if error.is_invalid() => Ok(true),
            Err(error) => Err(error),
            // No kernel makes such a link; one that does knows the kind.
            Ok(()) => Ok(true),
        }
    }

    fn link_add(&mut self, message: LinkMessage) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }
}

impl ParentSpec<'_> {
    fn message(&self, kind: InfoKind) -> LinkMessageBuilder<LinkUnspec> {
        let link = with_mtu(of_kind(kind, self.name).link(self.parent), self.mtu);
        let nsid = self.parent_nsid.map(LinkAttribute::LinkNetNsId);
        nsid.into_iter().fold(link, LinkMessageBuilder::append_extra_attribute)
    }
}

fn of_kind(kind: InfoKind, name: &str) -> LinkMessageBuilder<LinkUnspec> {
    LinkMessageBuilder::new_with_info_kind(kind).name(name)
}

fn with_mtu(link: LinkMessageBuilder<LinkUnspec>, mtu: Option<u32>) -> LinkMessageBuilder<LinkUnspec> {
    mtu.into_iter().fold(link, LinkMessageBuilder::mtu)
}

fn with_mac(link: LinkMessageBuilder<LinkUnspec>, mac: Option<Mac>) -> LinkMessageBuilder<LinkUnspec> {
    mac.into_iter().fold(link, |link, mac| link.address(mac.0.to_vec()))
}
