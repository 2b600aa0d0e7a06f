// SPDX-License-Identifier: Apache-2.0
//! Long chains are not listed as long as it is known what they hold at most, and listed as soon as it may have changed.

use cnibox_netfilter::xt::{Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Engine, Family, Inventory, Position};
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

/// A chain with many rules, read once.
fn long_chain() -> Inventory {
    let mut batch = Batch::new();
    let mut changes = batch.xt(Family::Ipv4, Table::Filter).ensure_chain(SHARED);
    for other in 0..MANY {
        changes = changes.append_rule(SHARED, accept(&format!("10.1.0.{other}")));
    }
    let mut first = engine();
    first.apply(&batch).unwrap();
    assert_eq!(first.inventory(), None);
    let mut engine = engine();
    ensure(&mut engine, Table::Filter, SHARED, "10.0.0.1");
    engine.inventory().unwrap().clone()
}

fn expecting(inventory: &Inventory) -> Engine {
    let mut engine = engine();
    engine.expect_at_most(inventory.to_string().parse().unwrap());
    engine
}

/// The same, but it says that there is no rule.
fn forged(inventory: &Inventory) -> Inventory {
    let text = inventory.to_string();
    let mut lines = text.lines();
    let (generation, chain) = (lines.next().unwrap(), lines.next().unwrap());
    format!("{generation}\n{chain}\n\n").parse().unwrap()
}

fn count(address: &str) -> usize {
    run("iptables", &["-S", SHARED]).matches(&format!("-s {address}/32 ")).count()
}

/// Otherwise the listing would have found the rule.
#[test]
fn what_is_known_to_be_missing_is_not_looked_for() {
    in_netns(|| {
        let inventory = forged(&long_chain());
        ensure(&mut expecting(&inventory), Table::Filter, SHARED, "10.0.0.1");
        assert_eq!(count("10.0.0.1"), 2);
    });
}

/// Each has a generation of its own; what is known is of the last one's.
#[test]
fn hundreds_of_rules_go_in_several_transactions() {
    in_netns(|| {
        let inventory = long_chain();
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
        let mut engine = expecting(&inventory);
        engine.apply(&added).unwrap();
        engine.clear(&removed).unwrap();
        assert_eq!(run("iptables", &["-S", SHARED]).lines().count(), 1 + MANY + 1);
        let left = engine.inventory().unwrap();
        assert_eq!(generation(left) - generation(&inventory), 1 + MANY_MORE.div_ceil(512));
        ensure(&mut expecting(&forged(left)), Table::Filter, SHARED, "10.0.0.1");
        assert_eq!(count("10.0.0.1"), 2);
    });
}

const MANY_MORE: usize = 1100;

fn generation(inventory: &Inventory) -> usize {
    inventory.to_string().lines().next().unwrap().parse().unwrap()
}

#[test]
fn a_change_by_anybody_ends_what_is_known() {
    in_netns(|| {
        let inventory = forged(&long_chain());
        run("iptables", &["-A", "INPUT", "-s", "10.9.0.1", "-j", "ACCEPT"]);
        let mut engine = expecting(&inventory);
        ensure(&mut engine, Table::Filter, SHARED, "10.0.0.1");
        assert_eq!(count("10.0.0.1"), 1);
        assert_eq!(engine.inventory(), None);
        // It was read for that, and nothing had to be changed.
        ensure(&mut engine, Table::Filter, SHARED, "10.0.0.2");
        ensure(&mut expecting(engine.inventory().unwrap()), Table::Filter, SHARED, "10.0.0.2");
        assert_eq!(count("10.0.0.2"), 1);
    });
}

#[test]
fn it_is_carried_from_change_to_change_and_no_rule_is_there_twice() {
    in_netns(|| {
        let mut inventory = long_chain();
        for round in 0..3 {
            let mut other = expecting(&inventory);
            ensure(&mut other, Table::Nat, "OTHER", &format!("10.2.0.{round}"));
            let mut engine = expecting(other.inventory().unwrap());
            ensure(&mut engine, Table::Filter, SHARED, &format!("10.3.0.{round}"));
            let mut gone = Batch::new();
            gone.xt(Family::Ipv4, Table::Filter).delete_rule(SHARED, accept("10.1.0.7"));
            engine.apply(&gone).unwrap();
            ensure(&mut engine, Table::Filter, SHARED, "10.1.0.7");
            inventory = engine.inventory().unwrap().clone();
        }
        for round in 0..3 {
            ensure(&mut expecting(&inventory), Table::Filter, SHARED, &format!("10.3.0.{round}"));
            assert_eq!(count(&format!("10.3.0.{round}")), 1);
        }
        assert_eq!((count("10.1.0.7"), count("10.0.0.1")), (1, 1));
        assert_eq!(run("iptables", &["-S", SHARED]).lines().count(), 1 + MANY + 1 + 3);
    });
}
