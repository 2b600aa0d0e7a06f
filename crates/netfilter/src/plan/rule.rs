// SPDX-License-Identifier: Apache-2.0
//! Rules as the planner compares them: wanted ones, prepared once for a call, and those that a reader found.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use ipnetwork::IpNetwork;

use crate::batch::{AnyRule, Change, RuleId, TableRef};
use crate::xt::Extension;
use crate::{nft, xt};

/// A change with its rule prepared.
pub(crate) type Prepared = Change<Rc<Wanted>>;

impl Prepared {
    pub(crate) fn new(Change { table, op }: &Change) -> Self {
        Self { table: table.clone(), op: op.map(|rule| Rc::new(Wanted::new(rule.clone(), table))) }
    }
}

/// The canonical form of a rule of either dialect: equal for rules that say the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Canon {
    Xt(xt::Canon),
    Nft(nft::Rule),
}

impl Canon {
    fn comment(&self) -> Option<&str> {
        match self {
            Self::Xt(canon) => canon.extensions.iter().find_map(|extension| {
                if let Extension::Comment(text) = extension { Some(text.as_str()) } else { None }
            }),
            Self::Nft(rule) => rule.comment.as_deref(),
        }
    }

    fn jump(&self) -> Option<&str> {
        match self {
            Self::Xt(canon) => canon.target.jump(),
            Self::Nft(rule) => rule.jump(),
        }
    }

    /// What the rule says in the words of `iptables -S`, the same for rules that are equal; `None` if it is of another
    /// dialect, or cannot be said.
    pub(crate) fn text(&self) -> Option<String> {
        let Self::Xt(canon) = self else { return None };
        canon.to_rule().map(|rule| rule.to_string())
    }
}

/// A rule that must be, prepared for a call. Two are equal if they say the same.
#[derive(Debug)]
pub struct Wanted {
    rule: AnyRule,
    /// `None` if only a tool knows what the rule says or how to write it.
    canon: Option<Rc<Canon>>,
}

impl Wanted {
    pub(crate) fn new(rule: AnyRule, table: &TableRef) -> Self {
        let canon = match (&rule, table) {
            (AnyRule::Xt(rule), TableRef::Xt(family, _)) => {
                xt::Canon::of(rule).filter(|canon| canon.fits(*family)).map(Canon::Xt)
            }
            (AnyRule::Nft(rule), table) => rule.canon(table.family()).map(Canon::Nft),
            (AnyRule::Xt(_), TableRef::Nft(..)) => None,
        };
        Self { rule, canon: canon.map(Rc::new) }
    }

    /// The rule as it was given.
    #[must_use]
    pub fn rule(&self) -> &AnyRule {
        &self.rule
    }

    pub(crate) fn canon(&self) -> Option<&Canon> {
        self.canon.as_deref()
    }

    /// True if the rule has words that only the tool understands, or that it would refuse in its own words.
    pub(crate) fn needs_tool(&self) -> bool {
        match &self.rule {
            AnyRule::Xt(_) => self.canon.is_none(),
            AnyRule::Nft(rule) => rule.is_raw(),
        }
    }

    pub(crate) fn jump(&self) -> Option<&str> {
        match &self.rule {
            AnyRule::Xt(rule) => rule.target.jump(),
            AnyRule::Nft(rule) => rule.jump(),
        }
    }

    pub(crate) fn comment(&self) -> Option<&str> {
        match &self.rule {
            AnyRule::Xt(rule) => rule.comment(),
            AnyRule::Nft(rule) => rule.comment.as_deref(),
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

/// An existing rule, as far as it could be read.
#[derive(Debug, Clone)]
pub struct RuleInfo {
    /// Identity, for [`crate::Op::DeleteFound`].
    pub id: RuleId,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Known(Rc<Canon>),
    /// With something in it that is unknown here: never equal to a wanted rule.
    Foreign {
        comment: Option<String>,
        jump: Option<String>,
    },
}

impl RuleInfo {
    pub(crate) fn known(id: RuleId, canon: Canon) -> Self {
        Self { id, content: Content::Known(Rc::new(canon)) }
    }

    pub(crate) fn foreign(id: RuleId, comment: Option<String>, jump: Option<String>) -> Self {
        Self { id, content: Content::Foreign { comment, jump } }
    }

    pub(crate) fn canon(&self) -> Option<&Rc<Canon>> {
        if let Content::Known(canon) = &self.content { Some(canon) } else { None }
    }

    /// The comment (`-m comment` or an nft rule comment).
    #[must_use]
    pub fn comment(&self) -> Option<&str> {
        match &self.content {
            Content::Known(canon) => canon.comment(),
            Content::Foreign { comment, .. } => comment.as_deref(),
        }
    }

    /// The chain it jumps or goes to.
    #[must_use]
    pub fn jump(&self) -> Option<&str> {
        match &self.content {
            Content::Known(canon) => canon.jump(),
            Content::Foreign { jump, .. } => jump.as_deref(),
        }
    }

    /// The whole rule in the iptables dialect in its [`xt::Rule::canonical`] form, if it is of that dialect and nothing in it
    /// is unknown here.
    #[must_use]
    pub fn xt(&self) -> Option<xt::Rule> {
        self.xt_canon()?.to_rule()
    }

    /// The same for the native dialect, without counters.
    #[must_use]
    pub fn nft(&self) -> Option<&nft::Rule> {
        if let Canon::Nft(rule) = &**self.canon()? { Some(rule) } else { None }
    }

    /// The source address that a rule of the iptables dialect is limited to.
    #[must_use]
    pub fn source(&self) -> Option<IpNetwork> {
        self.xt_canon()?.source.filter(|(_, negated)| !negated).map(|(net, _)| net)
    }

    fn xt_canon(&self) -> Option<&xt::Canon> {
        if let Canon::Xt(canon) = &**self.canon()? { Some(canon) } else { None }
    }

    /// Whether a rule that only the tool can compare may be this one: it ends in the same target and has the same comment.
    pub(crate) fn may_be(&self, wanted: &Wanted) -> bool {
        let same_jump = wanted.jump().is_none() || wanted.jump() == self.jump();
        same_jump && wanted.comment() == self.comment()
    }
}
