// SPDX-License-Identifier: Apache-2.0
//! The form in which rules of the iptables dialect are compared, hashed and encoded: in the order in which `iptables -S`
//! prints them, addresses as networks without host bits, and nothing that says nothing.
//!
//! iptables has one slot each for addresses, interfaces and protocol, so their order on the command line does not count;
//! the order of the other matches does.

use ipnetwork::IpNetwork;

use super::{Address, Family, Match, Protocol, Rule, Target};

/// What a rule has once at most, in the order in which `iptables -S` prints it, and after that all the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    Source,
    Destination,
    InInterface,
    OutInterface,
    Protocol,
    Rest,
}

impl Rule {
    /// The canonical form. `None` if only the iptables tool knows what the rule means or whether it is allowed, or if the
    /// packet filter of this family cannot hold it as it is: then the tool finds the words for that.
    pub(crate) fn canon(mut self, family: Family) -> Option<Self> {
        self.matches.retain(|condition| !condition.says_nothing());
        for condition in &mut self.matches {
            condition.normalize(family)?;
        }
        let is_of_other = matches!(&self.target, Target::Dnat(to) if Family::of(to.ip()) != family);
        // Ports imply their protocol; naming it again is only understood by the tool.
        let protocols = self.matches.iter().filter_map(Match::protocol).count();
        if is_of_other || protocols > 1 { None } else { self.in_order() }
    }

    /// The same rule in the order of the canonical form; `None` if something is said twice that has one slot.
    pub(crate) fn in_order(mut self) -> Option<Self> {
        self.matches.sort_by_key(Match::slot);
        let slots = self.matches.iter().map(Match::slot).filter(|slot| *slot != Slot::Rest);
        slots.is_sorted_by(|one, next| one < next).then_some(self)
    }

    /// The protocol, and whether it is negated.
    pub(crate) fn protocol(&self) -> Option<(Protocol, bool)> {
        self.matches.iter().find_map(Match::protocol)
    }
}

impl Match {
    pub(crate) fn slot(&self) -> Slot {
        match self {
            Self::Source { .. } => Slot::Source,
            Self::Destination { .. } => Slot::Destination,
            Self::InInterface { .. } => Slot::InInterface,
            Self::OutInterface { .. } => Slot::OutInterface,
            Self::Protocol { .. } => Slot::Protocol,
            Self::DestinationPort { .. }
            | Self::DestinationPorts { .. }
            | Self::Comment(_)
            | Self::ConntrackState(_)
            | Self::DestinationLocal
            | Self::Mark { .. }
            | Self::Raw(_) => Slot::Rest,
        }
    }

    fn protocol(&self) -> Option<(Protocol, bool)> {
        if let Self::Protocol { protocol, negated } = self {
            return Some((*protocol, *negated));
        }
        let (Self::DestinationPort { protocol, .. } | Self::DestinationPorts { protocol, .. }) = self else {
            return None;
        };
        Some((*protocol, false))
    }

    /// Every address is meant; negated that is a special case of the tool.
    fn says_nothing(&self) -> bool {
        let (Self::Source { address, negated } | Self::Destination { address, negated }) = self else {
            return false;
        };
        !negated && address.net().prefix() == 0
    }

    /// Leaves out what does not count; `None` for what is left to the tool.
    fn normalize(&mut self, family: Family) -> Option<()> {
        let has_ports =
            |protocol: &Protocol| matches!(protocol, Protocol::Tcp | Protocol::Udp | Protocol::Sctp);
        let fits = match self {
            Self::Source { address, .. } | Self::Destination { address, .. } => {
                *address = address.masked()?;
                Family::of(address.net().ip()) == family
            }
            Self::InInterface { name, .. } | Self::OutInterface { name, .. } => is_interface(name),
            Self::DestinationPort { protocol, .. } => has_ports(protocol),
            Self::DestinationPorts { protocol, ports } => {
                has_ports(protocol) && (1..=MOST_PORTS).contains(&ports.len())
            }
            Self::Comment(text) => text.len() <= LONGEST_COMMENT && !text.contains('\0'),
            Self::Raw(_) => false,
            Self::Protocol { .. } | Self::ConntrackState(_) | Self::DestinationLocal | Self::Mark { .. } => {
                true
            }
        };
        fits.then_some(())
    }
}

impl Address {
    /// The network without host bits; `None` for every address.
    fn masked(self) -> Option<Self> {
        let net = self.net();
        (net.prefix() > 0).then_some(())?;
        IpNetwork::new(net.network(), net.prefix()).ok().map(Self::Net)
    }
}

/// The name of one interface or, with `+` at its end, of many. `+` alone is every interface, which the tool writes in a way
/// of its own.
fn is_interface(name: &str) -> bool {
    name != "+" && (1..INTERFACE_SIZE).contains(&name.len()) && !name.contains(['\0', '/', ' '])
}

/// `IFNAMSIZ`
pub(crate) const INTERFACE_SIZE: usize = 16;
/// `XT_MAX_COMMENT_LEN`, less the terminating zero.
const LONGEST_COMMENT: usize = 255;
/// `XT_MULTI_PORTS`
const MOST_PORTS: usize = 15;
