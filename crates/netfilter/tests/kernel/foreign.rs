// SPDX-License-Identifier: Apache-2.0
//! Rules of others in chains that are ours: whatever they are, they stop nothing and stay.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::slice::from_ref;

use cnibox_netfilter::xt::{Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Engine, Family, Owner, Position, TableRef};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

use crate::common::{engine, in_netns, path, run};
use crate::dump;

const OWN: &str = "OWN";

fn own(text: &str) -> Rule {
    Rule::new(vec![Match::comment(text)], Target::Return)
}

fn apply(engine: &mut Engine, fill: impl FnOnce(cnibox_netfilter::XtChanges<'_>)) {
    let mut batch = Batch::new();
    fill(batch.xt(Family::Ipv4, Table::Filter));
    engine.apply(&batch).unwrap();
}

fn write_own() {
    apply(&mut engine(), |changes| {
        changes
            .ensure_chain(OWN)
            .ensure_rule("FORWARD", own("entry"), Position::Tail)
            .ensure_rule(OWN, own("first"), Position::Head)
            .ensure_rule(OWN, own("last"), Position::Tail);
    });
}

/// Rules with what this crate does not know, cannot read, or would take for its own if it read them carelessly.
fn write_foreign() -> usize {
    let comment = OsStr::from_bytes(b"first\xff\xfe");
    let mut tool = Command::new("iptables");
    tool.env("PATH", path())
        .args(["-A", OWN, "-m", "comment", "--comment"])
        .arg(comment)
        .args(["-j", "RETURN"]);
    assert!(tool.status().unwrap().success());
    for words in ["-m limit --limit 5/min", "-m comment --comment first -m limit --limit 5/min"] {
        let words: Vec<&str> = ["-I", OWN, "1"].into_iter().chain(words.split(' ')).collect();
        run("iptables", &[words.as_slice(), &["-j", "RETURN"]].concat());
    }
    let rules = [
        "tcp dport { 1, 2, 3 } accept",
        "meta mark set 0x1",
        "ip saddr & 255.0.255.0 == 10.0.1.0 return",
        "ct state established return comment \"first\"",
    ];
    for rule in rules {
        let words: Vec<&str> =
            ["insert", "rule", "ip", "filter", OWN].into_iter().chain(rule.split(' ')).collect();
        run("nft", &words);
    }
    let long = "ip saddr != 10.0.0.7 ".repeat(50);
    run("nft", &["add", "rule", "ip", "filter", OWN, &long, "counter"]);
    odd_chain();
    3 + rules.len() + 2
}

/// A chain whose name is no text, and a rule that jumps to it.
fn odd_chain() {
    let name = b"\xff\xfe odd\0";
    let attr = |kind: u16, value: &[u8]| {
        let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let nested = |kind: u16, parts: &[Vec<u8>]| attr(kind | 0x8000, &parts.concat());
    let message = |kind: u16, flags: u16, header: [u8; 4], attrs: &[Vec<u8>]| {
        let body = attrs.concat();
        let mut bytes = u32::try_from(20 + body.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((1 | flags).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(header);
        bytes.extend(body);
        bytes
    };
    let (batch, ip) = ([0, 0, 0, 10], [2, 0, 0, 0]);
    let jump = nested(2, &[attr(1, &(-3i32).to_be_bytes()), attr(2, name)]);
    let immediate = nested(2, &[attr(1, &0u32.to_be_bytes()), nested(2, &[jump])]);
    let expr = nested(1, &[attr(1, b"immediate\0"), immediate]);
    let all = [
        message(0x10, 0, batch, &[]),
        message(0x0a03, 0x400, ip, &[attr(1, b"filter\0"), attr(3, name)]),
        message(0x0a06, 0xc00, ip, &[attr(1, b"filter\0"), attr(2, b"OWN\0"), nested(4, &[expr])]),
        message(0x11, 0, batch, &[]),
    ];
    let socket = Socket::new(NETLINK_NETFILTER).unwrap();
    socket.send_to(&all.concat(), &SocketAddr::new(0, 0), 0).unwrap();
}

fn rules_of_own() -> Vec<dump::Rule> {
    dump::rules(2).into_iter().filter(|(chain, ..)| chain == "filter/OWN").collect()
}

#[test]
fn foreign_rules_stop_nothing_and_stay() {
    in_netns(|| {
        write_own();
        let foreign = write_foreign();
        assert_eq!(rules_of_own().len(), foreign + 2);
        let table = TableRef::Xt(Family::Ipv4, Table::Filter);
        let mut engine = engine();
        let listed = engine.rules(&table, OWN).unwrap();
        assert_eq!(listed.len(), foreign + 2);
        assert_eq!(listed.iter().filter(|rule| rule.xt().is_some()).count(), 2, "{listed:#?}");

        let before = rules_of_own();
        write_own();
        assert_eq!(rules_of_own(), before);
        for rule in [own("first"), own("last")] {
            assert!(engine.missing(Family::Ipv4, Table::Filter, OWN, from_ref(&rule)).unwrap().is_empty());
        }
        apply(&mut engine, |changes| {
            changes
                .delete_rule(OWN, own("first"))
                .delete_rules_where(OWN, Owner::Comment("last".to_owned()))
                .delete_rules_where(OWN, Owner::JumpsTo("odd".to_owned()));
        });
        assert_eq!(rules_of_own().len(), foreign);
        assert_eq!(
            engine.missing(Family::Ipv4, Table::Filter, OWN, &[own("first"), own("last")]).unwrap().len(),
            2
        );
        apply(&mut engine, |changes| {
            changes.flush_chain(OWN);
        });
        assert_eq!(rules_of_own().len(), 0);
    });
}

/// What a batch still needs is said before it is done, and nothing after.
#[test]
fn steps_are_shown_until_they_are_done() {
    in_netns(|| {
        let mut batch = Batch::new();
        batch.xt(Family::Ipv4, Table::Filter).ensure_chain(OWN).ensure_rule(OWN, own("a b"), Position::Head);
        let mut engine = engine();
        let needed: Vec<_> = engine.needed(&batch).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            needed,
            [
                "create table \"ip filter\"",
                "create chain \"OWN\" in table \"ip filter\"",
                "add rule to chain \"OWN\" of table \"ip filter\", head: -m comment --comment \"a b\" -j RETURN",
            ]
        );
        assert_eq!(run("nft", &["list", "ruleset"]), "");
        engine.apply(&batch).unwrap();
        assert_eq!(engine.needed(&batch).unwrap(), []);
    });
}
