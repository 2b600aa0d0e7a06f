// SPDX-License-Identifier: Apache-2.0
//! Rules of either dialect, their tables and places, and what is needed to look for them. This room is data: it must never
//! know what there is already, nor how anything is read or written.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::{nft, xt};

/// Names a table of either dialect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TableRef {
    /// A table of the iptables dialect.
    Xt(xt::Family, xt::Table),
    /// A native table.
    Nft(nft::Family, String),
}

impl TableRef {
    /// The nf_tables family that the table lives in.
    #[must_use]
    pub fn family(&self) -> nft::Family {
        match self {
            Self::Xt(family, _) => (*family).into(),
            Self::Nft(family, _) => *family,
        }
    }

    /// The name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Xt(_, table) => table.name(),
            Self::Nft(_, name) => name,
        }
    }

    /// Reads what `Display` writes and a space, for tables of the iptables dialect, and gives the rest of the line.
    pub(crate) fn read(line: &str) -> Option<(Self, &str)> {
        let families = [xt::Family::Ipv4, xt::Family::Ipv6].into_iter();
        let mut tables = families
            .flat_map(|family| [xt::Table::Filter, xt::Table::Nat].map(|table| Self::Xt(family, table)));
        tables.find_map(|table| {
            let rest = line.strip_prefix(&format!("{table} "))?;
            Some((table, rest))
        })
    }
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family().name(), self.name())
    }
}

/// A rule of either dialect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AnyRule {
    /// Of the iptables dialect.
    Xt(xt::Rule),
    /// Of the native dialect.
    Nft(nft::Rule),
}

impl AnyRule {
    /// The canonical form in a table, equal for rules that say the same; `None` if only a tool knows what the rule says or
    /// how to write it.
    pub(crate) fn canon(self, table: &TableRef) -> Option<Self> {
        match (self, table) {
            (Self::Xt(rule), TableRef::Xt(family, _)) => rule.canon(*family).map(Self::Xt),
            (Self::Nft(rule), table) => rule.canon(table.family()).map(Self::Nft),
            (Self::Xt(_), TableRef::Nft(..)) => None,
        }
    }

    /// The chain that it jumps or goes to.
    pub(crate) fn jump(&self) -> Option<&str> {
        match self {
            Self::Xt(rule) => rule.target.jump(),
            Self::Nft(rule) => rule.jump(),
        }
    }

    pub(crate) fn comment(&self) -> Option<&str> {
        match self {
            Self::Xt(rule) => rule.comment(),
            Self::Nft(rule) => rule.comment.as_deref(),
        }
    }

    /// What a rule of the iptables dialect says in the words of `iptables -S`.
    pub(crate) fn xt_text(&self) -> Option<String> {
        if let Self::Xt(rule) = self { Some(rule.to_string()) } else { None }
    }
}

impl From<xt::Rule> for AnyRule {
    fn from(rule: xt::Rule) -> Self {
        Self::Xt(rule)
    }
}

impl From<nft::Rule> for AnyRule {
    fn from(rule: nft::Rule) -> Self {
        Self::Nft(rule)
    }
}

impl fmt::Display for AnyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xt(rule) => rule.fmt(f),
            Self::Nft(rule) => rule.fmt(f),
        }
    }
}

/// Where a missing rule is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Before all rules (`-I chain 1`).
    Head,
    /// Behind all rules (`-A chain`).
    Tail,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "head",
            Self::Tail => "tail",
        })
    }
}

/// Identity of an existing rule within its chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RuleId {
    /// nf_tables rule handle.
    Handle(u64),
    /// The rule as the iptables tool lists it (words after `-A chain`), where rules have no handles.
    Listed(Vec<String>),
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handle(handle) => write!(f, "handle {handle}"),
            Self::Listed(words) => f.write_str(&words.join(" ")),
        }
    }
}

/// A rule that must be, or must not be, and its canonical form. Two are equal if they say the same.
#[derive(Debug)]
pub struct Wanted {
    rule: AnyRule,
    /// `None` if only a tool knows what the rule says or how to write it.
    canon: Option<AnyRule>,
}

impl Wanted {
    pub(crate) fn new(rule: AnyRule, table: &TableRef) -> Self {
        let canon = rule.clone().canon(table);
        Self { rule, canon }
    }

    /// The rule as it was given.
    #[must_use]
    pub fn rule(&self) -> &AnyRule {
        &self.rule
    }

    pub(crate) fn canon(&self) -> Option<&AnyRule> {
        self.canon.as_ref()
    }

    /// True if the rule has words that only the tool understands, or that it would refuse in its own words.
    pub(crate) fn needs_tool(&self) -> bool {
        match &self.rule {
            AnyRule::Xt(_) => self.canon.is_none(),
            AnyRule::Nft(rule) => rule.is_raw(),
        }
    }
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        match (&self.canon, &other.canon) {
            (None, None) => self.rule == other.rule,
            (ours, theirs) => ours == theirs,
        }
    }
}

impl Eq for Wanted {}

impl Hash for Wanted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.canon {
            Some(canon) => canon.hash(state),
            None => self.rule.hash(state),
        }
    }
}
