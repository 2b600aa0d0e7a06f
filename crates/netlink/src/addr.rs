// SPDX-License-Identifier: Apache-2.0
//! Addresses of links, the verbs of `ip address`.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressScope, CacheInfo,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Error, Rtnl};

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// An address, as the kernel reports it or is to have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addr {
    /// Index of its link.
    pub index: u32,
    /// The local address, and the length of its network's prefix. The host part is kept.
    pub net: IpNetwork,
    /// IPv4 broadcast address.
    pub broadcast: Option<Ipv4Addr>,
    /// `RT_SCOPE_*`: 0 global, 253 link, 254 host.
    pub scope: u8,
    /// `IFA_F_*` of `linux/if_addr.h`, all 32 bits, such as [`IFA_F_NODAD`].
    pub flags: u32,
    /// How long it lasts; `None` for ever.
    pub lifetime: Option<Lifetime>,
}

/// How long an address lasts, in seconds; `u32::MAX` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Until it is deprecated (`preferred_lft`).
    pub preferred: u32,
    /// Until it goes (`valid_lft`).
    pub valid: u32,
}

/// Skip duplicate address detection (IPv6 `nodad`).
pub const IFA_F_NODAD: u32 = AddressFlags::Nodad.bits();
/// No route to the network of the address (`noprefixroute`).
pub const IFA_F_NOPREFIXROUTE: u32 = AddressFlags::Noprefixroute.bits();

impl Family {
    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Whether a network is of the family. A kernel that has no IPv6 lists what it has when it is asked for that
    /// (`rtnetlink_rcv_msg` falls back to all families).
    pub(crate) fn has(self, net: IpNetwork) -> bool {
        Self::of(net.ip()) == self
    }

    pub(crate) fn into_kernel(self) -> AddressFamily {
        match self {
            Self::V4 => AddressFamily::Inet,
            Self::V6 => AddressFamily::Inet6,
        }
    }
}

impl Addr {
    /// A global address for the link with this index, for ever. IPv4 networks with room for one get their broadcast address,
    /// as the Go plugins' do.
    pub fn new(index: u32, net: IpNetwork) -> Self {
        Self { index, net, broadcast: broadcast(net), scope: 0, flags: 0, lifetime: None }
    }

    fn message(&self) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = Family::of(self.net.ip()).into_kernel();
        message.header.prefix_len = self.net.prefix();
        message.header.index = self.index;
        message.header.scope = AddressScope::from(self.scope);
        message.attributes =
            vec![AddressAttribute::Local(self.net.ip()), AddressAttribute::Address(self.net.ip())];
        message.attributes.extend(self.broadcast.map(AddressAttribute::Broadcast));
        if self.flags != 0 {
            let flags = AddressFlags::from_bits_retain(self.flags);
            message.attributes.push(AddressAttribute::Flags(flags));
        }
        message.attributes.extend(self.lifetime.map(|lifetime| {
            let mut info = CacheInfo::default();
            (info.ifa_preferred, info.ifa_valid) = (lifetime.preferred, lifetime.valid);
            AddressAttribute::CacheInfo(info)
        }));
        message
    }

    /// What to add to have it again as it is, for the time that it has left.
    pub fn again(&self) -> Self {
        Self { flags: self.flags & CHOSEN.bits(), ..self.clone() }
    }

    /// Duplicate address detection has not finished (`IFA_F_TENTATIVE`).
    pub fn is_tentative(&self) -> bool {
        self.flags & libc::IFA_F_TENTATIVE != 0
    }

    /// Duplicate address detection found the address in use (`IFA_F_DADFAILED`).
    pub(crate) fn is_dad_failed(&self) -> bool {
        self.flags & libc::IFA_F_DADFAILED != 0
    }
}

impl Rtnl {
    /// `ip address add ADDRESS/PREFIX [broadcast B] [scope S] [nodad] dev INDEX`.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn addr_add(&mut self, addr: &Addr) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::NewAddress(addr.message()), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `ip address del ADDRESS/PREFIX dev INDEX`.
    ///
    /// # Errors
    /// [`Error::is_addr_not_found`], or what else the kernel says.
    pub fn addr_del(&mut self, index: u32, net: IpNetwork) -> Result<(), Error> {
        let addr = Addr { broadcast: None, ..Addr::new(index, net) };
        self.change(RouteNetlinkMessage::DelAddress(addr.message()), 0)
    }

