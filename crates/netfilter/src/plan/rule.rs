// SPDX-License-Identifier: Apache-2.0
//! Rules that a reader found.

use std::rc::Rc;

use ipnetwork::IpNetwork;

use crate::rule::{AnyRule, RuleId, Wanted};
use crate::xt::Match;
use crate::{nft, xt};

/// An existing rule, as far as it could be read.
#[derive(Debug, Clone)]
pub struct RuleInfo {
    /// Identity, for [`crate::Op::DeleteFound`].
    pub id: RuleId,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Known(Rc<AnyRule>),
    /// With something in it that is unknown here: never equal to a wanted rule.
    Foreign {
        comment: Option<String>,
        jump: Option<String>,
    },
}

impl RuleInfo {
    pub(crate) fn known(id: RuleId, canon: AnyRule) -> Self {
        Self { id, content: Content::Known(Rc::new(canon)) }
    }

    pub(crate) fn foreign(id: RuleId, comment: Option<String>, jump: Option<String>) -> Self {
        Self { id, content: Content::Foreign { comment, jump } }
    }

    pub(crate) fn canon(&self) -> Option<&Rc<AnyRule>> {
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
    pub fn xt(&self) -> Option<&xt::Rule> {
        if let AnyRule::Xt(rule) = &**self.canon()? { Some(rule) } else { None }
    }

    /// The same for the native dialect, without counters.
    #[must_use]
    pub fn nft(&self) -> Option<&nft::Rule> {
        if let AnyRule::Nft(rule) = &**self.canon()? { Some(rule) } else { None }
    }

    /// The source address that a rule of the iptables dialect is limited to.
    #[must_use]
    pub fn source(&self) -> Option<IpNetwork> {
        self.xt()?.matches.iter().find_map(|condition| {
            let Match::Source { address, negated: false } = condition else { return None };
            Some(address.net())
        })
    }

    /// Whether a rule that only the tool can compare may be this one: it ends in the same target and has the same comment.
    pub(crate) fn may_be(&self, wanted: &Wanted) -> bool {
        let same_jump = wanted.rule().jump().is_none() || wanted.rule().jump() == self.jump();
        same_jump && wanted.rule().comment() == self.comment()
    }
}
