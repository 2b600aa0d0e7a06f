// SPDX-License-Identifier: Apache-2.0
//! Turns a batch into the actions that are still needed, by reading the chains concerned and no others.
//!
//! The planner keeps a picture of every chain it has touched, so that later changes of a batch see earlier ones. It never
//! writes; a transport carries out the [`Action`]s.

mod listed;

use std::collections::{HashMap, HashSet};

pub(crate) use listed::{Listed, Wanted};

use crate::batch::{Change, Op, Owner, Position, RuleId, TableRef};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::nft::Chain;
use crate::{nft, xt};

/// Where the planner looks.
pub(crate) trait Reader {
    /// True if the table exists or comes into being by itself.
    fn has_table(&mut self, table: &TableRef) -> Result<bool>;
    /// The chain, with the number of its rules and of rules that jump to it, if that is known.
    fn chain(&mut self, table: &TableRef, chain: &str) -> Result<Option<Uses>>;
    /// How many rules jump to an existing chain, for readers whose [`Uses`] do not tell.
    fn jumps(&mut self, table: &TableRef, chain: &str) -> Result<u32>;
    /// The rules of a chain in order.
    fn rules(&mut self, table: &TableRef, chain: &str) -> Result<Vec<Listed>>;
    /// One rule of a chain by its identity; `None` when it is gone, or not to be had without the others.
    fn rule(&mut self, table: &TableRef, chain: &str, id: &RuleId) -> Result<Option<Listed>>;
    /// For each of the wanted rules whether the chain has it, by reading no further than needed.
    fn search(&mut self, table: &TableRef, chain: &str, wanted: &[Wanted]) -> Result<Vec<bool>>;
    /// True if this listed rule is the wanted one.
    fn is_same(&mut self, table: &TableRef, chain: &str, wanted: &Wanted, listed: &Listed) -> Result<bool>;
}

/// Use count of a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Uses {
    /// Own rules and rules that jump to it.
    RulesAndJumps(u32),
    /// To be asked for.
    Unknown,
}

/// A rule of either dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnyRule {
    Xt(xt::Rule),
    Nft(nft::Rule),
}

impl AnyRule {
    fn jump(&self) -> Option<&str> {
        match self {
            Self::Xt(rule) => rule.jump(),
            Self::Nft(rule) => rule.jump(),
        }
    }

    fn comment(&self) -> Option<&str> {
        match self {
            Self::Xt(rule) => rule.comment(),
            Self::Nft(rule) => rule.comment.as_deref(),
        }
    }
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    AddTable { comment: Option<String> },
    AddChain(Chain),
    AddRule { chain: String, rule: AnyRule, at: Position },
    DeleteRule { chain: String, id: RuleId },
    Flush { chain: String },
    DeleteChain { chain: String },
}

impl Action {
    /// True if something that was there goes.
    pub(crate) fn deletes(&self) -> bool {
        match self {
            Self::DeleteRule { .. } | Self::Flush { .. } | Self::DeleteChain { .. } => true,
            Self::AddTable { .. } | Self::AddChain(_) | Self::AddRule { .. } => false,
        }
    }

    /// For error messages.
    pub(crate) fn describe(&self, table: &TableRef) -> String {
        match self {
            Self::AddTable { .. } => format!("create table \"{table}\""),
            Self::AddChain(chain) => format!("create chain \"{}\" in table \"{table}\"", chain.name),
            Self::AddRule { chain, .. } => format!("add rule to chain \"{chain}\" of table \"{table}\""),
            Self::DeleteRule { chain, .. } => {
                format!("delete rule from chain \"{chain}\" of table \"{table}\"")
            }
            Self::Flush { chain } => format!("flush chain \"{chain}\" of table \"{table}\""),
            Self::DeleteChain { chain } => format!("delete chain \"{chain}\" of table \"{table}\""),
        }
    }
}

/// A step with its table.
pub(crate) type Step = (TableRef, Action);

