// SPDX-License-Identifier: Apache-2.0
//! What must be, as data: a list of changes to tables, chains and rules of both dialects.
//!
//! A batch does nothing by itself and can be compared in tests. [`crate::Engine::apply`] makes it true. This
//! room is data: it must never know what there is already, nor how anything is read or written.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::rule::{AnyRule, Position, RuleId, TableRef, Wanted};
use crate::{nft, xt};

/// An ordered list of changes, applied as one transaction wherever the transport allows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds changes to one table of the iptables dialect (`iptables -t nat ...`).
    pub fn xt(&mut self, family: xt::Family, table: xt::Table) -> XtChanges<'_> {
        Changes { batch: self, table: TableRef::Xt(family, table), _dialect: PhantomData }
    }

    /// Adds changes to one native nf_tables table (`nft ... inet mytable`).
    pub fn nft(&mut self, family: nft::Family, table: impl Into<String>) -> NftChanges<'_> {
        Changes { batch: self, table: TableRef::Nft(family, table.into()), _dialect: PhantomData }
    }

    /// The changes in the order in which they were added.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// True if there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Appends the changes of `other` behind those of this batch.
    pub fn extend(&mut self, other: Batch) {
        self.changes.extend(other.changes);
    }

    /// The same in the native table of that name: what is in the iptables dialect in the native one. `None` if a rule has
    /// no such form. Built-in chains are not made by themselves there.
    #[must_use]
    pub fn native(&self, table: &str) -> Option<Self> {
        let native = |change: &Change| {
            let TableRef::Xt(family, _) = change.table else { return Some(change.clone()) };
            let (table, mut op) = (TableRef::Nft(family.into(), table.to_owned()), change.op.clone());
            if let Op::EnsureRule { rule, .. } | Op::AppendRule { rule, .. } | Op::DeleteRule { rule, .. } =
                &mut op
                && let AnyRule::Xt(said) = rule.rule()
            {
                *rule = Arc::new(Wanted::new(said.native()?.into(), &table));
            }
            Some(Change { table, op })
        };
        Some(Self { changes: self.changes.iter().map(native).collect::<Option<_>>()? })
    }
}

/// One change of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The table.
    pub table: TableRef,
    /// What is changed.
    pub op: Op,
}

/// An operation on one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// The table exists. In the iptables dialect tables appear by themselves.
    EnsureTable {
        /// Comment given to the table when it is created.
        comment: Option<String>,
    },
    /// The chain exists. An existing chain is left as it is.
    EnsureChain(nft::Chain),
    /// The chain contains this rule; if not it is added at `at`. If the rule jumps to a chain that does not exist yet the
    /// rule cannot exist either, and nothing is searched.
    EnsureRule {
        /// Chain of the rule.
        chain: String,
        /// The rule.
        rule: Arc<Wanted>,
        /// Where it goes when it is missing.
        at: Position,
    },
    /// Appends the rule, present or not.
    AppendRule {
        /// Chain of the rule.
        chain: String,
        /// The rule.
        rule: Arc<Wanted>,
    },
    /// No rule of the chain equals this one (counters aside). A missing rule, chain or table is fine.
    DeleteRule {
        /// Chain of the rule.
        chain: String,
        /// The rule.
        rule: Arc<Wanted>,
    },
    /// No rule of the chain belongs to `owner`. A missing chain or table is fine.
    DeleteRulesWhere {
        /// Chain that is searched.
        chain: String,
        /// Whose rules go.
        owner: Owner,
    },
    /// Deletes one rule found by [`crate::Engine::rules`]. An error if it is gone meanwhile.
    DeleteFound {
        /// Chain of the rule.
        chain: String,
        /// Its identity.
        id: RuleId,
    },
    /// The chain has no rules. A missing chain or table is fine.
    FlushChain(String),
    /// The chain and its rules do not exist. A missing chain or table is fine; one that rules still jump to is an error.
    DeleteChain(String),
    /// As [`Op::DeleteChain`], but a chain that rules still jump to (after the changes before this one) is left alone
    /// with its rules.
    DeleteChainIfUnreferenced(String),
}

impl Op {
    /// The rule that is to be added or deleted.
    pub(crate) fn rule(&self) -> Option<&Wanted> {
        let (Self::EnsureRule { rule, .. } | Self::AppendRule { rule, .. } | Self::DeleteRule { rule, .. }) =
            self
        else {
            return None;
        };
        Some(rule)
    }
}

