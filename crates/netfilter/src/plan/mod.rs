// SPDX-License-Identifier: Apache-2.0
//! Turns a batch into the steps that are still needed, by reading the chains concerned and no others.
//!
//! The planner keeps a picture of every chain it has touched, so that later changes of a batch see earlier ones. It never
//! writes; a transport carries out the [`Step`]s. It must never know how rules are encoded or listed: it asks a [`Reader`]
//! and compares canonical forms.

mod names;
mod rule;
mod search;
mod step;
#[cfg(test)]
mod tests;
mod view;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

pub use rule::RuleInfo;
pub(crate) use search::search;
pub use step::{Action, Step};

use crate::batch::{Change, Op, Owner};
use crate::error::Result;
use crate::known::{Guard, Hint, Inventory, Known};
use crate::nft::Chain;
use crate::rule::{AnyRule, Position, RuleId, TableRef, Wanted};
use names::{builtin, check_chain, check_comment};
use view::{Rules, View};

/// Where the planner looks.
pub(crate) trait Reader {
    /// True if the table exists or comes into being by itself.
    fn has_table(&mut self, table: &TableRef) -> Result<bool>;
    /// The chain, with the number of its rules and of rules that jump to it, if that is known.
    fn chain(&mut self, table: &TableRef, chain: &str) -> Result<Option<Uses>>;
    /// How many rules jump to an existing chain, for readers whose [`Uses`] do not tell. Others are not asked; a chain is
    /// left alone while rules jump to it.
    fn jumps(&mut self, _: &TableRef, _: &str) -> Result<u32> {
        Ok(u32::MAX)
    }
    /// The rules of a chain in order; none if it does not exist.
    fn rules(&mut self, table: &TableRef, chain: &str) -> Result<Vec<RuleInfo>>;
    /// One rule of a chain by its identity; `None` when it is gone, or not to be had without the others.
    fn rule(&mut self, _: &TableRef, _: &str, _: &RuleId) -> Result<Option<RuleInfo>> {
        Ok(None)
    }
    /// Shows `visit` the rules of a chain in order until it breaks, reading no further than needed.
    fn scan(
        &mut self,
        table: &TableRef,
        chain: &str,
        visit: &mut dyn FnMut(RuleInfo) -> ControlFlow<()>,
    ) -> Result<()> {
        let _ended_early = self.rules(table, chain)?.into_iter().try_for_each(visit);
        Ok(())
    }
    /// True if the chain has this rule, which has no canonical form: something else compares it, if anything does.
    fn holds(&mut self, _: &TableRef, _: &str, _: &Wanted) -> Result<bool> {
        Ok(false)
    }
}

/// Use count of a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Uses {
    /// Own rules and rules that jump to it.
    RulesAndJumps(u32),
    /// To be asked for.
    Unknown,
}

/// What is to be done.
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// Chains of which it is known now whether they are worth an [`Inventory`].
    pub(crate) seen: Vec<SeenChain>,
}

/// A chain of the iptables dialect.
pub(crate) struct SeenChain {
    pub(crate) table: TableRef,
    pub(crate) chain: String,
    /// What the rules of a long one that was read say, see [`AnyRule::xt_text`]; `None` if it is short, or not there.
    pub(crate) texts: Option<Vec<String>>,
}

impl Plan {
    /// What an inventory learns when the steps are committed; `None` where they only take away: then what it says still holds.
    pub(crate) fn lesson(&self) -> Option<impl FnOnce(&mut Inventory)> {
        let is_added =
            |step: &Step| matches!((&step.table, &step.action), (TableRef::Xt(..), Action::AddRule { .. }));
        let tells = self.seen.iter().any(|seen| seen.texts.is_some()) || self.steps.iter().any(is_added);
        tells.then_some(|inventory: &mut Inventory| self.teach(inventory))
    }

    fn teach(&self, inventory: &mut Inventory) {
        for SeenChain { table, chain, texts } in &self.seen {
            match texts {
                Some(texts) => inventory.note(table, chain, texts),
                None => inventory.forget(table, chain),
            }
        }
        for Step { table, action } in &self.steps {
            if let Action::AddRule { chain, rule, .. } = action
                && let Some(text) = rule.canon().and_then(AnyRule::xt_text)
            {
                inventory.add(table, chain, &text);
            }
        }
    }
}

/// The steps that make `changes` true.
pub(crate) fn plan(changes: &[&Change], known: Known<'_>, reader: &mut dyn Reader) -> Result<Plan> {
    let mut planner =
        Planner { reader, known, views: HashMap::new(), tables: HashSet::new(), steps: Vec::new() };
    changes.iter().try_for_each(|change| planner.change(&change.table, &change.op))?;
    let seen = planner.seen();
    Ok(Plan { steps: planner.steps.into_iter().flatten().collect(), seen })
}