/// The steps that make `changes` true. Rules that are to go are looked for where `hints` say before all are read.
pub(crate) fn plan(changes: &[&Change], hints: &[Hint], reader: &mut dyn Reader) -> Result<Vec<Step>> {
    let mut planner =
        Planner { reader, hints, views: HashMap::new(), tables: HashSet::new(), steps: Vec::new() };
    for change in changes {
        let table = change.table();
        match change {
            Change::Xt { op, .. } => planner.change(&table, op, |rule| AnyRule::Xt(rule.clone()))?,
            Change::Nft { op, .. } => planner.change(&table, op, |rule| AnyRule::Nft(rule.clone()))?,
        }
    }
    Ok(planner.steps.into_iter().flatten().collect())
}

struct Planner<'r> {
    reader: &'r mut dyn Reader,
    hints: &'r [Hint],
    views: HashMap<(TableRef, String), View>,
    /// Tables known to exist once the steps so far are done.
    tables: HashSet<TableRef>,
    /// A step that turned out unnecessary later is `None`.
    steps: Vec<Option<Step>>,
}

/// What is known of a chain.
struct View {
    /// As the reader found it.
    found: Option<Uses>,
    exists: bool,
    /// Rules found and still there, once they have been read.
    rules: Option<Vec<Listed>>,
    /// Rules that steps delete without the others having been read.
    gone: Vec<RuleId>,
    /// How many there were.
    rules_found: u32,
    /// Rules that steps add, with the index of the step.
    added: Vec<(AnyRule, usize)>,
    /// How many jumps to this chain the steps add, less those they remove.
    jumps: i64,
}

