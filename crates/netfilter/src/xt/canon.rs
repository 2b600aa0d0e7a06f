// SPDX-License-Identifier: Apache-2.0
//! The form in which rules of the iptables dialect are compared, hashed and encoded.
//!
//! iptables has one slot each for addresses, interfaces and protocol, so their order on the command line does not count;
//! the order of the other matches does.

use ipnetwork::IpNetwork;

use super::{CtState, Family, Match, Protocol, Rule, Target};

/// A value and whether it is negated.
pub(crate) type Maybe<T> = Option<(T, bool)>;

/// A rule without any freedom of expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Canon {
    pub(crate) in_interface: Maybe<String>,
    pub(crate) out_interface: Maybe<String>,
    pub(crate) protocol: Maybe<u8>,
    pub(crate) source: Maybe<IpNetwork>,
    pub(crate) destination: Maybe<IpNetwork>,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) target: Target,
}

/// A match that is not a slot of the rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Extension {
    Port(Protocol, u16),
    Ports(Vec<u16>),
    Comment(String),
    State(CtState),
    DestinationLocal,
    Mark { value: u32, mask: u32, negated: bool },
}

impl Canon {
    /// A rule that matches everything.
    pub(crate) fn bare(target: Target) -> Self {
        Self {
            in_interface: None,
            out_interface: None,
            protocol: None,
            source: None,
            destination: None,
            extensions: Vec::new(),
            target,
        }
    }

    /// `None` if only the iptables tool knows what the rule means or whether it is allowed.
    pub(crate) fn of(rule: &Rule) -> Option<Self> {
        let mut canon = Self::bare(rule.target.clone());
        for condition in &rule.matches {
            canon.add(condition)?;
        }
        Some(canon)
    }

    /// Whether the packet filter of this family can hold the rule as it is here. What cannot is left to the tool, which
    /// finds the words for it.
    pub(crate) fn fits(&self, family: Family) -> bool {
        let net = |slot: &Maybe<IpNetwork>| slot.is_none_or(|(net, _)| Family::of(net.ip()) == family);
        let interface = |slot: &Maybe<String>| slot.as_ref().is_none_or(|(name, _)| is_interface(name));
        let extension = |extension: &Extension| match extension {
            Extension::Ports(ports) => (1..=MOST_PORTS).contains(&ports.len()),
            Extension::Comment(text) => text.len() <= LONGEST_COMMENT && !text.contains('\0'),
            Extension::Port(..)
            | Extension::State(_)
            | Extension::DestinationLocal
            | Extension::Mark { .. } => true,
        };
        let target = match &self.target {
            Target::Dnat(to) => Family::of(to.ip()) == family,
            Target::Accept
            | Target::Drop
            | Target::Return
            | Target::Jump(_)
            | Target::Masquerade
            | Target::SetMark { .. } => true,
        };
        net(&self.source)
            && net(&self.destination)
            && interface(&self.in_interface)
            && interface(&self.out_interface)
            && self.extensions.iter().all(extension)
            && target
    }

    fn add(&mut self, condition: &Match) -> Option<()> {
        match condition {
            Match::Source { address, negated } => fill(&mut self.source, masked(address.net())?, *negated),
            Match::Destination { address, negated } => {
                fill(&mut self.destination, masked(address.net())?, *negated)
            }
            Match::InInterface { name, negated } => fill(&mut self.in_interface, name.clone(), *negated),
            Match::OutInterface { name, negated } => fill(&mut self.out_interface, name.clone(), *negated),
            Match::Protocol { protocol, negated } => fill(&mut self.protocol, protocol.number(), *negated),
            Match::DestinationPort { protocol, port } => {
                self.transport(*protocol)?;
                self.extend(Extension::Port(*protocol, *port))
            }
            Match::DestinationPorts { protocol, ports } => {
                self.transport(*protocol)?;
                self.extend(Extension::Ports(ports.clone()))
            }
            Match::Comment(text) => self.extend(Extension::Comment(text.clone())),
            Match::ConntrackState(states) => self.extend(Extension::State(*states)),
            Match::DestinationLocal => self.extend(Extension::DestinationLocal),
            Match::Mark { value, mask, negated } => {
                self.extend(Extension::Mark { value: *value, mask: *mask, negated: *negated })
            }
            Match::Raw(_) => None,
        }
    }

