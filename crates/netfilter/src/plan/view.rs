// SPDX-License-Identifier: Apache-2.0
//! What the planner knows of one chain: the rules that were found, and those that its steps add. Both are looked up by
//! what they say, so that a batch costs as much as it is long.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use super::Uses;
use super::rule::RuleInfo;
use crate::rule::{AnyRule, RuleId, Wanted};

/// The picture of a chain.
#[derive(Default)]
pub(super) struct View {
    /// As the reader found it.
    pub(super) found: Option<Uses>,
    pub(super) exists: bool,
    /// Rules found and still there, once they have been read.
    pub(super) rules: Option<Rules>,
    /// How many there were.
    pub(super) rules_found: u32,
    /// What stands where hints say, as long as the chain has not been read.
    pub(super) hinted: Option<Rules>,
    /// Whether rules were looked for among all of the chain's, to be added if they are not there.
    pub(super) sought: bool,
    /// Rules that steps delete without the others having been read.
    pub(super) gone: HashSet<RuleId>,
    pub(super) added: Added,
    /// How many jumps to this chain the steps add, less those they remove.
    pub(super) jumps: i64,
}

impl View {
    pub(super) fn new(found: Option<Uses>) -> Self {
        Self {
            found,
            exists: found.is_some(),
            rules: found.is_none().then(Rules::default),
            ..Self::default()
        }
    }

    /// Whether more than `few` rules were found in it, or may have been.
    pub(super) fn is_long(&self, few: usize) -> bool {
        let count = match self.found {
            Some(_) if self.exists && self.rules.is_some() => self.rules_found,
            Some(Uses::RulesAndJumps(uses)) if self.exists => uses,
            Some(Uses::Unknown) => return self.exists,
            Some(Uses::RulesAndJumps(_)) | None => return false,
        };
        usize::try_from(count).is_ok_and(|count| count > few)
    }
}

/// Existing rules in order. What steps delete leaves a gap.
#[derive(Default)]
pub(super) struct Rules {
    listed: Vec<Option<RuleInfo>>,
    /// How many are left.
    left: usize,
    /// Made when something is looked up.
    index: Option<Index>,
}

struct Index {
    by_canon: HashMap<Rc<AnyRule>, Vec<usize>>,
    by_id: HashMap<RuleId, usize>,
}

impl Rules {
    pub(super) fn new(listed: impl IntoIterator<Item = RuleInfo>) -> Self {
        let listed: Vec<_> = listed.into_iter().map(Some).collect();
        Self { left: listed.len(), listed, index: None }
    }

    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// The rules that say what `canon` says.
    pub(super) fn find(&mut self, canon: &AnyRule) -> Vec<usize> {
        let found = self.index().by_canon.get(canon).cloned().unwrap_or_default();
        found.into_iter().filter(|at| self.listed.get(*at).is_some_and(Option::is_some)).collect()
    }

    pub(super) fn find_id(&mut self, id: &RuleId) -> Option<usize> {
        let at = self.index().by_id.get(id).copied()?;
        self.listed.get(at)?.is_some().then_some(at)
    }

    /// The rules of which `wanted` is true.
    pub(super) fn filter(&self, wanted: impl Fn(&RuleInfo) -> bool) -> Vec<usize> {
        let all = self.listed.iter().enumerate();
        all.filter(|(_, listed)| listed.as_ref().is_some_and(&wanted)).map(|(at, _)| at).collect()
    }

    pub(super) fn take(&mut self, at: usize) -> Option<RuleInfo> {
        let taken = self.listed.get_mut(at)?.take()?;
        self.left -= 1;
        Some(taken)
    }

    pub(super) fn into_listed(self) -> impl Iterator<Item = RuleInfo> {
        self.listed.into_iter().flatten()
    }

    /// What those say that are understood.
    pub(super) fn canons(&self) -> impl Iterator<Item = &AnyRule> {
        self.listed.iter().flatten().filter_map(|listed| listed.canon().map(|canon| &**canon))
    }

    fn index(&mut self) -> &Index {
        self.index.get_or_insert_with(|| {
            let mut index = Index { by_canon: HashMap::new(), by_id: HashMap::new() };
            for (at, listed) in self.listed.iter().enumerate() {
                let Some(listed) = listed else { continue };
                index.by_id.insert(listed.id.clone(), at);
                if let Some(canon) = listed.canon() {
                    index.by_canon.entry(Rc::clone(canon)).or_default().push(at);
                }
            }
            index
        })
    }
}

/// Rules that steps add, with the indexes of the steps.
#[derive(Default)]
pub(super) struct Added {
    steps: HashMap<Arc<Wanted>, Vec<usize>>,
}

impl Added {
    pub(super) fn push(&mut self, rule: Arc<Wanted>, step: usize) {
        self.steps.entry(rule).or_default().push(step);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn contains(&self, rule: &Wanted) -> bool {
        self.steps.contains_key(rule)
    }

    /// Takes out the rules that say what `rule` says.
    pub(super) fn take(&mut self, rule: &Wanted) -> Vec<(usize, Arc<Wanted>)> {
        let Some((rule, steps)) = self.steps.remove_entry(rule) else { return Vec::new() };
        steps.into_iter().map(|step| (step, Arc::clone(&rule))).collect()
    }

    /// Takes out the rules of which `goes` is true.
    pub(super) fn take_where(&mut self, goes: impl Fn(&Wanted) -> bool) -> Vec<(usize, Arc<Wanted>)> {
        let gone: Vec<_> = self.steps.keys().filter(|rule| goes(rule)).cloned().collect();
        gone.iter().flat_map(|rule| self.take(rule)).collect()
    }
}