    /// `ip address show dev INDEX`, of one family or of both.
    ///
    /// # Errors
    /// What the kernel says, `no such device` for a missing link.
    pub fn addrs(&mut self, index: u32, family: Option<Family>) -> Result<Vec<Addr>, Error> {
        let mut request = AddressMessage::default();
        request.header.family = family.map_or(AddressFamily::Unspec, Family::into_kernel);
        request.header.index = index;
        let dump = self.dump(&RouteNetlinkMessage::GetAddress(request))?;
        let wanted = |addr: &Addr| addr.index == index && family.is_none_or(|family| family.has(addr.net));
        Ok(dump.into_iter().filter_map(as_addr).filter(wanted).collect())
    }
}

/// The broadcast address of an IPv4 network that has one (prefixes up to 30).
pub(crate) fn broadcast(net: IpNetwork) -> Option<Ipv4Addr> {
    match net {
        IpNetwork::V4(net) if net.prefix() < 31 => Some(net.broadcast()),
        IpNetwork::V4(_) | IpNetwork::V6(_) => None,
    }
}

pub(crate) fn as_addr(message: RouteNetlinkMessage) -> Option<Addr> {
    if let RouteNetlinkMessage::NewAddress(message) = message { decode(message) } else { None }
}

/// `None` for a message without an address, which the kernel does not send.
#[expect(clippy::wildcard_enum_match_arm, reason = "attributes nobody asks about")]
pub(crate) fn decode(message: AddressMessage) -> Option<Addr> {
    let (mut local, mut address, mut broadcast, mut lifetime) = (None, None, None, None);
    let mut flags = u32::from(message.header.flags.bits());
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(ip),
            AddressAttribute::Address(ip) => address = Some(ip),
            AddressAttribute::Broadcast(ip) => broadcast = Some(ip),
            AddressAttribute::Flags(all) => flags = all.bits(),
            AddressAttribute::CacheInfo(info) => lifetime = as_lifetime(info),
            _ => {}
        }
    }
    // IPv6 sends the local address only where it differs from the other end's.
    let ip = local.or(address)?;
    Some(Addr {
        index: message.header.index,
        net: IpNetwork::new(ip, message.header.prefix_len).ok()?,
        broadcast,
        scope: message.header.scope.into(),
        flags,
        lifetime,
    })
}

fn as_lifetime(info: CacheInfo) -> Option<Lifetime> {
    let lifetime = Lifetime { preferred: info.ifa_preferred, valid: info.ifa_valid };
    (lifetime.preferred.min(lifetime.valid) != u32::MAX).then_some(lifetime)
}

/// What `inet6_rtm_newaddr` (net/ipv6/addrconf.c) lets others choose; the kernel says the rest itself.
const CHOSEN: AddressFlags = AddressFlags::Nodad
    .union(AddressFlags::Optimistic)
    .union(AddressFlags::Homeaddress)
    .union(AddressFlags::Managetempaddr)
    .union(AddressFlags::Noprefixroute)
    .union(AddressFlags::Mcautojoin);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_networks_have_no_broadcast_address() {
        let of = |net: &str| Addr::new(3, net.parse().unwrap()).broadcast;
        assert_eq!(of("10.1.2.3/24"), Some(Ipv4Addr::new(10, 1, 2, 255)));
        assert_eq!(of("10.1.2.3/31"), None);
        assert_eq!(of("10.1.2.3/32"), None);
        assert_eq!(of("fd00::1/64"), None);
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let lifetime = Some(Lifetime { preferred: 0, valid: 60 });
        let flags = IFA_F_NODAD | IFA_F_NOPREFIXROUTE;
        let addr = Addr { flags, lifetime, ..Addr::new(3, "fd00::1/64".parse().unwrap()) };
        let read = as_addr(RouteNetlinkMessage::NewAddress(addr.message())).unwrap();
        assert_eq!(read, addr);
        let computed = libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED | libc::IFA_F_PERMANENT;
        assert_eq!(Addr { flags: flags | computed, ..read }.again(), addr);
    }
}
