// SPDX-License-Identifier: Apache-2.0
//! What must be, as data: a list of changes to tables, chains and rules of both dialects.
//!
//! A batch does nothing by itself, can be compared in tests and shown to people. [`crate::Engine::apply`] makes it true. This
//! room is data: it must never know what there is already, nor how anything is read or written.

use std::fmt;
use std::str::FromStr;

use ipnetwork::IpNetwork;

use crate::error::{Error, Result};
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

    /// The same in the native table of that name: what is in the iptables dialect in the native one. `None` if a rule has
    /// no such form. Built-in chains are not made by themselves there.
    #[must_use]
    pub fn native(&self, table: &str) -> Option<Self> {
        let native = |change: &Change| {
            let Change::Xt { family, op, .. } = change else { return Some(change.clone()) };
            let family = TableRef::Xt(*family, xt::Table::Filter).family();
            let rule = op.rule().map(xt::Rule::native);
            let op = match rule {
                Some(rule) => {
                    let rule = rule?;
                    op.map(|_| rule)
                }
                None => op.map(|_| nft::Rule::new(Vec::new())),
            };
            Some(Change::Nft { family, table: table.to_owned(), op })
        };
        Some(Self { changes: self.changes.iter().map(native).collect::<Option<_>>()? })
    }
}

/// One change on a line, in order.
impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|change| writeln!(f, "{change}"))
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

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.table())?;
        match self {
            Self::Xt { op, .. } => op.fmt(f),
            Self::Nft { op, .. } => op.fmt(f),
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
    /// The chain and its rules do not exist. A missing chain or table is fine; one that rules still jump to is an error.
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

impl<R> Op<R> {
    /// The same with another form of its rule.
    pub(crate) fn map<S>(&self, form: impl FnOnce(&R) -> S) -> Op<S> {
        match self {
            Self::EnsureTable { comment } => Op::EnsureTable { comment: comment.clone() },
            Self::EnsureChain(chain) => Op::EnsureChain(chain.clone()),
            Self::EnsureRule { chain, rule, at } => {
                Op::EnsureRule { chain: chain.clone(), rule: form(rule), at: *at }
            }
            Self::AppendRule { chain, rule } => Op::AppendRule { chain: chain.clone(), rule: form(rule) },
            Self::DeleteRule { chain, rule } => Op::DeleteRule { chain: chain.clone(), rule: form(rule) },
            Self::DeleteRulesWhere { chain, owner } => {
                Op::DeleteRulesWhere { chain: chain.clone(), owner: owner.clone() }
            }
            Self::DeleteFound { chain, id } => Op::DeleteFound { chain: chain.clone(), id: id.clone() },
            Self::FlushChain { chain } => Op::FlushChain { chain: chain.clone() },
            Self::DeleteChain { chain } => Op::DeleteChain { chain: chain.clone() },
            Self::DeleteChainIfUnreferenced { chain } => {
                Op::DeleteChainIfUnreferenced { chain: chain.clone() }
            }
        }
    }

    /// The rule that is to be added or deleted.
    pub(crate) fn rule(&self) -> Option<&R> {
        match self {
            Self::EnsureRule { rule, .. } | Self::AppendRule { rule, .. } | Self::DeleteRule { rule, .. } => {
                Some(rule)
            }
            Self::EnsureTable { .. }
            | Self::EnsureChain(_)
            | Self::DeleteRulesWhere { .. }
            | Self::DeleteFound { .. }
            | Self::FlushChain { .. }
            | Self::DeleteChain { .. }
            | Self::DeleteChainIfUnreferenced { .. } => None,
        }
    }
}

impl<R: fmt::Display> fmt::Display for Op<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EnsureTable { .. } => f.write_str("ensure table"),
            Self::EnsureChain(chain) => write!(f, "ensure chain {}", chain.name),
            Self::EnsureRule { chain, rule, at } => write!(f, "ensure rule in {chain}, {at}: {rule}"),
            Self::AppendRule { chain, rule } => write!(f, "append rule to {chain}: {rule}"),
            Self::DeleteRule { chain, rule } => write!(f, "delete rule from {chain}: {rule}"),
            Self::DeleteRulesWhere { chain, owner } => write!(f, "delete rules from {chain}: {owner}"),
            Self::DeleteFound { chain, id } => write!(f, "delete rule from {chain}: {id}"),
            Self::FlushChain { chain } => write!(f, "flush chain {chain}"),
            Self::DeleteChain { chain } => write!(f, "delete chain {chain}"),
            Self::DeleteChainIfUnreferenced { chain } => {
                write!(f, "delete chain {chain} unless rules jump to it")
            }
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

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comment(text) => write!(f, "comment {text:?}"),
            Self::CommentPrefix(text) => write!(f, "comment that starts with {text:?}"),
            Self::JumpsTo(chain) => write!(f, "jump to {chain}"),
            Self::JumpsToWith { chain, comment } => write!(f, "jump to {chain}, comment {comment:?}"),
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

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family().name(), self.name())
    }
}

impl FromStr for TableRef {
    type Err = Error;

    /// Reads what `Display` writes, for tables of the iptables dialect.
    fn from_str(name: &str) -> Result<Self> {
        let families = [xt::Family::Ipv4, xt::Family::Ipv6].into_iter();
        let mut tables = families
            .flat_map(|family| [xt::Table::Filter, xt::Table::Nat].map(|table| Self::Xt(family, table)));
        tables
            .find(|table| table.to_string() == name)
            .ok_or_else(|| Error::InvalidText { kind: "table", value: name.to_owned() })
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
    /// The whole rule in the iptables dialect in its [`xt::Rule::canonical`] form, if it is of that dialect and nothing in it
    /// is unknown here.
    pub xt: Option<xt::Rule>,
    /// The same for the native dialect, without counters.
    pub nft: Option<nft::Rule>,
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
