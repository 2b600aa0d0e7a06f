// SPDX-License-Identifier: Apache-2.0
//! The iptables dialect: rules as `iptables` and `ip6tables` know them.
//!
//! A [`Rule`] keeps its matches in the order in which they would be given on the command line; [`Rule::to_args`] prints
//! them. The nf_tables encoding is that of Debian 12's iptables-nft 1.8.9, see `encode`.

mod args;
mod canon;
mod decode;
mod encode;
mod layout;
mod parse;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

pub(crate) use canon::{Canon, Extension};
pub(crate) use decode::decode;
pub(crate) use encode::{Form, encode, octets};
pub(crate) use parse::rule_from_listing;

/// Whether a user's text can be a chain's name: at most 28 bytes (`XT_EXTENSION_MAXNAMELEN` - 1), and nothing that a rule
/// file would read as something else.
#[must_use]
pub fn is_chain_name(name: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !"\"'\\".contains(c);
    (1..=28).contains(&name.len()) && !name.starts_with(['-', '!']) && name.chars().all(plain)
}

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

    /// The built-in chain of that name, as iptables-nft creates it when it is first used
    /// (iptables `iptables/nft.c`, `xtables_ipv4`).
    pub(crate) fn builtin(self, chain: &str) -> Option<crate::nft::Hook> {
        use crate::nft::{ChainType, Hook, HookPoint};
        let (point, nat_priority) = match chain {
            "PREROUTING" => (HookPoint::Prerouting, Some(-100)),
            "INPUT" => (HookPoint::Input, Some(100)),
            "FORWARD" => (HookPoint::Forward, None),
            "OUTPUT" => (HookPoint::Output, Some(-100)),
            "POSTROUTING" => (HookPoint::Postrouting, Some(100)),
            _ => return None,
        };
        match (self, point) {
            (Self::Nat, _) => nat_priority.map(|priority| Hook::accept(ChainType::Nat, point, priority)),
            (Self::Filter, HookPoint::Input | HookPoint::Forward | HookPoint::Output) => {
                Some(Hook::accept(ChainType::Filter, point, 0))
            }
            (Self::Filter, HookPoint::Prerouting | HookPoint::Postrouting) => None,
        }
    }
}

/// A transport protocol that can be named in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// `icmp`, 1.
    Icmp,
    /// `tcp`, 6.
    Tcp,
    /// `udp`, 17.
    Udp,
    /// `dccp`, 33.
    Dccp,
    /// `esp`, 50.
    Esp,
    /// `ah`, 51.
    Ah,
    /// `ipv6-icmp`, 58.
    Icmpv6,
    /// `sctp`, 132.
    Sctp,
    /// `udplite`, 136.
    UdpLite,
}

impl Protocol {
    const ALL: [(Self, u8, &'static str); 9] = [
        (Self::Icmp, 1, "icmp"),
        (Self::Tcp, 6, "tcp"),
        (Self::Udp, 17, "udp"),
        (Self::Dccp, 33, "dccp"),
        (Self::Esp, 50, "esp"),
        (Self::Ah, 51, "ah"),
        (Self::Icmpv6, 58, "ipv6-icmp"),
        (Self::Sctp, 132, "sctp"),
        (Self::UdpLite, 136, "udplite"),
    ];

    fn row(self) -> (Self, u8, &'static str) {
        Self::ALL.into_iter().find(|row| row.0 == self).unwrap_or(Self::ALL[1])
    }

    /// The assigned protocol number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.row().1
    }

    /// The name, as iptables prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.1 == number).map(|row| row.0)
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
        let known = Self::ALL.into_iter().find(|row| row.2.eq_ignore_ascii_case(name));
        let icmpv6 = name.eq_ignore_ascii_case("icmpv6").then_some(Self::Icmpv6);
        known.map(|row| row.0).or(icmpv6).ok_or_else(|| UnknownProtocol(name.to_owned()))
    }
}

/// An address in a match, with or without a prefix length.
///
/// Both forms of a host are the same rule to the kernel; they differ in what [`Rule::to_args`] prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// `-s 127.0.0.1`
    Host(IpAddr),
    /// `-s 10.22.0.2/32`; bits behind the prefix are printed but do not count.
    Net(IpNetwork),
}

impl Address {
    pub(crate) fn net(self) -> IpNetwork {
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// True if both are the same rule of the packet filter, whatever the order of their command lines.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (Canon::of(self), Canon::of(other)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self == other,
        }
    }

    pub(crate) fn jump(&self) -> Option<&str> {
        match &self.target {
            Target::Jump(chain) => Some(chain),
            Target::Accept
            | Target::Drop
            | Target::Return
            | Target::Masquerade
            | Target::SetMark { .. }
            | Target::Dnat(_) => None,
        }
    }

    pub(crate) fn comment(&self) -> Option<&str> {
        self.matches
            .iter()
            .find_map(|m| if let Match::Comment(text) = m { Some(text.as_str()) } else { None })
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
