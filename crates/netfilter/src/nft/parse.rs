// SPDX-License-Identifier: Apache-2.0
//! The simple forms of nft conditions that users write into configurations.

use super::{Protocol, Statement};

impl Statement {
    /// The conditions of an nft match text given as words (`["ip", "saddr", "!=", "10.0.0.0/8"]`). If any of it is not one
    /// of the simple forms, all of it is one [`Statement::Raw`].
    #[must_use]
    pub fn conditions(words: &[String]) -> Vec<Self> {
        let text = words.join(" ");
        let tokens: Vec<&str> = text.split_whitespace().collect();
        if tokens.is_empty() {
            return Vec::new();
        }
        simple(&tokens).unwrap_or_else(|| vec![Self::Raw(words.to_vec())])
    }
}

fn simple<'t>(mut tokens: &'t [&'t str]) -> Option<Vec<Statement>> {
    let mut statements = Vec::new();
    while !tokens.is_empty() {
        let (statement, rest) = one(tokens)?;
        statements.push(statement);
        tokens = rest;
    }
    Some(statements)
}

/// The first condition and what follows it.
fn one<'t>(tokens: &'t [&'t str]) -> Option<(Statement, &'t [&'t str])> {
    match tokens {
        ["fib", "daddr", "type", "local", rest @ ..] => Some((Statement::DestinationLocal, rest)),
        ["iifname", rest @ ..] => {
            let (value, negated, rest) = operand(rest)?;
            Some((Statement::InInterface { name: interface(value)?, negated }, rest))
        }
        ["oifname", rest @ ..] => {
            let (value, negated, rest) = operand(rest)?;
            Some((Statement::OutInterface { name: interface(value)?, negated }, rest))
        }
        [family @ ("ip" | "ip6"), field @ ("saddr" | "daddr"), rest @ ..] => {
            let (value, negated, rest) = operand(rest)?;
            let net: ipnetwork::IpNetwork = value.parse().ok()?;
            let host_bits = net.ip() != net.network();
            (net.is_ipv4() == (*family == "ip") && !host_bits && net.prefix() > 0).then_some(())?;
            let statement = match *field {
                "saddr" => Statement::SourceAddress { net, negated },
                _ => Statement::DestinationAddress { net, negated },
            };
            Some((statement, rest))
        }
        [protocol @ ("tcp" | "udp" | "sctp"), "dport", rest @ ..] => {
            let (value, negated, rest) = operand(rest)?;
            let protocol: Protocol = protocol.parse().ok()?;
            Some((Statement::DestinationPort { protocol, port: value.parse().ok()?, negated }, rest))
        }
        _ => None,
    }
}

fn operand<'t>(tokens: &'t [&'t str]) -> Option<(&'t str, bool, &'t [&'t str])> {
    match tokens {
        ["==", value, rest @ ..] => Some((value, false, rest)),
        ["!=", value, rest @ ..] => Some((value, true, rest)),
        [value, rest @ ..] => Some((value, false, rest)),
        [] => None,
    }
}

fn interface(value: &str) -> Option<String> {
    let name = match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?,
        None => value,
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!name.is_empty() && name.len() < 16 && name.chars().all(plain)).then(|| name.to_owned())
}
