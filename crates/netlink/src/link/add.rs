// SPDX-License-Identifier: Apache-2.0
//! Creating links. Creation is always exclusive: a link that exists is an error ([`Error::is_exists`]).

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoVeth, InfoVlan, InfoVrf, IpVlanFlags,
    LinkAttribute, LinkMessage,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use crate::{Error, Mac, Rtnl};

/// A veth pair to create: one end here, the other directly where it belongs.
#[derive(Debug, Clone, Copy)]
pub struct VethSpec<'a> {
    /// Name of the end in the socket's namespace.
    pub name: &'a str,
    /// Its MTU; `None` is the kernel's 1500.
    pub mtu: Option<u32>,
    /// Its hardware address; `None` is a random one.
    pub mac: Option<Mac>,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// Namespace of the other end; `None` is the socket's.
    pub peer_netns: Option<BorrowedFd<'a>>,
    /// MTU of the other end.
    pub peer_mtu: Option<u32>,
    /// Transmit queue length of the other end; `None` is the kernel's 1000, `Some(0)` what the Go plugins make of it.
    pub peer_txqlen: Option<u32>,
}

/// A macvlan to create.
#[derive(Debug, Clone, Copy)]
pub struct MacVlanSpec<'a> {
    /// Name of the new link.
    pub name: &'a str,
    /// Index of the parent.
    pub parent: u32,
    /// This namespace's number for the parent's ([`Rtnl::ensure_nsid`]); `None` is the socket's.
    pub parent_nsid: Option<i32>,
    /// How it sees its siblings.
    pub mode: MacVlanMode,
    /// MTU; `None` is the parent's.
    pub mtu: Option<u32>,
    /// Hardware address; `None` is a random one.
    pub mac: Option<Mac>,
    /// Length of the queue for broadcasts (`bcqueuelen`); `None` is the kernel's 1000.
    pub bcqueuelen: Option<u32>,
    /// Namespace to create it in; `None` is the socket's.
    pub netns: Option<BorrowedFd<'a>>,
}

/// `ip link add type macvlan mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacVlanMode {
    /// Siblings cannot talk.
    Private,
    /// Siblings talk through the switch outside.
    Vepa,
    /// Siblings talk directly.
    Bridge,
    /// The only child takes the parent over.
    Passthru,
}

/// `ip link add type ipvlan mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVlanMode {
    /// `l2`.
    L2,
    /// `l3`.
    L3,
    /// `l3s`.
    L3s,
}

/// `ip link add type ipvlan bridge|private|vepa`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVlanFlag {
    /// Siblings talk directly (the default).
    Bridge,
    /// Siblings cannot talk.
    Private,
    /// Siblings talk through the switch outside.
    Vepa,
}

impl Rtnl {
    /// `ip link add NAME type veth peer name PEER netns FD`, with all properties in one request.
    ///
    /// # Errors
    /// [`Error::is_exists`] if either name is taken, or what else the kernel says.
    pub fn link_add_veth(&mut self, spec: &VethSpec<'_>) -> Result<(), Error> {
        let peer =
            optional(LinkUnspec::new_with_name(spec.peer_name), spec.peer_mtu, LinkMessageBuilder::mtu);
        let peer = optional(peer, spec.peer_txqlen, LinkMessageBuilder::txqueuelen);
        let peer = in_netns(peer, spec.peer_netns);
        let link =
            of_kind(InfoKind::Veth, spec.name).set_info_data(InfoData::Veth(InfoVeth::Peer(peer.build())));
        let link = optional(link, spec.mtu, LinkMessageBuilder::mtu);
        self.link_add(with_mac(link, spec.mac).build())
    }

    /// `ip link add NAME [address MAC] type bridge [vlan_filtering 0|1]`. A bridge that is made with a MAC keeps it; any
    /// other takes the lowest of its ports' (`br_stp_recalculate_bridge_id` in `net/bridge/br_stp_if.c`).
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_bridge(
        &mut self,
        name: &str,
        mtu: Option<u32>,
        mac: Option<Mac>,
        vlan_filtering: Option<bool>,
    ) -> Result<(), Error> {
        let link = optional(of_kind(InfoKind::Bridge, name), mtu, LinkMessageBuilder::mtu);
        let link = optional(link, vlan_filtering, |link, on| {
            link.set_info_data(InfoData::Bridge(vec![InfoBridge::VlanFiltering(on)]))
        });
        self.link_add(with_mac(link, mac).build())
    }

