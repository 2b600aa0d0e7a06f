// SPDX-License-Identifier: Apache-2.0
//! Plans against chains in memory.

use super::*;
use crate::batch::Batch;
use crate::known::{Kept, Shelf};
use crate::xt::{Family, Match, Rule, Table, Target};

/// Chains of one table, and how often they were read.
#[derive(Default)]
struct Memory {
    chains: HashMap<String, Vec<RuleInfo>>,
    listings: usize,
    single: usize,
}

impl Memory {
    fn with(mut self, chain: &str, rules: &[Rule]) -> Self {
        let listed = |(at, rule): (usize, &Rule)| {
            let canon = rule.clone().canon(Family::Ipv4).expect("a plain rule");
            RuleInfo::known(RuleId::Handle(at as u64), canon.into())
        };
        self.chains.insert(chain.to_owned(), rules.iter().enumerate().map(listed).collect());
        self
    }
}

impl Reader for Memory {
    fn has_table(&mut self, _: &TableRef) -> Result<bool> {
        Ok(true)
    }

    fn chain(&mut self, _: &TableRef, chain: &str) -> Result<Option<Uses>> {
        let own = |rules: &Vec<RuleInfo>| rules.len();
        let jumps = self.chains.values().flatten().filter(|rule| rule.jump() == Some(chain)).count();
        let uses = self.chains.get(chain).map(own).map(|own| u32::try_from(own + jumps).expect("few"));
        Ok(uses.map(Uses::RulesAndJumps))
    }

    fn rules(&mut self, _: &TableRef, chain: &str) -> Result<Vec<RuleInfo>> {
        self.listings += 1;
        Ok(self.chains.get(chain).cloned().unwrap_or_default())
    }

    fn rule(&mut self, _: &TableRef, chain: &str, id: &RuleId) -> Result<Option<RuleInfo>> {
        self.single += 1;
        Ok(self.chains.get(chain).and_then(|rules| rules.iter().find(|rule| rule.id == *id)).cloned())
    }
}

fn rule(number: usize) -> Rule {
    Rule::new(vec![Match::comment(number.to_string())], Target::Return)
}

fn jump(to: &str) -> Rule {
    Rule::new(vec![], Target::Jump(to.to_owned()))
}

