// SPDX-License-Identifier: Apache-2.0
//! Network interfaces: what the kernel says about one, and the verbs of `ip link`.

mod add;
mod change;
mod decode;
mod read;

use crate::{BridgePort, Mac};

pub use add::{ParentSpec, VethSpec};
pub use change::LinkChange;
pub(crate) use decode::decode;
pub use netlink_packet_route::link::{IpVlanMode, MacVlanMode};
pub(crate) use read::about;

/// A network interface as the kernel reports it (`ip -d link show`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Hardware address; `None` if the link has none of 48 bits.
    pub mac: Option<Mac>,
    /// Hardware address of whatever length; InfiniBand has 20 bytes.
    pub hardware_address: Vec<u8>,
    /// Hardware address that the driver came with (`IFLA_PERM_ADDRESS`); empty for virtual links, and before Linux 5.6.
    pub permanent_address: Vec<u8>,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// `IFF_*` flags of `linux/if.h`.
    pub flags: u32,
    /// How many times promiscuous mode was asked for, by users and by the kernel (a bridge port counts one).
    pub promiscuity: u32,
    /// Operational state, RFC 2863.
    pub operstate: OperState,
    /// `IFLA_INFO_KIND`, for example `veth`; `None` for physical interfaces and `lo`.
    pub kind: Option<String>,
    /// Index of the bridge or VRF the link is a port of.
    pub master: Option<u32>,
    /// `IFLA_LINK`: a veth's peer, a VLAN's parent. An index in the namespace `peer_netns_id`, if that is set.
    pub peer_index: Option<u32>,
    /// `IFLA_LINK_NETNSID`: this namespace's number for the one that `peer_index` belongs to.
    pub peer_netns_id: Option<i32>,
    /// Transmit queue length, in packets.
    pub txqlen: u32,
    /// `ifalias`.
    pub alias: Option<String>,
    /// Its other names (`altname`), which move with it to another namespace.
    pub alternative_names: Vec<String>,
    /// What only links of this kind have.
    pub data: LinkData,
    /// Set if the link is a bridge port.
    pub bridge_port: Option<BridgePort>,
    /// Its IPv6 settings (`net/ipv6/conf/NAME`); `None` without IPv6.
    pub ipv6: Option<Ipv6Conf>,
}

/// The IPv6 settings of a link that plugins look at. Reading them here saves opening a file below `/proc/sys/net`, which
/// costs more the more network namespaces there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Conf {
    /// `accept_ra`.
    pub accept_ra: i32,
    /// `disable_ipv6`.
    pub disabled: bool,
}

/// Properties of one kind of link, as far as CHECK compares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkData {
    /// No such properties, or none of interest.
    #[default]
    None,
    /// An 802.1q device.
    Vlan {
        /// VLAN id.
        id: u16,
    },
    /// A macvlan.
    MacVlan {
        /// How its siblings see each other.
        mode: MacVlanMode,
    },
    /// An ipvlan.
    IpVlan {
        /// Bridge (L2), router (L3) or router with netfilter (L3S).
        mode: IpVlanMode,
    },
    /// A VRF.
    Vrf {
        /// Its routing table.
        table: u32,
    },
}

impl Link {
    /// Administratively up (`IFF_UP`).
    pub fn is_up(&self) -> bool {
        self.flags & flag(libc::IFF_UP) != 0
    }

    /// In promiscuous mode because a user asked for it (`IFF_PROMISC`).
    pub fn is_promisc(&self) -> bool {
        self.flags & flag(libc::IFF_PROMISC) != 0
    }

    /// Receives all multicast packets because a user asked for it (`IFF_ALLMULTI`).
    pub fn is_allmulti(&self) -> bool {
        self.flags & flag(libc::IFF_ALLMULTI) != 0
    }

    /// Whether the link is of this kind, for example `bridge`.
    pub fn is_kind(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }

    /// Whether the link can send (`IFF_LOWER_UP`): it is up, and so is what is beyond it.
    pub fn has_carrier(&self) -> bool {
        self.flags & flag(libc::IFF_LOWER_UP) != 0
    }

    /// The hardware address as results print it; empty if there is none.
    pub fn mac_text(&self) -> String {
        let bytes: Vec<_> = self.hardware_address.iter().map(|byte| format!("{byte:02x}")).collect();
        bytes.join(":")
    }
}

/// Operational state (`IFLA_OPERSTATE`). Prints as the Go plugins print it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OperState {
    /// Nothing is known; `lo` and drivers that do not tell.
    #[default]
    Unknown,
    /// A component is missing.
    NotPresent,
    /// No carrier, or administratively down.
    Down,
    /// The link below is down.
    LowerLayerDown,
    /// In some test mode.
    Testing,
    /// Waiting for an external event, such as 802.1x.
    Dormant,
    /// Can carry packets.
    Up,
}

impl std::fmt::Display for OperState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::NotPresent => "not-present",
            Self::Down => "down",
            Self::LowerLayerDown => "lower-layer-down",
            Self::Testing => "testing",
            Self::Dormant => "dormant",
            Self::Up => "up",
        })
    }
}

/// `libc` has the flags as `int`, the kernel's message as `unsigned`.
fn flag(bit: libc::c_int) -> u32 {
    bit.unsigned_abs()
}
