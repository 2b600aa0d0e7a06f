// SPDX-License-Identifier: Apache-2.0
//! What is still to be done, as data: the steps of one transaction.

use std::fmt;
use std::sync::Arc;

use crate::nft::Chain;
use crate::rule::{Position, RuleId, TableRef, Wanted};

/// One step of a transaction, in one table. `Display` says it to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The table.
    pub table: TableRef,
    /// What is done to it.
    pub action: Action,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Creates the table.
    AddTable {
        /// Its comment.
        comment: Option<String>,
    },
    /// Creates a chain.
    AddChain(Chain),
    /// Adds a rule.
    AddRule {
        /// The chain.
        chain: String,
        /// The rule.
        rule: Arc<Wanted>,
        /// Its place.
        at: Position,
    },
    /// Deletes a rule.
    DeleteRule {
        /// The chain.
        chain: String,
        /// The rule's identity.
        id: RuleId,
    },
    /// Deletes all rules of a chain.
    Flush(String),
    /// Deletes a chain with its rules.
    DeleteChain(String),
}

impl Step {
    /// For error messages: what is done, without the rule.
    pub(crate) fn describe(&self) -> String {
        let table = &self.table;
        match &self.action {
            Action::AddTable { .. } => format!("create table \"{table}\""),
            Action::AddChain(chain) => format!("create chain \"{}\" in table \"{table}\"", chain.name),
            Action::AddRule { chain, .. } => format!("add rule to chain \"{chain}\" of table \"{table}\""),
            Action::DeleteRule { chain, .. } => {
                format!("delete rule from chain \"{chain}\" of table \"{table}\"")
            }
            Action::Flush(chain) => format!("flush chain \"{chain}\" of table \"{table}\""),
            Action::DeleteChain(chain) => format!("delete chain \"{chain}\" of table \"{table}\""),
        }
    }

    /// True if something that was there goes.
    pub(crate) fn deletes(&self) -> bool {
        match self.action {
            Action::DeleteRule { .. } | Action::Flush(_) | Action::DeleteChain(_) => true,
            Action::AddTable { .. } | Action::AddChain(_) | Action::AddRule { .. } => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())?;
        match &self.action {
            Action::AddRule { rule, at, .. } => write!(f, ", {at}: {}", rule.rule()),
            Action::DeleteRule { id, .. } => write!(f, ": {id}"),
            Action::AddTable { .. } | Action::AddChain(_) | Action::Flush(_) | Action::DeleteChain(_) => {
                Ok(())
            }
        }
    }
}
