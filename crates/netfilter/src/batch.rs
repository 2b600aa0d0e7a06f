// SPDX-License-Identifier: Apache-2.0
//! What must be, as data: a list of changes to tables, chains and rules of both dialects.
//!
//! A batch does nothing by itself and can be compared in tests. [`crate::Engine::apply`] makes it true.

use ipnetwork::IpNetwork;

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
        XtChanges { batch: self, family, table }
    }

    /// Adds changes to one native nf_tables table (`nft ... inet mytable`).
    pub fn nft(&mut self, family: nft::Family, table: impl Into<String>) -> NftChanges<'_> {
        NftChanges { batch: self, family, table: table.into() }
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
}

/// One change of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// In the iptables dialect.
    Xt {
        /// IPv4 (`iptables`) or IPv6 (`ip6tables`).
        family: xt::Family,
        /// The table.
        table: xt::Table,
        /// What is changed.
        op: Op<xt::Rule>,
    },
    /// In the native nf_tables dialect.
    Nft {
        /// Family of the table.
        family: nft::Family,
        /// Name of the table.
        table: String,
        /// What is changed.
        op: Op<nft::Rule>,
    },
}

impl Change {
    /// The table that is changed.
    #[must_use]
    pub fn table(&self) -> TableRef {
        match self {
            Self::Xt { family, table, .. } => TableRef::Xt(*family, *table),
            Self::Nft { family, table, .. } => TableRef::Nft(*family, table.clone()),
        }
    }
}

/// An operation on one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op<R> {
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
        rule: R,
        /// Where it goes when it is missing.
        at: Position,
    },
    /// Appends the rule, present or not.
    AppendRule {
        /// Chain of the rule.
        chain: String,
        /// The rule.
        rule: R,
    },
    /// No rule of the chain equals this one (counters aside). A missing rule, chain or table is fine.
    DeleteRule {
        /// Chain of the rule.
        chain: String,
        /// The rule.
        rule: R,
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
    FlushChain {
        /// Name of the chain.
        chain: String,
    },
    /// The chain and its rules do not exist. A missing chain or table is fine; one that rules still jump to is an error
    /// ([`crate::Error::is_busy`]).
    DeleteChain {
        /// Name of the chain.
        chain: String,
    },
    /// As [`Op::DeleteChain`], but a chain that rules still jump to (after the changes before this one) is left alone
    /// with its rules.
    DeleteChainIfUnreferenced {
        /// Name of the chain.
        chain: String,
    },
}

/// Where a missing rule is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Before all rules (`-I chain 1`).
    Head,
    /// Behind all rules (`-A chain`).
    Tail,
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
}

impl Owner {
    pub(crate) fn owns(&self, comment: Option<&str>, jump: Option<&str>) -> bool {
        match self {
            Self::Comment(text) => comment == Some(text),
            Self::CommentPrefix(text) => comment.is_some_and(|c| c.starts_with(text.as_str())),
            Self::JumpsTo(chain) => jump == Some(chain),
        }
    }
}

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
            Self::Xt(xt::Family::Ipv4, _) => nft::Family::Ip,
            Self::Xt(xt::Family::Ipv6, _) => nft::Family::Ip6,
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
}

impl std::fmt::Display for TableRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.family().name(), self.name())
    }
}

/// Identity of an existing rule within its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleId {
    /// nf_tables rule handle.
    Handle(u64),
    /// The rule as the iptables tool lists it (words after `-A chain`), where rules have no handles.
    Listed(Vec<String>),
}

/// An existing rule, decoded as far as this crate understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInfo {
    /// Identity, for [`Op::DeleteFound`].
    pub id: RuleId,
    /// The comment (`-m comment` or an nft rule comment).
    pub comment: Option<String>,
    /// The chain it jumps or goes to.
    pub jump: Option<String>,
    /// Source address it is limited to.
    pub source: Option<IpNetwork>,
    /// Destination address it is limited to.
    pub destination: Option<IpNetwork>,
    /// The whole rule in the iptables dialect, if it is of that dialect and nothing in it is unknown here.
    pub xt: Option<xt::Rule>,
}

/// Adds changes of one table of the iptables dialect to a [`Batch`].
#[derive(Debug)]
pub struct XtChanges<'a> {
    batch: &'a mut Batch,
    family: xt::Family,
    table: xt::Table,
}

/// Adds changes of one native nf_tables table to a [`Batch`].
#[derive(Debug)]
pub struct NftChanges<'a> {
    batch: &'a mut Batch,
    family: nft::Family,
    table: String,
}

impl XtChanges<'_> {
    fn push(self, op: Op<xt::Rule>) -> Self {
        let (family, table) = (self.family, self.table);
        self.batch.changes.push(Change::Xt { family, table, op });
        self
    }

    /// [`Op::EnsureChain`] (`-N`, existing is fine).
    pub fn ensure_chain(self, name: impl Into<String>) -> Self {
        self.push(Op::EnsureChain(nft::Chain::regular(name)))
    }
}

impl NftChanges<'_> {
    fn push(self, op: Op<nft::Rule>) -> Self {
        let (family, table) = (self.family, self.table.clone());
        self.batch.changes.push(Change::Nft { family, table, op });
        self
    }

    /// [`Op::EnsureTable`] (`add table`).
    pub fn ensure_table(self, comment: Option<&str>) -> Self {
        self.push(Op::EnsureTable { comment: comment.map(str::to_owned) })
    }

    /// [`Op::EnsureChain`] (`add chain`).
    pub fn ensure_chain(self, chain: nft::Chain) -> Self {
        self.push(Op::EnsureChain(chain))
    }
}

/// The builder methods that both dialects share.
macro_rules! rule_changes {
    ($builder:ident, $rule:ty) => {
        impl $builder<'_> {
            /// [`Op::EnsureRule`].
            pub fn ensure_rule(self, chain: impl Into<String>, rule: $rule, at: Position) -> Self {
                self.push(Op::EnsureRule { chain: chain.into(), rule, at })
            }

            /// [`Op::AppendRule`].
            pub fn append_rule(self, chain: impl Into<String>, rule: $rule) -> Self {
                self.push(Op::AppendRule { chain: chain.into(), rule })
            }

            /// [`Op::DeleteRule`].
            pub fn delete_rule(self, chain: impl Into<String>, rule: $rule) -> Self {
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
                self.push(Op::FlushChain { chain: chain.into() })
            }

            /// [`Op::DeleteChain`].
            pub fn delete_chain(self, chain: impl Into<String>) -> Self {
                self.push(Op::DeleteChain { chain: chain.into() })
            }

            /// [`Op::DeleteChainIfUnreferenced`].
            pub fn delete_chain_if_unreferenced(self, chain: impl Into<String>) -> Self {
                self.push(Op::DeleteChainIfUnreferenced { chain: chain.into() })
            }
        }
    };
}

rule_changes!(XtChanges, xt::Rule);
rule_changes!(NftChanges, nft::Rule);
