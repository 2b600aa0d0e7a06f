// SPDX-License-Identifier: Apache-2.0
//! The native nf_tables dialect: tables, chains and rules as `nft` knows them.
//!
//! This room is data: it must never know how a rule is encoded for the kernel, which tool writes it, or what is on the host.

mod canon;
mod from_xt;
mod parse;
mod text;

use std::net::SocketAddr;

use ipnetwork::IpNetwork;

use crate::xt;
pub use crate::xt::{CtState, Protocol};
pub(crate) use text::string;

/// Family of a table (`NFPROTO_*`, kernel `uapi/linux/netfilter.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// `inet`: IPv4 and IPv6.
    Inet = 1,
    /// `ip`: IPv4.
    Ip = 2,
    /// `bridge`: Ethernet frames that cross a bridge.
    Bridge = 7,
    /// `ip6`: IPv6.
    Ip6 = 10,
}

impl Family {
    /// The name that `nft` uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Bridge => "bridge",
            Self::Ip6 => "ip6",
        }
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }
}

impl From<xt::Family> for Family {
    fn from(family: xt::Family) -> Self {
        match family {
            xt::Family::Ipv4 => Self::Ip,
            xt::Family::Ipv6 => Self::Ip6,
        }
    }
}

/// Where a base chain is called from (`NF_INET_*`; the bridge family's numbers, `NF_BR_*`, are the same).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookPoint {
    /// `prerouting`
    Prerouting = 0,
    /// `input`
    Input,
    /// `forward`
    Forward,
    /// `output`
    Output,
    /// `postrouting`
    Postrouting,
}

impl HookPoint {
    /// The name that `nft` uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        }
    }

    pub(crate) fn number(self) -> u32 {
        self as u32
    }
}

/// Type of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChainType {
    /// `filter`
    Filter,
    /// `nat`
    Nat,
}

impl ChainType {
    /// The name that `nft` uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// What makes a chain a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hook {
    /// Type of the chain.
    pub chain_type: ChainType,
    /// Where it is called from.
    pub point: HookPoint,
    /// Order among the chains of one hook, lowest first.
    pub priority: i32,
    /// Whether `policy accept` is said; if not, the kernel accepts all the same.
    pub says_accept: bool,
}

impl Hook {
    /// A hook without explicit policy (`type nat hook postrouting priority 100;`).
    #[must_use]
    pub fn new(chain_type: ChainType, point: HookPoint, priority: i32) -> Self {
        Self { chain_type, point, priority, says_accept: false }
    }

    /// A hook with `policy accept`.
    #[must_use]
    pub fn accept(chain_type: ChainType, point: HookPoint, priority: i32) -> Self {
        Self { says_accept: true, ..Self::new(chain_type, point, priority) }
    }
}

/// A chain to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Comment given at creation.
    pub comment: Option<String>,
    /// For base chains.
    pub hook: Option<Hook>,
}

impl Chain {
    /// A chain that is only jumped to.
    pub fn regular(name: impl Into<String>) -> Self {
        Self { name: name.into(), comment: None, hook: None }
    }

    /// A base chain.
    pub fn base(name: impl Into<String>, hook: Hook) -> Self {
        Self { name: name.into(), comment: None, hook: Some(hook) }
    }

    /// The same chain with a comment.
    #[must_use]
    pub fn with_comment(self, comment: impl Into<String>) -> Self {
        Self { comment: Some(comment.into()), ..self }
    }
}

/// One statement of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Statement {
    /// `ip saddr` or `ip6 saddr`
    SourceAddress {
        /// The address or prefix.
        net: IpNetwork,
        /// `!=` in place of `==`.
        negated: bool,
    },
    /// `ip daddr` or `ip6 daddr`
    DestinationAddress {
        /// The address or prefix.
        net: IpNetwork,
        /// `!=` in place of `==`.
        negated: bool,
    },
    /// `ether saddr`
    EtherSource {
        /// The MAC address.
        address: [u8; 6],
        /// `!=` in place of `==`.
        negated: bool,
    },
    /// `iifname`
    InInterface {
        /// The exact name.
        name: String,
        /// `!=` in place of `==`.
        negated: bool,
    },
    /// `oifname`
    OutInterface {
        /// The exact name.
        name: String,
        /// `!=` in place of `==`.
        negated: bool,
    },
    /// `tcp dport` and the like
    DestinationPort {
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
        /// `!=` in place of `==`.
        negated: bool,
    },
    /// `fib daddr type local`
    DestinationLocal,
    /// `ct state`, any of these
    ConntrackState(CtState),
    /// `meta mark & <bits> == <bits>`: all of these bits are set.
    Marked(u32),
    /// `meta mark set meta mark | <bits>`
    SetMark(u32),
    /// `counter`
    Counter,
    /// What becomes of the packet.
    Verdict(Verdict),
    /// `masquerade`
    Masquerade,
    /// `dnat to <address>:<port>`
    Dnat(SocketAddr),
    /// Words that only the `nft` tool understands; a batch with them is written by one `nft -f -`.
    Raw(Vec<String>),
}

/// What a rule decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// `accept`
    Accept,
    /// `drop`
    Drop,
    /// `return`
    Return,
    /// `jump <chain>`
    Jump(String),
    /// `goto <chain>`
    Goto(String),
}

/// A rule of the native dialect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The statements in order.
    pub statements: Vec<Statement>,
    /// The rule's comment, at most 253 bytes; `nft` itself writes no more than 128.
    pub comment: Option<String>,
}

impl Rule {
    /// A rule of these statements without comment.
    #[must_use]
    pub fn new(statements: Vec<Statement>) -> Self {
        Self { statements, comment: None }
    }

    /// The same rule with a comment.
    #[must_use]
    pub fn with_comment(self, comment: impl Into<String>) -> Self {
        Self { comment: Some(comment.into()), ..self }
    }

    pub(crate) fn jump(&self) -> Option<&str> {
        self.statements.iter().find_map(|statement| {
            if let Statement::Verdict(verdict) = statement { verdict.chain() } else { None }
        })
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.statements.iter().any(|statement| matches!(statement, Statement::Raw(_)))
    }
}

impl Verdict {
    /// The chain that it leads to.
    pub(crate) fn chain(&self) -> Option<&str> {
        if let Self::Jump(chain) | Self::Goto(chain) = self { Some(chain) } else { None }
    }
}

impl From<Verdict> for Statement {
    fn from(verdict: Verdict) -> Self {
        Self::Verdict(verdict)
    }
}

impl Statement {
    /// `ip saddr == net`, `ip6 saddr == net`
    pub fn source(net: impl Into<IpNetwork>) -> Self {
        Self::SourceAddress { net: net.into(), negated: false }
    }

    /// `ip daddr == net`, `ip6 daddr == net`
    pub fn destination(net: impl Into<IpNetwork>) -> Self {
        Self::DestinationAddress { net: net.into(), negated: false }
    }

    /// `ip daddr != net`, `ip6 daddr != net`
    pub fn not_destination(net: impl Into<IpNetwork>) -> Self {
        Self::DestinationAddress { net: net.into(), negated: true }
    }

    /// `iifname == name`
    pub fn in_interface(name: impl Into<String>) -> Self {
        Self::InInterface { name: name.into(), negated: false }
    }

    /// `ether saddr == address`
    #[must_use]
    pub fn ether_source(address: [u8; 6]) -> Self {
        Self::EtherSource { address, negated: false }
    }

    /// `<protocol> dport == port`
    #[must_use]
    pub fn destination_port(protocol: Protocol, port: u16) -> Self {
        Self::DestinationPort { protocol, port, negated: false }
    }
}