/// Tells whose a rule is by what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The comment equals this text.
    Comment(String),
    /// The comment starts with this text.
    CommentPrefix(String),
    /// The rule jumps or goes to this chain.
    JumpsTo(String),
    /// The same, and the comment equals this text: others may have a chain of this name, too.
    JumpsToWith {
        /// The chain.
        chain: String,
        /// The comment.
        comment: String,
    },
}

impl Owner {
    pub(crate) fn owns(&self, comment: Option<&str>, jump: Option<&str>) -> bool {
        match self {
            Self::Comment(text) => comment == Some(text),
            Self::CommentPrefix(text) => comment.is_some_and(|c| c.starts_with(text.as_str())),
            Self::JumpsTo(chain) => jump == Some(chain),
            Self::JumpsToWith { chain, comment: text } => jump == Some(chain) && comment == Some(text),
        }
    }
}

/// Adds changes of one table to a [`Batch`], with rules of its dialect.
#[derive(Debug)]
pub struct Changes<'a, R> {
    batch: &'a mut Batch,
    table: TableRef,
    _dialect: PhantomData<R>,
}

/// Adds changes of one table of the iptables dialect to a [`Batch`].
pub type XtChanges<'a> = Changes<'a, xt::Rule>;

/// Adds changes of one native nf_tables table to a [`Batch`].
pub type NftChanges<'a> = Changes<'a, nft::Rule>;

impl XtChanges<'_> {
    /// [`Op::EnsureChain`] (`-N`, existing is fine).
    pub fn ensure_chain(self, name: impl Into<String>) -> Self {
        self.push(Op::EnsureChain(nft::Chain::regular(name)))
    }
}

impl NftChanges<'_> {
    /// [`Op::EnsureTable`] (`add table`).
    pub fn ensure_table(self, comment: Option<&str>) -> Self {
        self.push(Op::EnsureTable { comment: comment.map(str::to_owned) })
    }

    /// [`Op::EnsureChain`] (`add chain`).
    pub fn ensure_chain(self, chain: nft::Chain) -> Self {
        self.push(Op::EnsureChain(chain))
    }
}

impl<R: Into<AnyRule>> Changes<'_, R> {
    fn push(self, op: Op) -> Self {
        self.batch.changes.push(Change { table: self.table.clone(), op });
        self
    }

    fn wanted(&self, rule: R) -> Arc<Wanted> {
        Arc::new(Wanted::new(rule.into(), &self.table))
    }

    /// [`Op::EnsureRule`].
    pub fn ensure_rule(self, chain: impl Into<String>, rule: R, at: Position) -> Self {
        let rule = self.wanted(rule);
        self.push(Op::EnsureRule { chain: chain.into(), rule, at })
    }

    /// [`Op::AppendRule`].
    pub fn append_rule(self, chain: impl Into<String>, rule: R) -> Self {
        let rule = self.wanted(rule);
        self.push(Op::AppendRule { chain: chain.into(), rule })
    }

    /// [`Op::DeleteRule`].
    pub fn delete_rule(self, chain: impl Into<String>, rule: R) -> Self {
        let rule = self.wanted(rule);
        self.push(Op::DeleteRule { chain: chain.into(), rule })
    }

    /// [`Op::DeleteRulesWhere`].
    pub fn delete_rules_where(self, chain: impl Into<String>, owner: Owner) -> Self {
        self.push(Op::DeleteRulesWhere { chain: chain.into(), owner })
    }

    /// [`Op::DeleteFound`].
    pub fn delete_found(self, chain: impl Into<String>, id: RuleId) -> Self {
        self.push(Op::DeleteFound { chain: chain.into(), id })
    }

    /// [`Op::FlushChain`].
    pub fn flush_chain(self, chain: impl Into<String>) -> Self {
        self.push(Op::FlushChain(chain.into()))
    }

    /// [`Op::DeleteChain`].
    pub fn delete_chain(self, chain: impl Into<String>) -> Self {
        self.push(Op::DeleteChain(chain.into()))
    }

    /// [`Op::DeleteChainIfUnreferenced`].
    pub fn delete_chain_if_unreferenced(self, chain: impl Into<String>) -> Self {
        self.push(Op::DeleteChainIfUnreferenced(chain.into()))
    }
}
