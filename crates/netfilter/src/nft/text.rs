// SPDX-License-Identifier: Apache-2.0
//! Steps as text for `nft -f -`, for rules with words that only nft understands.

use super::{Chain, Rule, Statement};
use crate::batch::{Position, RuleId, TableRef};
use crate::error::{Error, Result};
use crate::plan::{Action, AnyRule};

/// Commands for `nft`, one per line.
#[derive(Debug, Default)]
pub(crate) struct Script {
    text: String,
}

impl Script {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn push(&mut self, table: &TableRef, action: &Action) -> Result<()> {
        let line = match action {
            Action::AddTable { comment } => format!("add table {table}{}", block(&[], comment.as_deref())?),
            Action::AddChain(chain) => add_chain(table, chain)?,
            Action::AddRule { chain, rule: AnyRule::Nft(rule), at } => {
                let verb = match at {
                    Position::Head => "insert",
                    Position::Tail => "add",
                };
                format!("{verb} rule {table} {chain} {}", rule.to_text()?)
            }
            Action::DeleteRule { chain, id: RuleId::Handle(handle) } => {
                format!("delete rule {table} {chain} handle {handle}")
            }
            Action::AddRule { rule: AnyRule::Xt(_), .. }
            | Action::DeleteRule { id: RuleId::Listed(_), .. } => {
                return Err(Error::InvalidText { kind: "rule", value: format!("{action:?}") });
            }
            Action::Flush { chain } => format!("flush chain {table} {chain}"),
            Action::DeleteChain { chain } => {
                format!("flush chain {table} {chain}\ndelete chain {table} {chain}")
            }
        };
        self.text.push_str(&line);
        self.text.push('\n');
        Ok(())
    }
}

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
            Self::Counter => "counter".to_owned(),
            Self::Accept => "accept".to_owned(),
            Self::Drop => "drop".to_owned(),
            Self::Return => "return".to_owned(),
            Self::Jump(chain) => format!("jump {chain}"),
            Self::Goto(chain) => format!("goto {chain}"),
            Self::Masquerade => "masquerade".to_owned(),
            Self::Dnat(to) => format!("dnat to {to}"),
            Self::Raw(words) => raw(words)?,
        })
    }
}

fn add_chain(table: &TableRef, chain: &Chain) -> Result<String> {
    let hook = chain.hook.map(|hook| {
        let policy = hook.policy.map(|policy| match policy {
            super::Policy::Accept => " policy accept ;",
            super::Policy::Drop => " policy drop ;",
        });
        let (kind, point) = (hook.chain_type.name(), hook.point.name());
        format!("type {kind} hook {point} priority {} ;{}", hook.priority, policy.unwrap_or_default())
    });
    let block = block(hook.as_slice(), chain.comment.as_deref())?;
    Ok(format!("add chain {table} {}{block}", chain.name))
}

fn block(parts: &[String], comment: Option<&str>) -> Result<String> {
    let mut parts = parts.to_vec();
    if let Some(comment) = comment {
        parts.push(format!("comment {} ;", string(comment)?));
    }
    Ok(if parts.is_empty() { String::new() } else { format!(" {{ {} }}", parts.join(" ")) })
}

/// nft strings have no escapes.
fn string(text: &str) -> Result<String> {
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
