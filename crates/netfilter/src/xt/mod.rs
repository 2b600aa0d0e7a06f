// SPDX-License-Identifier: Apache-2.0
//! The iptables dialect: rules as `iptables` and `ip6tables` know them.
//!
//! A [`Rule`] keeps its matches in the order in which they would be given on the command line; [`Rule::to_args`] and
//! `Display` print them, and two rules are the same to the packet filter when their [`Rule::canonical`] forms are equal.
//!
//! This room is data: it must never know how a rule is encoded for the kernel, which tool writes it, or what is on the host.

mod args;
mod canon;
mod names;
mod parse;
#[cfg(test)]
pub(crate) mod tests;

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

pub(crate) use canon::{INTERFACE_SIZE, Slot};
pub use names::is_chain_name;
pub(crate) use parse::rule_from_listing;

/// `iptables` or `ip6tables`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// The tool of the family: `iptables` or `ip6tables`.
    #[must_use]
    pub fn tool(self) -> &'static str {
        match self {
            Self::Ipv4 => "iptables",
            Self::Ipv6 => "ip6tables",
        }
    }
}

/// The tables that the reference plugins use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// `filter`.
    Filter,
    /// `nat`.
    Nat,
}

impl Table {
    /// The name after `-t`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// A transport protocol that can be named in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// `icmp`
    Icmp = 1,
    /// `tcp`
    Tcp = 6,
    /// `udp`
    Udp = 17,
    /// `dccp`
    Dccp = 33,
    /// `esp`
    Esp = 50,
    /// `ah`
    Ah = 51,
    /// `ipv6-icmp`
    Icmpv6 = 58,
    /// `sctp`
    Sctp = 132,
    /// `udplite`
    UdpLite = 136,
}

impl Protocol {
    const NAMES: [(Self, &'static str); 9] = [
        (Self::Icmp, "icmp"),
        (Self::Tcp, "tcp"),
        (Self::Udp, "udp"),
        (Self::Dccp, "dccp"),
        (Self::Esp, "esp"),
        (Self::Ah, "ah"),
        (Self::Icmpv6, "ipv6-icmp"),
        (Self::Sctp, "sctp"),
        (Self::UdpLite, "udplite"),
    ];

    /// The assigned protocol number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name, as iptables prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|row| row.0 == self).map_or("tcp", |row| row.1)
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::NAMES.into_iter().map(|row| row.0).find(|protocol| protocol.number() == number)
    }
}

/// A protocol name that is not known, with the text of the iptables tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol \"{0}\" specified")]
pub struct UnknownProtocol(String);

impl std::str::FromStr for Protocol {
    type Err = UnknownProtocol;

    /// Takes the names in any case, as iptables does.
    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        let known = Self::NAMES.into_iter().find(|row| row.1.eq_ignore_ascii_case(name));
        let icmpv6 = name.eq_ignore_ascii_case("icmpv6").then_some(Self::Icmpv6);
        known.map(|row| row.0).or(icmpv6).ok_or_else(|| UnknownProtocol(name.to_owned()))
    }
}

/// An address in a match, with or without a prefix length.
///
/// Both forms of a host are the same rule to the kernel; they differ in what [`Rule::to_args`] prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Address {
    /// `-s 127.0.0.1`
    Host(IpAddr),
    /// `-s 10.22.0.2/32`; bits behind the prefix are printed but do not count.
    Net(IpNetwork),
}

impl Address {
    /// As a network.
    #[must_use]
    pub fn net(self) -> IpNetwork {
        match self {
            Self::Host(ip) => IpNetwork::from(ip),
            Self::Net(net) => net,
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self::Host(ip)
    }
}

impl From<IpNetwork> for Address {
    fn from(net: IpNetwork) -> Self {
        Self::Net(net)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(ip) => ip.fmt(f),
            Self::Net(net) => net.fmt(f),
        }
    }
}

/// Connection states of `-m conntrack --ctstate`, as bits of the kernel's `XT_CONNTRACK_STATE_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CtState(u16);

impl CtState {
    /// `INVALID`
    pub const INVALID: Self = Self(1);
    /// `ESTABLISHED`
    pub const ESTABLISHED: Self = Self(2);
    /// `RELATED`
    pub const RELATED: Self = Self(4);
    /// `NEW`
    pub const NEW: Self = Self(8);
    /// `RELATED,ESTABLISHED`
    pub const RELATED_ESTABLISHED: Self = Self(6);

