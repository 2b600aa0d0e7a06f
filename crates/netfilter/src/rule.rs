// SPDX-License-Identifier: Apache-2.0
//! Rules of either dialect, and what is needed to look for them. This room is data: it must never know what there is
//! already, nor how anything is read or written.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::batch::TableRef;
use crate::{nft, xt};

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
