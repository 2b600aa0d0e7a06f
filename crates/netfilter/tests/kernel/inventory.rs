// SPDX-License-Identifier: Apache-2.0
//! Long chains are not listed as long as it is known what they hold at most, and listed as soon as it may have changed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cnibox_netfilter::xt::{Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Engine, Family, Inventory, Position, Shelf};
use ipnetwork::IpNetwork;

use crate::common::{engine, in_netns, run};

const SHARED: &str = "SHARED";
const MANY: usize = 100;

fn accept(address: &str) -> Rule {
    let address = IpNetwork::from(address.parse::<std::net::IpAddr>().unwrap());
    Rule::new(vec![Match::source(address)], Target::Accept)
}

fn ensure(engine: &mut Engine, table: Table, chain: &str, address: &str) {
    let mut batch = Batch::new();
    batch.xt(Family::Ipv4, table).ensure_chain(chain).ensure_rule(chain, accept(address), Position::Tail);
    engine.apply(&batch).unwrap();
}

/// What one engine keeps for the next, and how often it was read.
#[derive(Clone, Default)]
struct Kept {
    inventory: Arc<Mutex<Option<(u32, Inventory)>>>,
    reads: Arc<AtomicUsize>,
}

impl Shelf for Kept {
    fn inventory(&self, generation: u32) -> Option<Inventory> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let kept = self.inventory.lock().unwrap().clone()?;
        (kept.0 == generation).then_some(kept.1)
    }

    fn keep(&self, generation: u32, inventory: &Inventory) {
        let inventory: Inventory = inventory.to_string().parse().unwrap();
        *self.inventory.lock().unwrap() = Some((generation, inventory)).filter(|(_, kept)| !kept.is_empty());
    }

    fn advance(&self, was: u32, now: u32) {
        if let Some((generation, _)) = &mut *self.inventory.lock().unwrap()
            && *generation == was
        {
            *generation = now;
        }
    }
}

impl Kept {
    fn engine(&self) -> Engine {
        let mut engine = engine();
        engine.keep_inventory(self.clone());
        engine
    }

    fn generation(&self) -> usize {
        self.inventory.lock().unwrap().as_ref().unwrap().0 as usize
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// From now on it says that there is no rule.
    fn forge(&self) {
        let mut kept = self.inventory.lock().unwrap();
        let inventory = &mut kept.as_mut().unwrap().1;
        let chain = inventory.to_string().lines().next().unwrap().to_owned();
        *inventory = format!("{chain}\n\n").parse().unwrap();
    }
}

/// A chain with many rules, read once.
fn long_chain() -> Kept {
    let mut batch = Batch::new();
    let mut changes = batch.xt(Family::Ipv4, Table::Filter).ensure_chain(SHARED);
    for other in 0..MANY {
        changes = changes.append_rule(SHARED, accept(&format!("10.1.0.{other}")));
    }
    let kept = Kept::default();
    kept.engine().apply(&batch).unwrap();
    assert_eq!(*kept.inventory.lock().unwrap(), None);
    ensure(&mut kept.engine(), Table::Filter, SHARED, "10.0.0.1");
    kept
}

fn count(address: &str) -> usize {
    run("iptables", &["-S", SHARED]).matches(&format!("-s {address}/32 ")).count()
}

/// Otherwise the listing would have found the rule.
#[test]
fn what_is_known_to_be_missing_is_not_looked_for() {
    in_netns(|| {
        let kept = long_chain();
        kept.forge();
        ensure(&mut kept.engine(), Table::Filter, SHARED, "10.0.0.1");
        assert_eq!(count("10.0.0.1"), 2);
    });
}

/// Each has a generation of its own; what is known is of the last one's.
#[test]
fn hundreds_of_rules_go_in_several_transactions() {
    in_netns(|| {
        let kept = long_chain();
        let generation = kept.generation();
        let address = |other: usize| format!("10.2.{}.{}", other / 250, other % 250);
        let all = |change: fn(&mut Batch, Rule)| {
            let mut batch = Batch::new();
            (0..MANY_MORE).for_each(|other| change(&mut batch, accept(&address(other))));
            batch
        };
        let added = all(|batch, rule| {
            batch.xt(Family::Ipv4, Table::Filter).append_rule(SHARED, rule);
        });
        let removed = all(|batch, rule| {
            batch.xt(Family::Ipv4, Table::Filter).delete_rule(SHARED, rule);
        });
        let mut engine = kept.engine();
        engine.apply(&added).unwrap();
        engine.clear(&removed).unwrap();
        assert_eq!(run("iptables", &["-S", SHARED]).lines().count(), 1 + MANY + 1);
        assert_eq!(kept.generation() - generation, 1 + MANY_MORE.div_ceil(512));
        kept.forge();
        ensure(&mut kept.engine(), Table::Filter, SHARED, "10.0.0.1");
        assert_eq!(count("10.0.0.1"), 2);
    });
}

const MANY_MORE: usize = 1100;

#[test]
fn a_change_by_anybody_ends_what_is_known() {
    in_netns(|| {
        let kept = long_chain();
        kept.forge();
        let generation = kept.generation();
        run("iptables", &["-A", "INPUT", "-s", "10.9.0.1", "-j", "ACCEPT"]);
        ensure(&mut kept.engine(), Table::Filter, SHARED, "10.0.0.1");
        assert_eq!(count("10.0.0.1"), 1);
        // It was read for that, and nothing had to be changed.
        assert_eq!(kept.generation(), generation);
        ensure(&mut kept.engine(), Table::Filter, SHARED, "10.0.0.2");
        ensure(&mut kept.engine(), Table::Filter, SHARED, "10.0.0.2");
        assert_eq!(count("10.0.0.2"), 1);
        assert!(kept.generation() > generation);
    });
}

#[test]
fn it_is_carried_from_change_to_change_and_no_rule_is_there_twice() {
    in_netns(|| {
        let kept = long_chain();
        for round in 0..3 {
            ensure(&mut kept.engine(), Table::Nat, "OTHER", &format!("10.2.0.{round}"));
            let mut engine = kept.engine();
            ensure(&mut engine, Table::Filter, SHARED, &format!("10.3.0.{round}"));
            let mut gone = Batch::new();
            gone.xt(Family::Ipv4, Table::Filter).delete_rule(SHARED, accept("10.1.0.7"));
            let (generation, reads) = (kept.generation(), kept.reads());
            engine.apply(&gone).unwrap();
            assert_eq!((kept.generation(), kept.reads()), (generation + 1, reads), "to take away needs none");
            ensure(&mut engine, Table::Filter, SHARED, "10.1.0.7");
        }
        for round in 0..3 {
            ensure(&mut kept.engine(), Table::Filter, SHARED, &format!("10.3.0.{round}"));
            assert_eq!(count(&format!("10.3.0.{round}")), 1);
        }
        assert_eq!((count("10.1.0.7"), count("10.0.0.1")), (1, 1));
        assert_eq!(run("iptables", &["-S", SHARED]).lines().count(), 1 + MANY + 1 + 3);
    });
}