    pub(crate) fn extend(&mut self, extension: Extension) -> Option<()> {
        self.extensions.push(extension);
        Some(())
    }

    /// Ports imply their protocol; naming it again is only understood by the tool.
    fn transport(&mut self, protocol: Protocol) -> Option<()> {
        matches!(protocol, Protocol::Tcp | Protocol::Udp | Protocol::Sctp).then_some(())?;
        fill(&mut self.protocol, protocol.number(), false)
    }

    /// Back to a rule, in the order in which `iptables -S` prints it. `None` if the protocol has no name here.
    pub(crate) fn to_rule(&self) -> Option<Rule> {
        let mut matches = Vec::new();
        let slot = |net: &Maybe<IpNetwork>| net.map(|(net, negated)| (net.into(), negated));
        matches.extend(slot(&self.source).map(|(address, negated)| Match::Source { address, negated }));
        matches.extend(
            slot(&self.destination).map(|(address, negated)| Match::Destination { address, negated }),
        );
        let named = |slot: &Maybe<String>| slot.clone();
        matches.extend(named(&self.in_interface).map(|(name, negated)| Match::InInterface { name, negated }));
        matches
            .extend(named(&self.out_interface).map(|(name, negated)| Match::OutInterface { name, negated }));
        let protocol = match self.protocol {
            Some((number, negated)) => Some((Protocol::from_number(number)?, negated)),
            None => None,
        };
        let ported = |e: &Extension| matches!(e, Extension::Port(..) | Extension::Ports(_));
        if let (Some((protocol, negated)), false) = (protocol, self.extensions.iter().any(ported)) {
            matches.push(Match::Protocol { protocol, negated });
        }
        for extension in &self.extensions {
            matches.push(extension.to_match(protocol)?);
        }
        Some(Rule::new(matches, self.target.clone()))
    }
}

impl Extension {
    fn to_match(&self, protocol: Maybe<Protocol>) -> Option<Match> {
        Some(match self {
            Self::Port(protocol, port) => Match::DestinationPort { protocol: *protocol, port: *port },
            Self::Ports(ports) => Match::DestinationPorts { protocol: protocol?.0, ports: ports.clone() },
            Self::Comment(text) => Match::Comment(text.clone()),
            Self::State(states) => Match::ConntrackState(*states),
            Self::DestinationLocal => Match::DestinationLocal,
            Self::Mark { value, mask, negated } => {
                Match::Mark { value: *value, mask: *mask, negated: *negated }
            }
        })
    }
}

pub(crate) fn fill<T>(slot: &mut Maybe<T>, value: impl Into<Option<T>>, negated: bool) -> Option<()> {
    match value.into() {
        // 0.0.0.0/0 says nothing; negated it is a special case of the tool
        None => (!negated).then_some(()),
        Some(value) if slot.is_none() => {
            *slot = Some((value, negated));
            Some(())
        }
        Some(_) => None,
    }
}

/// The network without host bits; the inner `None` stands for every address.
fn masked(net: IpNetwork) -> Option<Option<IpNetwork>> {
    if net.prefix() == 0 {
        return Some(None);
    }
    IpNetwork::new(net.network(), net.prefix()).ok().map(Some)
}

/// The name of one interface or, with `+` at its end, of many. `+` alone is every interface, which the tool writes in a way
/// of its own.
fn is_interface(name: &str) -> bool {
    name != "+" && (1..INTERFACE_SIZE).contains(&name.len()) && !name.contains(['\0', '/', ' '])
}

/// `IFNAMSIZ`
const INTERFACE_SIZE: usize = 16;
/// `XT_MAX_COMMENT_LEN`, less the terminating zero.
const LONGEST_COMMENT: usize = 255;
/// `XT_MULTI_PORTS`
const MOST_PORTS: usize = 15;
