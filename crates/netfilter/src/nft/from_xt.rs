// SPDX-License-Identifier: Apache-2.0
//! Rules of the iptables dialect in this one.

use super::{Rule, Statement, Verdict};
use crate::xt::{self, Match, Target};

impl xt::Rule {
    /// The rule that says the same in the native dialect. `None` for what that cannot say, or not in one rule without a
    /// set: marks that are more than some bits to be set, several ports, names with a wildcard, words that only the tool
    /// understands.
    #[must_use]
    pub fn native(&self) -> Option<Rule> {
        let mut statements = Vec::new();
        for condition in &self.matches {
            statements.extend(condition.native()?);
        }
        statements.push(self.target.native()?);
        let rule = Rule::new(statements);
        Some(match self.comment() {
            Some(comment) => rule.with_comment(comment),
            None => rule,
        })
    }
}

impl Match {
    /// The statement, or nothing for a comment, which is the rule's.
    fn native(&self) -> Option<Option<Statement>> {
        let is_whole = |name: &String| !name.ends_with('+');
        Some(Some(match self {
            Self::Source { address, negated } => {
                Statement::SourceAddress { net: address.net(), negated: *negated }
            }
            Self::Destination { address, negated } => {
                Statement::DestinationAddress { net: address.net(), negated: *negated }
            }
            Self::InInterface { name, negated } if is_whole(name) => {
                Statement::InInterface { name: name.clone(), negated: *negated }
            }
            Self::OutInterface { name, negated } if is_whole(name) => {
                Statement::OutInterface { name: name.clone(), negated: *negated }
            }
            Self::DestinationPort { protocol, port } => Statement::destination_port(*protocol, *port),
            Self::Comment(_) => return Some(None),
            Self::ConntrackState(states) => Statement::ConntrackState(*states),
            Self::DestinationLocal => Statement::DestinationLocal,
            Self::Mark { value, mask, negated: false } if value == mask => Statement::Marked(*value),
            Self::InInterface { .. }
            | Self::OutInterface { .. }
            | Self::Protocol { .. }
            | Self::DestinationPorts { .. }
            | Self::Mark { .. }
            | Self::Raw(_) => return None,
        }))
    }
}

impl Target {
    fn native(&self) -> Option<Statement> {
        Some(match self {
            Self::Accept => Verdict::Accept.into(),
            Self::Drop => Verdict::Drop.into(),
            Self::Return => Verdict::Return.into(),
            Self::Jump(chain) => Verdict::Jump(chain.clone()).into(),
            Self::Masquerade => Statement::Masquerade,
            Self::Dnat(to) => Statement::Dnat(*to),
            Self::SetMark { value, mask } if value == mask => Statement::SetMark(*value),
            Self::SetMark { .. } => return None,
        })
    }
}