/// So many rules are deleted one by one whatever else is there, and read again without regret.
const FEW: usize = 64;

struct Planner<'r> {
    reader: &'r mut dyn Reader,
    known: Known<'r>,
    views: HashMap<TableRef, HashMap<String, View>>,
    /// Tables known to exist once the steps so far are done.
    tables: HashSet<TableRef>,
    /// A step that turned out unnecessary later is `None`.
    steps: Vec<Option<Step>>,
}

impl Planner<'_> {
    fn change(&mut self, table: &TableRef, op: &Op) -> Result<()> {
        match op {
            Op::EnsureTable { comment } => self.ensure_table(table, comment.as_ref()),
            Op::EnsureChain(chain) => self.ensure_chain(table, chain),
            Op::EnsureRule { chain, rule, at } if self.contains(table, chain, rule, *at)? => Ok(()),
            Op::EnsureRule { chain, rule, at } => self.add_rule(table, chain, rule, *at),
            Op::AppendRule { chain, rule } => self.add_rule(table, chain, rule, Position::Tail),
            Op::DeleteRule { chain, rule } => self.delete_rule(table, chain, rule),
            Op::DeleteRulesWhere { chain, owner } => self.delete_owned(table, chain, owner),
            Op::DeleteFound { chain, id } => self.delete_found(table, chain, id),
            Op::FlushChain(chain) => self.flush(table, chain),
            Op::DeleteChain(chain) => self.delete_chain(table, chain),
            Op::DeleteChainIfUnreferenced(chain) => match self.jumps_to(table, chain)? {
                Some(0) => self.delete_chain(table, chain),
                Some(_) | None => Ok(()),
            },
        }
    }

    fn ensure_table(&mut self, table: &TableRef, comment: Option<&String>) -> Result<()> {
        check_comment(table, comment.map(String::as_str))?;
        if !self.tables.contains(table) && !self.reader.has_table(table)? {
            self.step(table, Action::AddTable { comment: comment.cloned() });
        }
        self.tables.insert(table.clone());
        Ok(())
    }

    fn ensure_chain(&mut self, table: &TableRef, chain: &Chain) -> Result<()> {
        check_chain(table, &chain.name)?;
        check_comment(table, chain.comment.as_deref())?;
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

    fn add_rule(&mut self, table: &TableRef, chain: &str, rule: &Arc<Wanted>, at: Position) -> Result<()> {
        check_chain(table, chain)?;
        check_comment(table, rule.rule().comment())?;
        if builtin(table, chain).is_some() {
            self.ensure_chain(table, &Chain::regular(chain))?;
        }
        if let Some(to) = rule.rule().jump() {
            check_chain(table, to)?;
            self.view(table, to)?.jumps += 1;
        }
        let index = self.steps.len();
        self.step(table, Action::AddRule { chain: chain.to_owned(), rule: Arc::clone(rule), at });
        self.view(table, chain)?.added.push(Arc::clone(rule), index);
        Ok(())
    }

    /// A rule cannot be there yet if the chain it jumps to is not. One that is put at the head is looked for from there,
    /// and will mostly be found at once. For others all is read, as more of them follow, unless the chain is known to lack
    /// the rule: nothing in the kernel finds a rule by what it says.
    fn contains(&mut self, table: &TableRef, chain: &str, rule: &Arc<Wanted>, at: Position) -> Result<bool> {
        if self.view(table, chain)?.added.contains(rule) {
            return Ok(true);
        }
        if self.leads_nowhere(table, rule.rule().jump())? {
            return Ok(false);
        }
        let view = self.view(table, chain)?;
        if at == Position::Head && view.rules.is_none() {
            let found = search(self.reader, table, chain, std::slice::from_ref(rule), &[])?;
            return Ok(found.contains(&true));
        }
        if self.is_known_to_lack(table, chain, rule)? {
            return Ok(false);
        }
        self.view(table, chain)?.sought = true;
        Ok(!self.find(table, chain, rule)?.is_empty())
    }

    /// True if the rule cannot be in the chain, which has not been read.
    fn is_known_to_lack(&mut self, table: &TableRef, chain: &str, rule: &Wanted) -> Result<bool> {
        let Some(kept) = self.known.kept else { return Ok(false) };
        let unread = self.view(table, chain)?.rules.is_none();
        let text = rule.canon().filter(|_| unread).and_then(AnyRule::xt_text);
        Ok(text.is_some_and(|text| kept.lacks(table, chain, &text)))
    }

    /// Short chains, and long ones that had to be read to know that rules are not there.
    fn seen(&self) -> Vec<SeenChain> {
        let of_xt = self.views.iter().filter(|(table, _)| matches!(table, TableRef::Xt(..)));
        let views =
            of_xt.flat_map(|(table, views)| views.iter().map(move |(name, view)| (table, name, view)));
        let seen = |(table, chain, view): (&TableRef, &String, &View)| {
            let texts = match view.is_long(FEW) {
                true if view.sought => {
                    let rules = view.rules.iter().flat_map(Rules::canons);
                    Some(rules.filter_map(AnyRule::xt_text).collect())
                }
                true => return None,
                false => None,
            };
            Some(SeenChain { table: table.clone(), chain: chain.clone(), texts })
        };
        views.filter_map(seen).collect()
    }

    /// True if a rule jumps to a chain that was not there when the batch began.
    fn leads_nowhere(&mut self, table: &TableRef, to: Option<&str>) -> Result<bool> {
        to.map_or(Ok(false), |to| Ok(self.view(table, to)?.found.is_none()))
    }

    /// Indexes of the listed rules that equal `rule`.
    fn find(&mut self, table: &TableRef, chain: &str, rule: &Wanted) -> Result<Vec<usize>> {
        let rules = self.load(table, chain)?;
        if let Some(canon) = rule.canon() {
            return Ok(rules.find(canon));
        }
        let candidates = rules.filter(|listed| listed.may_be(rule));
        let found = !candidates.is_empty() && self.reader.holds(table, chain, rule)?;
        Ok(if found { candidates } else { Vec::new() })
    }

    fn delete_rule(&mut self, table: &TableRef, chain: &str, rule: &Wanted) -> Result<()> {
        let added = self.view(table, chain)?.added.take(rule);
        self.withdraw(table, added)?;
        if self.leads_nowhere(table, rule.rule().jump())? {
            return Ok(());
        }
        if let Some(canon) = rule.canon()
            && let Some(hinted) = self.hinted(table, chain)?
            && let Some(listed) = hinted.find(canon).first().and_then(|at| hinted.take(*at))
        {
            return self.delete_unread(table, chain, &listed);
        }
        let found = self.find(table, chain, rule)?;
        self.delete_listed(table, chain, &found)
    }

    fn delete_owned(&mut self, table: &TableRef, chain: &str, owner: &Owner) -> Result<()> {
        let added = &mut self.view(table, chain)?.added;
        let added = added.take_where(|added| owner.owns(added.rule().comment(), added.rule().jump()));
        self.withdraw(table, added)?;
        let is_owned = |listed: &RuleInfo| owner.owns(listed.comment(), listed.jump());
        if let Owner::JumpsTo(to) | Owner::JumpsToWith { chain: to, .. } = owner {
            if self.leads_nowhere(table, Some(to))? {
                return Ok(());
            }
            if let Some(all) = self.hinted_jumps(table, chain, to)? {
                let mut owned = all.iter().filter(|listed| is_owned(listed));
                return owned.try_for_each(|listed| self.delete_unread(table, chain, listed));
            }
        }
        let found = self.load(table, chain)?.filter(is_owned);
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
        let known = self.load(table, chain)?.find_id(id);
        known.map_or(Ok(()), |at| self.delete_listed(table, chain, &[at]))
    }

    /// Deletes a rule of a chain whose other rules have not been read.
    fn delete_unread(&mut self, table: &TableRef, chain: &str, listed: &RuleInfo) -> Result<()> {
        self.forget_jump(table, listed.jump())?;
        let view = self.view(table, chain)?;
        view.gone.insert(listed.id.clone());
        if let Some(hinted) = &mut view.hinted
            && let Some(at) = hinted.find_id(&listed.id)
        {
            hinted.take(at);
        }
        self.step(table, Action::DeleteRule { chain: chain.to_owned(), id: listed.id.clone() });
        Ok(())
    }

    /// What stands where hints say; `None` when the chain has been read.
    fn hinted(&mut self, table: &TableRef, chain: &str) -> Result<Option<&mut Rules>> {
        let view = self.view(table, chain)?;
        if view.rules.is_some() {
            return Ok(None);
        }
        if view.hinted.is_none() {
            let mut listed: Vec<RuleInfo> = Vec::new();
            let ids = self.known.hints.iter().filter_map(|hint| hint.within(table, chain));
            for id in ids.take(Hint::MOST) {
                listed.extend(self.reader.rule(table, chain, &id)?);
            }
            let view = self.view(table, chain)?;
            listed.retain(|rule| !view.gone.contains(&rule.id));
            view.hinted = Some(Rules::new(listed));
        }
        Ok(self.view(table, chain)?.hinted.as_mut())
    }

    /// The rules that jump from `chain` to `to`, if hints lead to as many as the kernel counts.
    fn hinted_jumps(&mut self, table: &TableRef, chain: &str, to: &str) -> Result<Option<Vec<RuleInfo>>> {
        let Some(hinted) = self.hinted(table, chain)? else { return Ok(None) };
        let found = hinted.filter(|listed| listed.jump() == Some(to));
        let Some(Uses::RulesAndJumps(uses)) = self.view(table, to)?.found else { return Ok(None) };
        if found.is_empty() {
            return Ok(None);
        }
        self.load(table, to)?;
        let counted = uses.saturating_sub(self.view(table, to)?.rules_found);
        if u32::try_from(found.len()) != Ok(counted) {
            return Ok(None);
        }
        let hinted = self.hinted(table, chain)?;
        Ok(hinted.map(|hinted| found.iter().filter_map(|at| hinted.take(*at)).collect()))
    }

    /// The kernel goes through the chain for every rule that it deletes, so that many of them that are all there is are
    /// deleted as such.
    fn delete_listed(&mut self, table: &TableRef, chain: &str, indexes: &[usize]) -> Result<()> {
        let view = self.view(table, chain)?;
        let is_all = view.added.is_empty()
            && view.rules.as_ref().is_some_and(|rules| rules.len() == indexes.len())
            && indexes.len() > FEW;
        if is_all && self.known.guard == Guard::Generation {
            return self.flush(table, chain);
        }
        for at in indexes {
            let rules = self.view(table, chain)?.rules.as_mut();
            let Some(listed) = rules.and_then(|rules| rules.take(*at)) else { continue };
            self.forget_jump(table, listed.jump())?;
            self.step(table, Action::DeleteRule { chain: chain.to_owned(), id: listed.id });
        }
        Ok(())
    }

    /// Takes back rules that earlier changes of this batch wanted to add.
    fn withdraw(&mut self, table: &TableRef, added: Vec<(usize, Arc<Wanted>)>) -> Result<()> {
        for (index, rule) in added {
            if let Some(step) = self.steps.get_mut(index) {
                *step = None;
            }
            self.forget_jump(table, rule.rule().jump())?;
        }
        Ok(())
    }

    fn flush(&mut self, table: &TableRef, chain: &str) -> Result<()> {
        if self.empty(table, chain)? {
            self.step(table, Action::Flush(chain.to_owned()));
        }
        Ok(())
    }

    fn delete_chain(&mut self, table: &TableRef, chain: &str) -> Result<()> {
        if !self.view(table, chain)?.exists {
            return Ok(());
        }
        self.empty(table, chain)?;
        self.view(table, chain)?.exists = false;
        self.step(table, Action::DeleteChain(chain.to_owned()));
        Ok(())
    }

    /// Empties the picture of a chain; true if listed rules were in it.
    fn empty(&mut self, table: &TableRef, chain: &str) -> Result<bool> {
        let added = self.view(table, chain)?.added.take_where(|_| true);
        self.withdraw(table, added)?;
        let rules = std::mem::take(self.load(table, chain)?);
        let mut any = false;
        for listed in rules.into_listed() {
            any = true;
            self.forget_jump(table, listed.jump())?;
        }
        Ok(any)
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
    fn load(&mut self, table: &TableRef, chain: &str) -> Result<&mut Rules> {
        if self.view(table, chain)?.rules.is_none() {
            let rules = self.reader.rules(table, chain)?;
            let view = self.view(table, chain)?;
            view.rules_found = u32::try_from(rules.len()).unwrap_or(u32::MAX);
            view.rules = Some(Rules::new(rules.into_iter().filter(|listed| !view.gone.contains(&listed.id))));
        }
        Ok(self.view(table, chain)?.rules.get_or_insert_default())
    }

    fn view(&mut self, table: &TableRef, chain: &str) -> Result<&mut View> {
        match self.views.entry(table.clone()).or_default().entry(chain.to_owned()) {
            Entry::Occupied(view) => Ok(view.into_mut()),
            Entry::Vacant(place) => {
                let found = self.reader.chain(table, chain)?;
                if found.is_some() {
                    self.tables.insert(table.clone());
                }
                Ok(place.insert(View::new(found)))
            }
        }
    }

    fn step(&mut self, table: &TableRef, action: Action) {
        self.steps.push(Some(Step { table: table.clone(), action }));
    }
}