fn steps(memory: &mut Memory, hints: &[Hint], fill: impl FnOnce(crate::batch::XtChanges<'_>)) -> Vec<Step> {
    let mut batch = Batch::new();
    fill(batch.xt(Family::Ipv4, Table::Nat));
    let changes: Vec<_> = batch.changes().iter().collect();
    plan(&changes, Known { hints, guard: Guard::Generation, kept: None }, memory).unwrap().steps
}

fn shown(steps: &[Step]) -> Vec<String> {
    steps.iter().map(Step::to_string).collect()
}

#[test]
fn what_is_there_needs_no_step_and_one_reading() {
    let all: Vec<_> = (0..500).map(rule).collect();
    let mut memory = Memory::default().with("OWN", &all[..400]);
    let added = steps(&mut memory, &[], |mut changes| {
        for rule in &all {
            changes = changes.ensure_rule("OWN", rule.clone(), Position::Tail);
            changes = changes.ensure_rule("OWN", rule.clone(), Position::Tail);
        }
    });
    assert_eq!((added.len(), memory.listings), (100, 1));
    let removed = steps(&mut memory, &[], |mut changes| {
        for rule in &all {
            changes = changes.delete_rule("OWN", rule.clone());
        }
    });
    assert_eq!((removed.len(), memory.listings), (400, 2));
    let most = steps(&mut memory, &[], |mut changes| {
        for rule in &all[1..] {
            changes = changes.delete_rule("OWN", rule.clone());
        }
    });
    assert_eq!(most.len(), 399);
}

#[test]
fn what_was_added_is_withdrawn_by_the_same_batch() {
    let mut memory = Memory::default();
    let left = steps(&mut memory, &[], |changes| {
        changes
            .ensure_chain("OWN")
            .append_rule("OWN", rule(1))
            .append_rule("OWN", rule(1))
            .append_rule("OWN", rule(2))
            .append_rule("OWN", jump("OWN"))
            .delete_rule("OWN", rule(1))
            .delete_rules_where("OWN", Owner::JumpsTo("OWN".to_owned()));
    });
    assert_eq!(
        shown(&left),
        [
            "create chain \"OWN\" in table \"ip nat\"",
            "add rule to chain \"OWN\" of table \"ip nat\", tail: -m comment --comment 2 -j RETURN",
        ]
    );
}

#[test]
fn every_rule_that_says_the_same_goes() {
    let mut memory = Memory::default().with("OWN", &[rule(1), rule(2), rule(1)]);
    let left = steps(&mut memory, &[], |changes| {
        changes.delete_rule("OWN", rule(1));
    });
    let words = "delete rule from chain \"OWN\" of table \"ip nat\": handle";
    assert_eq!(shown(&left), [format!("{words} 0"), format!("{words} 2")]);
}

#[test]
fn many_rules_that_are_all_there_is_go_as_such() {
    let own = |text: &str| Rule::new(vec![Match::comment("own"), Match::comment(text)], Target::Return);
    let all: Vec<_> = (0..100).map(|number| own(&number.to_string())).collect();
    let delete = |memory: &mut Memory, guard| {
        let mut batch = Batch::new();
        batch.xt(Family::Ipv4, Table::Nat).delete_rules_where("OWN", Owner::Comment("own".to_owned()));
        let changes: Vec<_> = batch.changes().iter().collect();
        plan(&changes, Known { guard, ..Known::NOTHING }, memory).unwrap().steps
    };
    let mut memory = Memory::default().with("OWN", &all);
    assert_eq!(shown(&delete(&mut memory, Guard::Generation)), ["flush chain \"OWN\" of table \"ip nat\""]);
    assert_eq!(delete(&mut memory, Guard::Nothing).len(), 100);
    let mut memory = Memory::default().with("OWN", &[all.as_slice(), &[rule(1)]].concat());
    assert_eq!(delete(&mut memory, Guard::Generation).len(), 100);
}

#[test]
fn hints_are_looked_at_once_for_all_rules() {
    let all: Vec<_> = (0..50).map(rule).collect();
    let mut memory = Memory::default().with("SHARED", &all);
    let hints: Vec<Hint> = (0..40).map(|at| format!("ip nat {at} SHARED").parse().unwrap()).collect();
    let removed = steps(&mut memory, &hints, |mut changes| {
        for rule in &all[..40] {
            changes = changes.delete_rule("SHARED", rule.clone());
        }
    });
    assert_eq!((removed.len(), memory.single, memory.listings), (40, 40, 0));
}

#[test]
fn a_rule_deleted_by_its_handle_is_not_deleted_again() {
    let mut memory = Memory::default().with("SHARED", &[rule(0), rule(1)]);
    let hints: Vec<Hint> = vec!["ip nat 0 SHARED".parse().unwrap(), "ip nat 1 SHARED".parse().unwrap()];
    let removed = steps(&mut memory, &hints, |changes| {
        changes
            .delete_rule("SHARED", rule(1))
            .delete_found("SHARED", RuleId::Handle(0))
            .delete_found("SHARED", RuleId::Handle(0))
            .delete_rule("SHARED", rule(0))
            .delete_rule("SHARED", rule(1));
    });
    assert_eq!(removed.len(), 2, "{removed:?}");
}

#[test]
fn a_chain_that_others_jump_to_stays() {
    let mut memory = Memory::default().with("OWN", &[rule(1)]).with("SHARED", &[jump("OWN"), rule(1)]);
    let left = steps(&mut memory, &[], |changes| {
        changes.delete_chain_if_unreferenced("OWN");
    });
    assert_eq!(left, []);
    let gone = steps(&mut memory, &[], |changes| {
        changes
            .delete_rules_where("SHARED", Owner::JumpsTo("OWN".to_owned()))
            .delete_chain_if_unreferenced("OWN");
    });
    assert_eq!(gone.len(), 2);
}

/// The rules are in the chain in truth: the planner believes what it knows.
#[test]
fn what_a_chain_is_known_to_lack_is_not_looked_for() {
    let all: Vec<_> = (0..100).map(rule).collect();
    let mut memory = Memory::default().with("SHARED", &all);
    let table = TableRef::Xt(Family::Ipv4, Table::Nat);
    let ensure = |memory: &mut Memory, inventory: Option<&Inventory>, rules: &[Rule]| {
        let mut batch = Batch::new();
        for rule in rules {
            batch.xt(Family::Ipv4, Table::Nat).ensure_rule("SHARED", rule.clone(), Position::Tail);
        }
        let changes: Vec<_> = batch.changes().iter().collect();
        let shelf = inventory.cloned().map(OnShelf);
        let kept = shelf.as_ref().map(|shelf| Kept::new(shelf, 7));
        plan(&changes, Known { hints: &[], guard: Guard::Generation, kept: kept.as_ref() }, memory).unwrap()
    };
    let first = ensure(&mut memory, None, &[rule(1), rule(200)]);
    assert_eq!((first.steps.len(), memory.listings), (1, 1));
    let inventory = learned(&first, Inventory::default()).unwrap();
    let next = ensure(&mut memory, Some(&inventory), &[rule(300), rule(301), rule(300)]);
    assert_eq!((next.steps.len(), memory.listings), (2, 1));
    // Added meanwhile, or there all the time: only a listing tells.
    let there = ensure(&mut memory, Some(&inventory), &[rule(5)]);
    assert_eq!((there.steps.len(), memory.listings), (0, 2));
    let nothing = Inventory::default();
    assert!(!nothing.lacks(&table, "SHARED", "-j RETURN"));
    assert!(learned(&next, nothing).unwrap().is_empty());
    let next = learned(&next, inventory.clone()).unwrap();
    assert!(next != inventory && next.lacks(&table, "SHARED", "-j RETURN"));
}

/// The inventory of generation 7.
struct OnShelf(Inventory);

impl Shelf for OnShelf {
    fn inventory(&self, generation: u32) -> Option<Inventory> {
        (generation == 7).then(|| self.0.clone())
    }

    fn keep(&self, _: u32, _: &Inventory) {}

    fn advance(&self, _: u32, _: u32) {}
}

fn learned(plan: &Plan, mut inventory: Inventory) -> Option<Inventory> {
    plan.lesson()?(&mut inventory);
    Some(inventory)
}

#[test]
fn what_only_takes_away_teaches_nothing() {
    let all: Vec<_> = (0..100).map(rule).collect();
    let mut memory = Memory::default().with("SHARED", &all);
    let mut batch = Batch::new();
    batch.xt(Family::Ipv4, Table::Nat).delete_rule("SHARED", rule(3)).delete_chain_if_unreferenced("OWN");
    let changes: Vec<_> = batch.changes().iter().collect();
    let plan = plan(&changes, Known::NOTHING, &mut memory).unwrap();
    assert_eq!((plan.steps.len(), learned(&plan, Inventory::default())), (1, None));
}

#[test]
fn short_chains_are_read_again_each_time() {
    let all: Vec<_> = (0..60).map(rule).collect();
    let mut memory = Memory::default().with("SHARED", &all);
    let mut batch = Batch::new();
    batch.xt(Family::Ipv4, Table::Nat).ensure_rule("SHARED", rule(200), Position::Tail);
    let changes: Vec<_> = batch.changes().iter().collect();
    let plan = plan(&changes, Known::NOTHING, &mut memory).unwrap();
    assert_eq!((plan.steps.len(), learned(&plan, Inventory::default())), (1, Some(Inventory::default())));
    let mut known = Inventory::default();
    known.note(&TableRef::Xt(Family::Ipv4, Table::Nat), "SHARED", &["of when it was long".to_owned()]);
    assert!(learned(&plan, known).unwrap().is_empty());
}
