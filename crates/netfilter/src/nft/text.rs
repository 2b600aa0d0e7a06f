// SPDX-License-Identifier: Apache-2.0
//! Rules as text in nft's language.

use super::{Rule, Statement, Verdict};
use crate::error::{Error, Result};

impl Rule {
    /// The rule in nft's language, as one would write it behind `add rule <table> <chain>`.
    ///
    /// # Errors
    /// [`Error::InvalidText`] if the comment or a raw word cannot stand on a line.
    pub fn to_text(&self) -> Result<String> {
        let mut words = Vec::new();
        for statement in &self.statements {
            words.push(statement.to_text()?);
        }
        if let Some(comment) = &self.comment {
            words.push(format!("comment {}", string(comment)?));
        }
        Ok(words.join(" "))
    }
}

/// The text of [`Rule::to_text`]; what cannot stand on a line is shown as data.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.to_text() {
            Ok(text) => f.write_str(&text),
            Err(_) => write!(f, "{self:?}"),
        }
    }
}

impl Statement {
    fn to_text(&self) -> Result<String> {
        let op = |negated: &bool| if *negated { "!=" } else { "==" };
        let ip = |net: &ipnetwork::IpNetwork| if net.is_ipv4() { "ip" } else { "ip6" };
        Ok(match self {
            Self::SourceAddress { net, negated } => format!("{} saddr {} {net}", ip(net), op(negated)),
            Self::DestinationAddress { net, negated } => format!("{} daddr {} {net}", ip(net), op(negated)),
            Self::EtherSource { address, negated } => {
                let octets: Vec<String> = address.iter().map(|octet| format!("{octet:02x}")).collect();
                format!("ether saddr {} {}", op(negated), octets.join(":"))
            }
            Self::InInterface { name, negated } => format!("iifname {} {}", op(negated), string(name)?),
            Self::OutInterface { name, negated } => format!("oifname {} {}", op(negated), string(name)?),
            Self::DestinationPort { protocol, port, negated } => {
                format!("{} dport {} {port}", protocol.name(), op(negated))
            }
            Self::DestinationLocal => "fib daddr type local".to_owned(),
            Self::ConntrackState(states) => format!("ct state {}", states.to_string().to_lowercase()),
            Self::Marked(bits) => format!("meta mark & {bits:#010x} == {bits:#010x}"),
            Self::SetMark(bits) => format!("meta mark set meta mark | {bits:#010x}"),
            Self::Counter => "counter".to_owned(),
            Self::Verdict(Verdict::Accept) => "accept".to_owned(),
            Self::Verdict(Verdict::Drop) => "drop".to_owned(),
            Self::Verdict(Verdict::Return) => "return".to_owned(),
            Self::Verdict(Verdict::Jump(chain)) => format!("jump {chain}"),
            Self::Verdict(Verdict::Goto(chain)) => format!("goto {chain}"),
            Self::Masquerade => "masquerade".to_owned(),
            Self::Dnat(to) => format!("dnat to {to}"),
            Self::Raw(words) => raw(words)?,
        })
    }
}

/// A string in quotes; it has no escapes.
pub(crate) fn string(text: &str) -> Result<String> {
    if text.contains(|c: char| c.is_control() || c == '"') {
        return Err(Error::InvalidText { kind: "nft string", value: text.to_owned() });
    }
    Ok(format!("\"{text}\""))
}

/// Words of the user must not end the command.
fn raw(words: &[String]) -> Result<String> {
    let text = words.join(" ");
    if text.contains(|c: char| c.is_control() || c == ';') {
        return Err(Error::InvalidText { kind: "nft condition", value: text });
    }
    Ok(text)
}
