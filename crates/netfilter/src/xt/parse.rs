// SPDX-License-Identifier: Apache-2.0
//! Words of the iptables command line as matches and targets: the simple forms of user conditions, and what
//! `iptables -S` prints for the rules of this crate.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::{Address, CtState, Match, Protocol, Rule, Target};

impl Match {
    /// The conditions of a list of words (`["!", "-s", "10.0.0.0/8"]`). If any of it is not one of the simple forms, all
    /// of it is one [`Match::Raw`], which only the tool can write.
    #[must_use]
    pub fn conditions(words: &[String]) -> Vec<Self> {
        if words.is_empty() {
            return Vec::new();
        }
        let tokens: Vec<&str> = words.iter().map(String::as_str).collect();
        simple(&tokens).unwrap_or_else(|| vec![Self::Raw(words.to_vec())])
    }
}

fn simple(tokens: &[&str]) -> Option<Vec<Match>> {
    let mut parser = Parser::new(tokens);
    while !parser.rest.is_empty() {
        parser.condition()?;
    }
    Some(parser.matches)
}

/// A rule as `iptables -S` lists it, without `-A chain`. `None` if anything in it is unknown.
pub(crate) fn rule_from_listing(words: &[String]) -> Option<Rule> {
    let tokens: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut parser = Parser::new(&tokens);
    loop {
        if let ["-j", target @ ..] = parser.rest {
            return Some(Rule::new(parser.matches, target_from(target)?));
        }
        parser.condition()?;
    }
}

struct Parser<'t> {
    rest: &'t [&'t str],
    matches: Vec<Match>,
    /// The protocol of `-p`, until a port match takes it.
    protocol: Option<Protocol>,
}

impl<'t> Parser<'t> {
    fn new(tokens: &'t [&'t str]) -> Self {
        Self { rest: tokens, matches: Vec::new(), protocol: None }
    }

    /// Takes one condition off the front.
    fn condition(&mut self) -> Option<()> {
        let (negated, rest) = match self.rest {
            ["!", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (found, rest) = match rest {
            ["-s" | "--source" | "--src", value, rest @ ..] => {
                (Match::Source { address: address(value)?, negated }, rest)
            }
            ["-d" | "--destination" | "--dst", value, rest @ ..] => {
                (Match::Destination { address: address(value)?, negated }, rest)
            }
            ["-i" | "--in-interface", name, rest @ ..] => {
                (Match::InInterface { name: (*name).to_owned(), negated }, rest)
            }
            ["-o" | "--out-interface", name, rest @ ..] => {
                (Match::OutInterface { name: (*name).to_owned(), negated }, rest)
            }
            ["-p" | "--protocol", name, rest @ ..] => {
                let protocol = name.parse().ok()?;
                self.protocol = (!negated).then_some(protocol);
                (Match::Protocol { protocol, negated }, rest)
            }
            ["-m" | "--match", rest @ ..] if !negated => self.extension(rest)?,
            _ => return None,
        };
        self.matches.push(found);
        self.rest = rest;
        Some(())
    }

    /// What follows `-m`.
    fn extension(&mut self, rest: &'t [&'t str]) -> Option<(Match, &'t [&'t str])> {
        Some(match rest {
            ["comment", "--comment", text, rest @ ..] => (Match::Comment((*text).to_owned()), rest),
            ["mark", "!", "--mark", value, rest @ ..] => (mark(value, true)?, rest),
            ["mark", "--mark", value, rest @ ..] => (mark(value, false)?, rest),
            ["addrtype", "--dst-type", "LOCAL", rest @ ..] => (Match::DestinationLocal, rest),
            ["conntrack", "--ctstate", states, rest @ ..] => {
                (Match::ConntrackState(ct_states(states)?), rest)
            }
            ["tcp" | "udp" | "sctp", "--dport", port, rest @ ..] => {
                let port = port.parse().ok()?;
                (Match::DestinationPort { protocol: self.take_protocol()?, port }, rest)
            }
            ["multiport", "--dports" | "--destination-ports", ports, rest @ ..] => {
                let ports = ports.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
                (Match::DestinationPorts { protocol: self.take_protocol()?, ports }, rest)
            }
            _ => return None,
        })
    }

    /// Port matches carry their protocol themselves.
    fn take_protocol(&mut self) -> Option<Protocol> {
        self.matches.retain(|found| !matches!(found, Match::Protocol { .. }));
        self.protocol.take()
    }
}

fn target_from(words: &[&str]) -> Option<Target> {
    Some(match words {
        ["ACCEPT"] => Target::Accept,
        ["DROP"] => Target::Drop,
        ["RETURN"] => Target::Return,
        ["MASQUERADE"] => Target::Masquerade,
        ["MARK", "--set-xmark", value] => {
            let (value, mask) = value_and_mask(value)?;
            Target::SetMark { value, mask }
        }
        ["DNAT", "--to-destination", to] => Target::Dnat(to.parse().ok()?),
        [chain] => Target::Jump((*chain).to_owned()),
        _ => return None,
    })
}

fn address(text: &str) -> Option<Address> {
    let host = text.parse::<IpAddr>().ok().map(Address::Host);
    host.or_else(|| text.parse::<IpNetwork>().ok().map(Address::Net))
}

fn mark(text: &str, negated: bool) -> Option<Match> {
    let (value, mask) = value_and_mask(text)?;
    Some(Match::Mark { value, mask, negated })
}

fn value_and_mask(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        // a leading zero would be octal to the tool
        None if text.len() > 1 && text.starts_with('0') => None,
        None => text.parse().ok(),
    }
}

fn ct_states(text: &str) -> Option<CtState> {
    text.split(',').map(ct_state).collect::<Option<Vec<_>>>()?.into_iter().reduce(|one, other| one | other)
}

fn ct_state(name: &str) -> Option<CtState> {
    CtState::NAMES.into_iter().find(|(_, known)| *known == name).map(|(state, _)| state)
}
