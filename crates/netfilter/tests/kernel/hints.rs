// SPDX-License-Identifier: Apache-2.0
//! Rules are found where an earlier engine put them, and nothing is believed of a place without a look.

use cnibox_netfilter::xt::{Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Engine, Family, Hint, Owner, Position, TableRef};
use ipnetwork::IpNetwork;

use crate::common::{engine, in_netns, run};

const SHARED: &str = "SHARED";

fn source(ip: &str, target: Target) -> Rule {
    Rule::new(vec![Match::source(IpNetwork::from(ip.parse::<std::net::IpAddr>().unwrap()))], target)
}

fn apply(engine: &mut Engine, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    engine.apply(&batch).unwrap();
}

fn filter(batch: &mut Batch) -> cnibox_netfilter::XtChanges<'_> {
    batch.xt(Family::Ipv4, Table::Filter)
}

/// An accepting rule and two jumps to a chain of their own, among those of others.
fn write_rules() -> Vec<Hint> {
    apply(&mut engine(), |batch| {
        let mut changes = filter(batch).ensure_chain(SHARED);
        for other in 1..50 {
            changes = changes.append_rule(SHARED, source(&format!("10.1.0.{other}"), Target::Accept));
        }
    });
    let mut engine = engine();
    apply(&mut engine, |batch| {
        filter(batch)
            .ensure_chain("OWN")
            .ensure_rule("OWN", source("10.0.0.1", Target::Drop), Position::Tail)
            .ensure_rule(SHARED, source("10.0.0.1", Target::Accept), Position::Tail)
            .ensure_rule(SHARED, jump("10.0.0.2"), Position::Tail)
            .ensure_rule(SHARED, jump("10.0.0.3"), Position::Tail);
    });
    engine.added().iter().map(|hint| hint.to_string().parse().unwrap()).collect()
}

fn jump(ip: &str) -> Rule {
    source(ip, Target::Jump("OWN".to_owned()))
}

fn hinted(hints: &[Hint]) -> Engine {
    let mut engine = engine();
    engine.expect(hints.to_vec());
    engine
}

fn remove(hints: &[Hint]) {
    apply(&mut hinted(hints), |batch| {
        filter(batch)
            .delete_rule(SHARED, source("10.0.0.1", Target::Accept))
            .delete_rules_where(SHARED, Owner::JumpsTo("OWN".to_owned()))
            .delete_chain_if_unreferenced("OWN");
    });
}

fn saved() -> String {
    run("iptables-save", &["-t", "filter"])
}

#[test]
fn only_rules_among_others_are_hinted_at() {
    in_netns(|| {
        let hints = write_rules();
        assert_eq!(hints.len(), 3, "{hints:?}");
        assert!(hints.iter().all(|hint| hint.to_string().ends_with(SHARED)), "{hints:?}");
        remove(&hints);
        let left = saved();
        assert!(!left.contains("10.0.0.") && !left.contains("OWN") && left.contains("10.1.0.49"), "{left}");
    });
}

/// Otherwise the hint would not have been what led to it: a listing finds both.
#[test]
fn a_rule_that_a_hint_leads_to_is_deleted_without_a_listing() {
    in_netns(|| {
        let hints = write_rules();
        run("iptables", &["-I", SHARED, "1", "-s", "10.0.0.1/32", "-j", "ACCEPT"]);
        remove(&hints);
        assert_eq!(saved().matches("10.0.0.1/32").count(), 1);
        remove(&[]);
        assert_eq!(saved().matches("10.0.0.1/32").count(), 0);
    });
}

#[test]
fn a_jump_that_no_hint_leads_to_is_counted_and_found() {
    in_netns(|| {
        let hints = write_rules();
        run("iptables", &["-I", SHARED, "1", "-s", "10.0.0.4/32", "-j", "OWN"]);
        remove(&hints);
        let left = saved();
        assert!(!left.contains("10.0.0.") && !left.contains("OWN"), "{left}");
    });
}

/// Handles are given anew when a table is loaded again, so that what stood at one is somebody else's now.
#[test]
fn what_stands_there_now_is_looked_at() {
    in_netns(|| {
        let hints = write_rules();
        let before = saved();
        restore(&before);
        let all: Vec<Hint> =
            (1..200).map(|handle| format!("ip filter {handle} {SHARED}").parse().unwrap()).collect();
        let mut engine = hinted(&all);
        let gone = source("10.0.0.9", Target::Accept);
        let there = source("10.0.0.1", Target::Accept);
        let asked = [gone.clone(), there];
        assert_eq!(
            engine.missing(Family::Ipv4, Table::Filter, SHARED, &asked).unwrap(),
            [&gone],
            "{hints:?}"
        );
        remove(&all);
        let left = saved();
        let others = |text: &str| text.lines().filter(|line| line.contains("10.1.0.")).count();
        assert_eq!(others(&left), others(&before), "{left}");
        assert!(!left.contains("10.0.0.") && !left.contains("OWN"), "{left}");
    });
}

#[test]
fn hints_to_nothing_change_nothing() {
    in_netns(|| {
        let hints = write_rules();
        remove(&hints);
        remove(&hints);
        let mut engine = hinted(&hints);
        let rule = source("10.0.0.1", Target::Accept);
        let missing = engine.missing(Family::Ipv4, Table::Filter, SHARED, std::slice::from_ref(&rule));
        assert_eq!(missing.unwrap().len(), 1);
        let table = TableRef::Xt(Family::Ipv4, Table::Filter);
        assert_eq!(engine.rules(&table, SHARED).unwrap().len(), 49);
    });
}

fn restore(rules: &str) {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut tool = Command::new("iptables-restore")
        .env("PATH", crate::common::path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(tool.wait().unwrap().success());
}