impl Planner<'_> {
    fn change<R>(&mut self, table: &TableRef, op: &Op<R>, any: impl Fn(&R) -> AnyRule) -> Result<()> {
        match op {
            Op::EnsureTable { comment } => self.ensure_table(table, comment.as_ref()),
            Op::EnsureChain(chain) => self.ensure_chain(table, chain),
            Op::EnsureRule { chain, rule, at } => self.ensure_rule(table, chain, any(rule), *at),
            Op::AppendRule { chain, rule } => self.add_rule(table, chain, any(rule), Position::Tail),
            Op::DeleteRule { chain, rule } => self.delete_rule(table, chain, any(rule)),
            Op::DeleteRulesWhere { chain, owner } => self.delete_owned(table, chain, owner),
            Op::DeleteFound { chain, id } => self.delete_found(table, chain, id),
            Op::FlushChain { chain } => self.flush(table, chain),
            Op::DeleteChain { chain } => self.delete_chain(table, chain),
            Op::DeleteChainIfUnreferenced { chain } => match self.jumps_to(table, chain)? {
                Some(0) => self.delete_chain(table, chain),
                Some(_) | None => Ok(()),
            },
        }
    }

    fn ensure_table(&mut self, table: &TableRef, comment: Option<&String>) -> Result<()> {
        if self.tables.contains(table) || self.reader.has_table(table)? {
            self.tables.insert(table.clone());
            return Ok(());
        }
        self.step(table, Action::AddTable { comment: comment.cloned() });
        self.tables.insert(table.clone());
        Ok(())
    }

    fn ensure_chain(&mut self, table: &TableRef, chain: &Chain) -> Result<()> {
        check_chain_name(table, &chain.name)?;
        check_comment(chain.comment.as_deref())?;
        if self.view(table, &chain.name)?.exists {
            return Ok(());
        }
        if !self.tables.contains(table) {
            self.ensure_table(table, None)?;
        }
        let hook = chain.hook.or_else(|| builtin(table, &chain.name));
        self.step(table, Action::AddChain(Chain { hook, ..chain.clone() }));
        let view = self.view(table, &chain.name)?;
        view.exists = true;
        view.rules.get_or_insert_default();
        Ok(())
    }

    fn ensure_rule(&mut self, table: &TableRef, chain: &str, rule: AnyRule, at: Position) -> Result<()> {
        if self.contains(table, chain, &rule, at)? { Ok(()) } else { self.add_rule(table, chain, rule, at) }
    }

    fn add_rule(&mut self, table: &TableRef, chain: &str, rule: AnyRule, at: Position) -> Result<()> {
        check_chain_name(table, chain)?;
        check_comment(rule.comment())?;
        if builtin(table, chain).is_some() {
            self.ensure_chain(table, &Chain::regular(chain))?;
        }
        if let Some(to) = rule.jump() {
            check_chain_name(table, to)?;
            self.view(table, to)?.jumps += 1;
        }
        let index = self.steps.len();
        self.step(table, Action::AddRule { chain: chain.to_owned(), rule: rule.clone(), at });
        self.view(table, chain)?.added.push((rule, index));
        Ok(())
    }

    /// A rule cannot be there yet if the chain it jumps to is not. One that is put at the head is looked for from there,
    /// and will mostly be found at once; for others all is read, as more of them follow.
    fn contains(&mut self, table: &TableRef, chain: &str, rule: &AnyRule, at: Position) -> Result<bool> {
        if self.view(table, chain)?.added.iter().any(|(added, _)| same(added, rule)) {
            return Ok(true);
        }
        if let Some(to) = rule.jump()
            && self.view(table, to)?.found.is_none()
        {
            return Ok(false);
        }
        let view = self.view(table, chain)?;
        if at == Position::Head && view.rules.is_none() {
            let wanted = Wanted::new(rule, table.family());
            return Ok(self.reader.search(table, chain, &[wanted])?.contains(&true));
        }
        Ok(!self.find(table, chain, rule)?.is_empty())
    }

    /// Indexes of the listed rules that equal `rule`.
    fn find(&mut self, table: &TableRef, chain: &str, rule: &AnyRule) -> Result<Vec<usize>> {
        self.load(table, chain)?;
        let wanted = Wanted::new(rule, table.family());
        let view = self.views.get(&key(table, chain)).and_then(|view| view.rules.as_deref());
        let mut found = Vec::new();
        for (index, listed) in view.unwrap_or_default().iter().enumerate() {
            if self.reader.is_same(table, chain, &wanted, listed)? {
                found.push(index);
            }
        }
        Ok(found)
    }

    fn delete_rule(&mut self, table: &TableRef, chain: &str, rule: AnyRule) -> Result<()> {
        self.withdraw(table, chain, |added| same(added, &rule))?;
        if let Some(to) = rule.jump()
            && self.view(table, to)?.found.is_none()
        {
            return Ok(());
        }
        let wanted = Wanted::new(&rule, table.family());
        if let Some(listed) = self.hinted(table, chain)?.into_iter().find(|listed| wanted.is(listed)) {
            return self.delete_unread(table, chain, &listed);
        }
        let found = self.find(table, chain, &rule)?;
        self.delete_listed(table, chain, &found)
    }

    fn delete_owned(&mut self, table: &TableRef, chain: &str, owner: &Owner) -> Result<()> {
        self.withdraw(table, chain, |added| owner.owns(added.comment(), added.jump()))?;
        if let Owner::JumpsTo(to) = owner {
            if self.view(table, to)?.found.is_none() {
                return Ok(());
            }
            if let Some(all) = self.hinted_jumps(table, chain, to)? {
                return all.iter().try_for_each(|listed| self.delete_unread(table, chain, listed));
            }
        }
        let rules = self.load(table, chain)?;
        let owned = |listed: &Listed| owner.owns(listed.comment().as_deref(), listed.jump().as_deref());
        let found: Vec<_> =
            rules.iter().enumerate().filter(|(_, r)| owned(r)).map(|(index, _)| index).collect();
        self.delete_listed(table, chain, &found)
    }

    fn delete_found(&mut self, table: &TableRef, chain: &str, id: &RuleId) -> Result<()> {
        let view = self.view(table, chain)?;
        if view.rules.is_none()
            && !view.gone.contains(id)
            && let Some(listed) = self.reader.rule(table, chain, id)?
        {
            return self.delete_unread(table, chain, &listed);
        }
        let known = self.load(table, chain)?.iter().position(|listed| listed.id() == *id);
        known.map_or(Ok(()), |index| self.delete_listed(table, chain, &[index]))
    }

    /// Deletes a rule of a chain whose other rules have not been read.
    fn delete_unread(&mut self, table: &TableRef, chain: &str, listed: &Listed) -> Result<()> {
        self.forget_jump(table, listed.jump().as_deref())?;
        self.view(table, chain)?.gone.push(listed.id());
        self.step(table, Action::DeleteRule { chain: chain.to_owned(), id: listed.id() });
        Ok(())
    }

    /// What stands where hints say, as long as the chain has not been read.
    fn hinted(&mut self, table: &TableRef, chain: &str) -> Result<Vec<Listed>> {
        let hints = self.hints;
        let mut hinted = Vec::new();
        for id in hints.iter().filter_map(|hint| hint.within(table, chain)) {
            let view = self.view(table, chain)?;
            if view.rules.is_none() && !view.gone.contains(&id) {
                hinted.extend(self.reader.rule(table, chain, &id)?);
            }
        }
        Ok(hinted)
    }

    /// The rules that jump from `chain` to `to`, if hints lead to as many as the kernel counts.
    fn hinted_jumps(&mut self, table: &TableRef, chain: &str, to: &str) -> Result<Option<Vec<Listed>>> {
        let mut jumps = self.hinted(table, chain)?;
        jumps.retain(|listed| listed.jump().as_deref() == Some(to));
        let Some(Uses::RulesAndJumps(uses)) = self.view(table, to)?.found else { return Ok(None) };
        if jumps.is_empty() {
            return Ok(None);
        }
        self.load(table, to)?;
        let counted = uses.saturating_sub(self.view(table, to)?.rules_found);
        Ok((u32::try_from(jumps.len()) == Ok(counted)).then_some(jumps))
    }

    fn delete_listed(&mut self, table: &TableRef, chain: &str, indexes: &[usize]) -> Result<()> {
        for index in indexes.iter().rev() {
            let Some(rules) = &mut self.view(table, chain)?.rules else { return Ok(()) };
            let listed = rules.remove(*index);
            self.forget_jump(table, listed.jump().as_deref())?;
            self.step(table, Action::DeleteRule { chain: chain.to_owned(), id: listed.id() });
        }
        Ok(())
    }

    /// Takes back rules that earlier changes of this batch wanted to add.
    fn withdraw(&mut self, table: &TableRef, chain: &str, goes: impl Fn(&AnyRule) -> bool) -> Result<()> {
        let added = std::mem::take(&mut self.view(table, chain)?.added);
        let (gone, kept): (Vec<_>, Vec<_>) = added.into_iter().partition(|(rule, _)| goes(rule));
        self.view(table, chain)?.added = kept;
        for (rule, index) in gone {
            if let Some(step) = self.steps.get_mut(index) {
                *step = None;
            }
            self.forget_jump(table, rule.jump())?;
        }
        Ok(())
    }

    fn flush(&mut self, table: &TableRef, chain: &str) -> Result<()> {
        if self.empty(table, chain)? {
            self.step(table, Action::Flush { chain: chain.to_owned() });
        }
        Ok(())
    }

    fn delete_chain(&mut self, table: &TableRef, chain: &str) -> Result<()> {
        if !self.view(table, chain)?.exists {
            return Ok(());
        }
        self.empty(table, chain)?;
        self.view(table, chain)?.exists = false;
        self.step(table, Action::DeleteChain { chain: chain.to_owned() });
        Ok(())
    }

    /// Empties the picture of a chain; true if listed rules were in it.
    fn empty(&mut self, table: &TableRef, chain: &str) -> Result<bool> {
        self.withdraw(table, chain, |_| true)?;
        self.load(table, chain)?;
        let rules = self.view(table, chain)?.rules.replace(Vec::new()).unwrap_or_default();
        for listed in &rules {
            self.forget_jump(table, listed.jump().as_deref())?;
        }
        Ok(!rules.is_empty())
    }

    fn forget_jump(&mut self, table: &TableRef, to: Option<&str>) -> Result<()> {
        if let Some(to) = to {
            self.view(table, to)?.jumps -= 1;
        }
        Ok(())
    }

    /// How many rules jump to the chain after the steps so far; `None` if it does not exist.
    fn jumps_to(&mut self, table: &TableRef, chain: &str) -> Result<Option<i64>> {
        if !self.view(table, chain)?.exists {
            return Ok(None);
        }
        self.load(table, chain)?;
        let view = self.view(table, chain)?;
        let (uses, rules, planned) = (view.found, view.rules_found, view.jumps);
        let found = match uses {
            None => 0,
            Some(Uses::Unknown) => self.reader.jumps(table, chain)?,
            Some(Uses::RulesAndJumps(uses)) => uses.saturating_sub(rules),
        };
        Ok(Some(i64::from(found) + planned))
    }

    /// The listed rules of a chain, read on first use.
    fn load(&mut self, table: &TableRef, chain: &str) -> Result<&[Listed]> {
        if self.view(table, chain)?.rules.is_none() {
            let rules = self.reader.rules(table, chain)?;
            let view = self.view(table, chain)?;
            view.rules_found = u32::try_from(rules.len()).unwrap_or(u32::MAX);
            let gone = &view.gone;
            view.rules = Some(rules.into_iter().filter(|listed| !gone.contains(&listed.id())).collect());
        }
        Ok(self.view(table, chain)?.rules.as_deref().unwrap_or_default())
    }

    fn view(&mut self, table: &TableRef, chain: &str) -> Result<&mut View> {
        use std::collections::hash_map::Entry;
        match self.views.entry(key(table, chain)) {
            Entry::Occupied(view) => Ok(view.into_mut()),
            Entry::Vacant(place) => {
                let found = self.reader.chain(table, chain)?;
                if found.is_some() {
                    self.tables.insert(table.clone());
                }
                let rules = found.is_none().then(Vec::new);
                let exists = found.is_some();
                Ok(place.insert(View {
                    found,
                    exists,
                    rules,
                    gone: Vec::new(),
                    rules_found: 0,
                    added: Vec::new(),
                    jumps: 0,
                }))
            }
        }
    }

    fn step(&mut self, table: &TableRef, action: Action) {
        self.steps.push(Some((table.clone(), action)));
    }
}