    /// In the order in which iptables prints them.
    const NAMES: [(Self, &'static str); 4] = [
        (Self::INVALID, "INVALID"),
        (Self::NEW, "NEW"),
        (Self::RELATED, "RELATED"),
        (Self::ESTABLISHED, "ESTABLISHED"),
    ];

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// `None` if a state is among them that has no name here.
    pub(crate) fn from_bits(bits: u16) -> Option<Self> {
        (bits != 0 && bits & !0xf == 0).then_some(Self(bits))
    }
}

impl std::ops::BitOr for CtState {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::fmt::Display for CtState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Self::NAMES.iter().filter(|(state, _)| self.0 & state.0 != 0).map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

/// One condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Match {
    /// `-s`
    Source {
        /// The address.
        address: Address,
        /// With `!` in front.
        negated: bool,
    },
    /// `-d`
    Destination {
        /// The address.
        address: Address,
        /// With `!` in front.
        negated: bool,
    },
    /// `-i`; a name ending in `+` stands for every name with that beginning.
    InInterface {
        /// Interface name.
        name: String,
        /// With `!` in front.
        negated: bool,
    },
    /// `-o`; as [`Match::InInterface`].
    OutInterface {
        /// Interface name.
        name: String,
        /// With `!` in front.
        negated: bool,
    },
    /// `-p`
    Protocol {
        /// The protocol.
        protocol: Protocol,
        /// With `!` in front.
        negated: bool,
    },
    /// `-p tcp --dport 80`
    DestinationPort {
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
    },
    /// `-m multiport -p tcp --destination-ports 80,81`; at most 15 ports.
    DestinationPorts {
        /// The protocol.
        protocol: Protocol,
        /// The ports.
        ports: Vec<u16>,
    },
    /// `-m comment --comment`; at most 255 bytes.
    Comment(String),
    /// `-m conntrack --ctstate`
    ConntrackState(CtState),
    /// `-m addrtype --dst-type LOCAL`
    DestinationLocal,
    /// `-m mark --mark value/mask`
    Mark {
        /// The value after masking.
        value: u32,
        /// The bits that count.
        mask: u32,
        /// With `!` in front.
        negated: bool,
    },
    /// Words that only the iptables tool understands; they force the `iptables-restore` transport.
    Raw(Vec<String>),
}

/// What a rule does with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// `-j ACCEPT`
    Accept,
    /// `-j DROP`
    Drop,
    /// `-j RETURN`
    Return,
    /// `-j <chain>`
    Jump(String),
    /// `-j MASQUERADE`
    Masquerade,
    /// `-j MARK --set-xmark value/mask`
    SetMark {
        /// Bits that are toggled.
        value: u32,
        /// Bits that are cleared first.
        mask: u32,
    },
    /// `-j DNAT --to-destination address:port`
    Dnat(SocketAddr),
}

/// A rule of the iptables dialect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The conditions, in command line order.
    pub matches: Vec<Match>,
    /// What happens to the packet.
    pub target: Target,
}

impl Rule {
    /// A rule with these conditions and this target.
    #[must_use]
    pub fn new(matches: Vec<Match>, target: Target) -> Self {
        Self { matches, target }
    }

    /// The same rule of the packet filter in the order in which `iptables -S` prints it, whatever the order of this one's
    /// command line. A rule that only the tool understands is its own canonical form.
    #[must_use]
    pub fn canonical(&self, family: Family) -> Self {
        self.clone().canon(family).unwrap_or_else(|| self.clone())
    }

    pub(crate) fn comment(&self) -> Option<&str> {
        self.matches
            .iter()
            .find_map(|m| if let Match::Comment(text) = m { Some(text.as_str()) } else { None })
    }
}

impl Target {
    /// The chain that it leads to.
    pub fn jump(&self) -> Option<&str> {
        if let Self::Jump(chain) = self { Some(chain) } else { None }
    }
}

impl Match {
    /// `-s address`
    pub fn source(address: impl Into<Address>) -> Self {
        Self::Source { address: address.into(), negated: false }
    }

    /// `-d address`
    pub fn destination(address: impl Into<Address>) -> Self {
        Self::Destination { address: address.into(), negated: false }
    }

    /// `! -d address`
    pub fn not_destination(address: impl Into<Address>) -> Self {
        Self::Destination { address: address.into(), negated: true }
    }

    /// `-i name`
    pub fn in_interface(name: impl Into<String>) -> Self {
        Self::InInterface { name: name.into(), negated: false }
    }

    /// `-o name`
    pub fn out_interface(name: impl Into<String>) -> Self {
        Self::OutInterface { name: name.into(), negated: false }
    }

    /// `! -o name`
    pub fn not_out_interface(name: impl Into<String>) -> Self {
        Self::OutInterface { name: name.into(), negated: true }
    }

    /// `-m comment --comment text`
    pub fn comment(text: impl Into<String>) -> Self {
        Self::Comment(text.into())
    }

    /// `-m mark --mark value/mask`
    #[must_use]
    pub fn mark(value: u32, mask: u32) -> Self {
        Self::Mark { value, mask, negated: false }
    }
}