    /// `ip link add NAME link PARENT type macvlan mode MODE [bcqueuelen N]`.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_macvlan(&mut self, spec: &MacVlanSpec<'_>) -> Result<(), Error> {
        let mut infos = vec![InfoMacVlan::Mode(spec.mode.into_kernel())];
        infos.extend(spec.bcqueuelen.map(InfoMacVlan::BcQueueLen));
        let link =
            of_kind(InfoKind::MacVlan, spec.name).link(spec.parent).set_info_data(InfoData::MacVlan(infos));
        let link = on_parent_in(optional(link, spec.mtu, LinkMessageBuilder::mtu), spec.parent_nsid);
        self.link_add(in_netns(with_mac(link, spec.mac), spec.netns).build())
    }

    /// `ip link add NAME link PARENT netns FD type ipvlan mode MODE FLAG`. An ipvlan cannot have an MTU of its own when
    /// created; the kernel gives it the parent's.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn link_add_ipvlan(
        &mut self,
        parent: &ParentSpec<'_>,
        mode: IpVlanMode,
        flag: IpVlanFlag,
    ) -> Result<(), Error> {
        let infos = vec![InfoIpVlan::Mode(mode.into_kernel()), InfoIpVlan::Flags(flag.into_kernel())];
        self.link_add(parent.message(InfoKind::IpVlan).set_info_data(InfoData::IpVlan(infos)).build())
    }

    /// `ip link add NAME link PARENT netns FD type vlan id ID`.
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

/// A link to create on top of another one (vlan, ipvlan).
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
    /// Namespace to create it in; `None` is the socket's.
    pub netns: Option<BorrowedFd<'a>>,
}

impl ParentSpec<'_> {
    fn message(&self, kind: InfoKind) -> LinkMessageBuilder<LinkUnspec> {
        let link = optional(of_kind(kind, self.name).link(self.parent), self.mtu, LinkMessageBuilder::mtu);
        in_netns(on_parent_in(link, self.parent_nsid), self.netns)
    }
}

impl MacVlanMode {
    fn into_kernel(self) -> netlink_packet_route::link::MacVlanMode {
        use netlink_packet_route::link::MacVlanMode as Kernel;
        match self {
            Self::Private => Kernel::Private,
            Self::Vepa => Kernel::Vepa,
            Self::Bridge => Kernel::Bridge,
            Self::Passthru => Kernel::Passthrough,
        }
    }

    /// `None` for modes that no plugin makes (`source`).
    pub(super) fn from_kernel(mode: netlink_packet_route::link::MacVlanMode) -> Option<Self> {
        [Self::Private, Self::Vepa, Self::Bridge, Self::Passthru]
            .into_iter()
            .find(|known| known.into_kernel() == mode)
    }
}

impl IpVlanMode {
    fn into_kernel(self) -> netlink_packet_route::link::IpVlanMode {
        use netlink_packet_route::link::IpVlanMode as Kernel;
        match self {
            Self::L2 => Kernel::L2,
            Self::L3 => Kernel::L3,
            Self::L3s => Kernel::L3S,
        }
    }

    pub(super) fn from_kernel(mode: netlink_packet_route::link::IpVlanMode) -> Option<Self> {
        [Self::L2, Self::L3, Self::L3s].into_iter().find(|known| known.into_kernel() == mode)
    }
}

impl IpVlanFlag {
    fn into_kernel(self) -> IpVlanFlags {
        match self {
            Self::Bridge => IpVlanFlags::empty(),
            Self::Private => IpVlanFlags::Private,
            Self::Vepa => IpVlanFlags::Vepa,
        }
    }
}

fn of_kind(kind: InfoKind, name: &str) -> LinkMessageBuilder<LinkUnspec> {
    LinkMessageBuilder::new_with_info_kind(kind).name(name)
}

fn optional<T>(
    link: LinkMessageBuilder<LinkUnspec>,
    value: Option<T>,
    add: impl FnOnce(LinkMessageBuilder<LinkUnspec>, T) -> LinkMessageBuilder<LinkUnspec>,
) -> LinkMessageBuilder<LinkUnspec> {
    match value {
        Some(value) => add(link, value),
        None => link,
    }
}

fn with_mac(link: LinkMessageBuilder<LinkUnspec>, mac: Option<Mac>) -> LinkMessageBuilder<LinkUnspec> {
    optional(link, mac, |link, mac| link.address(mac.0.to_vec()))
}

fn on_parent_in(link: LinkMessageBuilder<LinkUnspec>, nsid: Option<i32>) -> LinkMessageBuilder<LinkUnspec> {
    optional(link, nsid, |link, nsid| link.append_extra_attribute(LinkAttribute::LinkNetNsId(nsid)))
}

fn in_netns(
    link: LinkMessageBuilder<LinkUnspec>,
    netns: Option<BorrowedFd<'_>>,
) -> LinkMessageBuilder<LinkUnspec> {
    optional(link, netns, |link, netns| link.setns_by_fd(netns.as_raw_fd()))
}