fn key(table: &TableRef, chain: &str) -> (TableRef, String) {
    (table.clone(), chain.to_owned())
}

fn same(one: &AnyRule, other: &AnyRule) -> bool {
    match (one, other) {
        (AnyRule::Xt(one), AnyRule::Xt(other)) => one.is_same(other),
        _ => one == other,
    }
}

fn builtin(table: &TableRef, chain: &str) -> Option<nft::Hook> {
    match table {
        TableRef::Xt(_, table) => table.builtin(chain),
        TableRef::Nft(..) => None,
    }
}

/// iptables' limit is `XT_EXTENSION_MAXNAMELEN` - 1, nf_tables' `NFT_NAME_MAXLEN` - 1.
fn check_chain_name(table: &TableRef, name: &str) -> Result<()> {
    let longest = match table {
        TableRef::Xt(..) => 28,
        TableRef::Nft(..) => 255,
    };
    let usable = |name: &str| !name.is_empty() && name.len() <= longest && !name.contains(char::is_control);
    if usable(name) {
        return Ok(());
    }
    Err(Error::InvalidText { kind: "chain name", value: name.to_owned() })
}

/// 255 bytes with the terminating zero, in either dialect; no control characters, which rule files cannot hold.
fn check_comment(comment: Option<&str>) -> Result<()> {
    match comment {
        Some(text) if text.len() > 255 || text.contains(char::is_control) => {
            Err(Error::InvalidText { kind: "comment", value: text.to_owned() })
        }
        Some(_) | None => Ok(()),
    }
}
