// SPDX-License-Identifier: Apache-2.0
//! The iptables dialect against the installed iptables-nft.

use std::slice::from_ref;

use cnibox_netfilter::xt::{Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Choice, Engine, Family, Owner, Position, TableRef};
use cnibox_testkit::skip;

use crate::cases::{self, CHAINS, Case};
use crate::common::{engine, in_netns, path, run};
use crate::dump;

const FAMILIES: [(Family, u8); 2] = [(Family::Ipv4, 2), (Family::Ipv6, 10)];

fn tool(case: &Case, verb: &str) -> Vec<String> {
    let head = ["-t", case.table.name(), verb, case.chain];
    head.into_iter().map(str::to_owned).chain(case.rule.to_args()).collect()
}

fn run_tool(case: &Case, verb: &str) -> String {
    let args = tool(case, verb);
    run(case.family.tool(), &args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Writes all cases with the tool, one process each.
fn write_with_tool() {
    for (family, _) in FAMILIES {
        for (table, chain) in CHAINS {
            run(family.tool(), &["-t", table.name(), "-N", chain]);
        }
    }
    for case in cases::all() {
        run_tool(&case, "-A");
    }
}

/// All cases as one batch.
fn batch_of_all() -> Batch {
    let mut batch = Batch::new();
    for (family, _) in FAMILIES {
        for (table, chain) in CHAINS {
            batch.xt(family, table).ensure_chain(chain);
        }
    }
    for case in cases::all() {
        batch.xt(case.family, case.table).append_rule(case.chain, case.rule);
    }
    batch
}

fn save(family: Family) -> String {
    let text = run(&format!("{}-save", family.tool()), &[]);
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// True up to iptables 1.8.9. From 1.8.11 on the tool writes another order for IPv4 (addresses before the protocol, and that
/// as a field of the packet's header); every version reads both, which the listings compared here show.
fn tool_writes_our_bytes() -> bool {
    let version = run("iptables", &["--version"]);
    let patch = version.split("v1.8.").nth(1).and_then(|rest| rest.split(' ').next());
    patch.and_then(|patch| patch.parse::<u32>().ok()).is_some_and(|patch| patch <= 9)
}

#[test]
fn writes_the_same_bytes_as_the_tool() {
    in_netns(|| {
        write_with_tool();
        let saved = FAMILIES.map(|(family, _)| save(family));
        let wanted = FAMILIES.map(|(_, number)| (dump::chains(number), dump::rules(number)));
        run("nft", &["flush", "ruleset"]);
        engine().apply(&batch_of_all()).unwrap();
        for (index, (family, number)) in FAMILIES.into_iter().enumerate() {
            assert_eq!(wanted[index].0, dump::chains(number));
            let cases = cases::all().into_iter().filter(|case| case.family == family).count();
            assert_eq!(cases, dump::rules(number).len());
            if tool_writes_our_bytes() {
                for (wanted, ours) in wanted[index].1.iter().zip(dump::rules(number)) {
                    assert_eq!(*wanted, ours);
                }
            } else {
                skip("another version of iptables: its bytes are not compared, only its listings");
            }
            assert_eq!(saved[index], save(family));
        }
    });
}

#[test]
fn creates_every_builtin_chain_as_the_tool_does() {
    let chains = [
        (Table::Filter, ["INPUT", "FORWARD", "OUTPUT"].as_slice()),
        (Table::Nat, ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"].as_slice()),
    ];
    in_netns(move || {
        let rule = || Rule::new(vec![], Target::Accept);
        let mut batch = Batch::new();
        for (family, _) in FAMILIES {
            for (table, names) in chains {
                for chain in names {
                    run(family.tool(), &["-t", table.name(), "-A", chain, "-j", "ACCEPT"]);
                    batch.xt(family, table).ensure_rule(*chain, rule(), Position::Tail);
                }
            }
        }
        let wanted = FAMILIES.map(|(_, number)| (dump::chains(number), dump::rules(number)));
        run("nft", &["flush", "ruleset"]);
        engine().apply(&batch).unwrap();
        assert_eq!(wanted, FAMILIES.map(|(_, number)| (dump::chains(number), dump::rules(number))));
    });
}

#[test]
fn tool_finds_and_deletes_our_rules() {
    in_netns(|| {
        engine().apply(&batch_of_all()).unwrap();
        for case in cases::all() {
            run_tool(&case, "-C");
            run_tool(&case, "-D");
        }
        for (family, _) in FAMILIES {
            for (table, chain) in CHAINS {
                run(family.tool(), &["-t", table.name(), "-X", chain]);
            }
        }
        assert!(dump::rules(2).is_empty() && dump::rules(10).is_empty());
    });
}

#[test]
fn finds_and_deletes_rules_of_the_tool() {
    in_netns(|| {
        write_with_tool();
        let before = FAMILIES.map(|(_, number)| dump::rules(number));
        let mut engine = engine();
        let (mut ensure, mut delete) = (Batch::new(), Batch::new());
        for case in cases::all() {
            assert!(
                engine.missing(case.family, case.table, case.chain, from_ref(&case.rule)).unwrap().is_empty()
            );
            let table = TableRef::Xt(case.family, case.table);
            let listed = engine.rules(&table, case.chain).unwrap();
            let decoded = |info: &cnibox_netfilter::RuleInfo| {
                info.xt().is_some_and(|rule| *rule == case.rule.canonical(case.family))
            };
            assert!(listed.iter().any(decoded), "{:?} not among {listed:#?}", case.rule);
            batch_at(&mut ensure, &case);
            delete = delete_rule(delete, &case);
        }
        engine.apply(&ensure).unwrap();
        assert_eq!(before, FAMILIES.map(|(_, number)| dump::rules(number)));
        engine.apply(&delete).unwrap();
        engine.apply(&delete).unwrap();
        assert!(dump::rules(2).is_empty() && dump::rules(10).is_empty());
    });
}

fn batch_at(batch: &mut Batch, case: &Case) {
    batch.xt(case.family, case.table).ensure_rule(case.chain, case.rule.clone(), Position::Head);
}

fn delete_rule(mut batch: Batch, case: &Case) -> Batch {
    batch.xt(case.family, case.table).delete_rule(case.chain, case.rule.clone());
    batch
}

#[test]
fn leaves_the_policy_of_builtin_chains_alone() {
    in_netns(|| {
        run("iptables", &["-P", "FORWARD", "DROP"]);
        let mut batch = Batch::new();
        batch.xt(Family::Ipv4, Table::Filter).ensure_rule(
            "FORWARD",
            Rule::new(vec![], Target::Return),
            Position::Head,
        );
        engine().apply(&batch).unwrap();
        assert_eq!(run("iptables", &["-S", "FORWARD"]), "-P FORWARD DROP\n-A FORWARD -j RETURN\n");
    });
}

/// The kernel sends rules back that were put among others; of so many its answers would not fit the socket.
#[test]
fn many_rules_go_among_others_at_once() {
    in_netns(|| {
        let rule = |number: usize| Rule::new(vec![Match::Comment(number.to_string())], Target::Return);
        let table = TableRef::Xt(Family::Ipv4, Table::Filter);
        for count in [1, 1500, 3000] {
            let (mut batch, mut engine) = (Batch::new(), engine());
            for number in 0..count {
                let changes = batch.xt(Family::Ipv4, Table::Filter).ensure_chain("SHARED");
                changes.ensure_rule("SHARED", rule(number), Position::Tail);
            }
            engine.apply(&batch).unwrap();
            assert_eq!(engine.rules(&table, "SHARED").unwrap().len(), count);
            assert_eq!(engine.added().len(), if count == 1 { 0 } else { 64 });
        }
    });
}

fn jump_rule(text: &str) -> Rule {
    Rule::new(vec![Match::comment(text)], Target::Jump("OWN".into()))
}

#[test]
fn keeps_head_and_tail_order() {
    in_netns(|| {
        let rule = |text: &str| Rule::new(vec![Match::comment(text)], Target::Return);
        let mut batch = Batch::new();
        batch
            .xt(Family::Ipv4, Table::Filter)
            .ensure_rule("FORWARD", rule("one"), Position::Tail)
            .ensure_rule("FORWARD", rule("two"), Position::Head)
            .ensure_rule("FORWARD", rule("three"), Position::Head)
            .ensure_rule("FORWARD", rule("one"), Position::Head)
            .ensure_rule("FORWARD", rule("four"), Position::Tail);
        engine().apply(&batch).unwrap();
        engine().apply(&batch).unwrap();
        let comments: Vec<_> = engine()
            .rules(&TableRef::Xt(Family::Ipv4, Table::Filter), "FORWARD")
            .unwrap()
            .iter()
            .filter_map(|rule| rule.comment().map(str::to_owned))
            .collect();
        assert_eq!(comments, ["three", "two", "one", "four"]);
    });
}

/// One container's chain with its rules, the jumps to it, and their removal, by each transport.
fn chain_life(mut engine: Engine) {
    let nat = || TableRef::Xt(Family::Ipv4, Table::Nat);
    run("iptables", &["-t", "nat", "-A", "POSTROUTING", "-s", "9.9.9.9", "-j", "ACCEPT"]);
    let mut add = Batch::new();
    add.xt(Family::Ipv4, Table::Nat)
        .ensure_chain("OWN")
        .ensure_rule("OWN", Rule::new(vec![Match::comment("a \"b\"")], Target::Masquerade), Position::Tail)
        .ensure_rule("POSTROUTING", jump_rule("first"), Position::Tail)
        .ensure_rule("POSTROUTING", jump_rule("second"), Position::Head);
    engine.apply(&add).unwrap();
    engine.apply(&add).unwrap();
    assert_eq!(engine.rules(&nat(), "OWN").unwrap().len(), 1);
    assert!(
        engine.missing(Family::Ipv4, Table::Nat, "POSTROUTING", &[jump_rule("second")]).unwrap().is_empty()
    );

    let mut only_chain = Batch::new();
    only_chain.xt(Family::Ipv4, Table::Nat).delete_chain("OWN");
    let busy = engine.apply(&only_chain).unwrap_err();
    let said = busy.to_string().to_lowercase();
    assert!(["device or resource busy", "too many links"].iter().any(|words| said.contains(words)), "{busy}");
    assert_eq!(engine.rules(&nat(), "POSTROUTING").unwrap().len(), 3);

    let mut one = Batch::new();
    one.xt(Family::Ipv4, Table::Nat)
        .delete_rule("POSTROUTING", jump_rule("first"))
        .delete_chain_if_unreferenced("OWN");
    engine.apply(&one).unwrap();
    assert_eq!(engine.rules(&nat(), "OWN").unwrap().len(), 1);

    let mut rest = Batch::new();
    rest.xt(Family::Ipv4, Table::Nat)
        .delete_rules_where("POSTROUTING", Owner::JumpsTo("OWN".into()))
        .delete_chain_if_unreferenced("OWN");
    engine.apply(&rest).unwrap();
    engine.apply(&rest).unwrap();
    engine.apply(&only_chain).unwrap();
    assert!(!engine.chain_exists(&nat(), "OWN").unwrap());
    let left = run("iptables", &["-t", "nat", "-S", "POSTROUTING"]);
    assert_eq!(left, "-P POSTROUTING ACCEPT\n-A POSTROUTING -s 9.9.9.9/32 -j ACCEPT\n");
}

#[test]
fn chain_comes_and_goes_over_netlink() {
    in_netns(|| chain_life(engine()));
}

#[test]
fn chain_comes_and_goes_with_the_tool() {
    in_netns(|| chain_life(Engine::open(Choice::Exec, &path())));
}

#[test]
fn restore_writes_the_same_rules() {
    in_netns(|| {
        write_with_tool();
        let saved = FAMILIES.map(|(family, _)| save(family));
        run("nft", &["flush", "ruleset"]);
        let mut exec = Engine::open(Choice::Exec, &path());
        exec.apply(&batch_of_all()).unwrap();
        assert_eq!(saved, FAMILIES.map(|(family, _)| save(family)));
        for case in cases::all() {
            assert!(
                exec.missing(case.family, case.table, case.chain, from_ref(&case.rule)).unwrap().is_empty(),
                "{:?}",
                case.rule
            );
        }
        let mut again = Batch::new();
        cases::all().iter().for_each(|case| batch_at(&mut again, case));
        exec.apply(&again).unwrap();
        assert_eq!(saved, FAMILIES.map(|(family, _)| save(family)));
    });
}

#[test]
fn words_of_the_user_go_through_the_tool() {
    in_netns(|| {
        let words = ["-m", "limit", "--limit", "5/min", "-s", "10.0.0.0/8"].map(str::to_owned);
        let rule = Rule::new(Match::conditions(&words), Target::Return);
        assert!(matches!(rule.matches[..], [Match::Raw(_)]));
        let mut batch = Batch::new();
        batch
            .xt(Family::Ipv4, Table::Filter)
            .ensure_chain("OWN")
            .ensure_rule("OWN", rule.clone(), Position::Tail)
            .ensure_rule("OWN", Rule::new(vec![Match::comment("plain")], Target::Drop), Position::Tail);
        engine().apply(&batch).unwrap();
        engine().apply(&batch).unwrap();
        let listed = run("iptables", &["-S", "OWN"]);
        assert_eq!(
            listed,
            "-N OWN\n-A OWN -s 10.0.0.0/8 -m limit --limit 5/min -j RETURN\n-A OWN -m comment --comment plain -j DROP\n"
        );
        assert!(engine().missing(Family::Ipv4, Table::Filter, "OWN", from_ref(&rule)).unwrap().is_empty());
        let mut delete = Batch::new();
        delete.xt(Family::Ipv4, Table::Filter).delete_rule("OWN", rule);
        engine().apply(&delete).unwrap();
        assert_eq!(run("iptables", &["-S", "OWN"]), "-N OWN\n-A OWN -m comment --comment plain -j DROP\n");
    });
}

#[test]
fn errors_name_the_step_and_keep_the_errno() {
    in_netns(|| {
        let mut batch = Batch::new();
        let rule = Rule::new(vec![], Target::Jump("NOWHERE".into()));
        batch.xt(Family::Ipv4, Table::Filter).ensure_chain("OWN").ensure_rule("OWN", rule, Position::Tail);
        let error = engine().apply(&batch).unwrap_err();
        assert_eq!(error.errno(), Some(2));
        assert!(
            error
                .to_string()
                .starts_with("add rule to chain \"OWN\" of table \"ip filter\": no such file or directory")
        );
        // nothing of the transaction is left
        assert!(!engine().chain_exists(&TableRef::Xt(Family::Ipv4, Table::Filter), "OWN").unwrap());
    });
}

#[test]
fn concurrent_batches_do_not_lose_or_double_rules() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 40;
    in_netns(|| {
        let start = std::sync::Barrier::new(THREADS);
        let come = |index: usize| {
            let mut engine = engine();
            start.wait();
            for round in 0..ROUNDS {
                // every other rule is wanted by all
                let owner = if round % 2 == 0 { "all".to_owned() } else { index.to_string() };
                let rule = Rule::new(vec![Match::Comment(format!("{owner} {round}"))], Target::Return);
                let mut batch = Batch::new();
                batch.xt(Family::Ipv4, Table::Filter).ensure_rule("FORWARD", rule, Position::Tail);
                engine.apply(&batch).unwrap();
            }
        };
        std::thread::scope(|scope| {
            for index in 0..THREADS {
                let come = &come;
                scope.spawn(move || come(index));
            }
        });
        let rules = engine().rules(&TableRef::Xt(Family::Ipv4, Table::Filter), "FORWARD").unwrap();
        assert_eq!(rules.len(), ROUNDS / 2 + THREADS * ROUNDS / 2);
    });
}

#[test]
fn missing_things_are_fine_where_they_may_be() {
    in_netns(|| {
        let mut batch = Batch::new();
        batch
            .xt(Family::Ipv6, Table::Nat)
            .delete_rule("POSTROUTING", jump_rule("x"))
            .delete_rules_where("NOWHERE", Owner::CommentPrefix("x".into()))
            .flush_chain("NOWHERE")
            .delete_chain("NOWHERE")
            .delete_chain_if_unreferenced("NOWHERE");
        engine().apply(&batch).unwrap();
        assert_eq!(run("nft", &["list", "ruleset"]), "");
        Engine::open(Choice::Exec, &path()).apply(&batch).unwrap();
    });
}

/// A folder in which `iptables` and the rest are the legacy flavour, as alternatives would link them.
fn legacy_tools() -> Option<std::path::PathBuf> {
    let program = std::env::split_paths(&path())
        .map(|folder| folder.join("xtables-legacy-multi"))
        .find(|p| p.exists())?;
    let folder = std::env::temp_dir().join(format!("cnibox-legacy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for tool in
        ["iptables", "iptables-restore", "iptables-save", "ip6tables", "ip6tables-restore", "ip6tables-save"]
    {
        let _made_before = std::os::unix::fs::symlink(&program, folder.join(tool));
    }
    Some(folder)
}

/// The rules that a save program prints, chain by chain.
fn saved_rules(program: &str) -> Vec<String> {
    let text = run(program, &[]);
    let mut rules: Vec<String> =
        text.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect();
    rules.sort_by(|one, other| one.split(' ').nth(1).cmp(&other.split(' ').nth(1)));
    rules
}

#[test]
fn legacy_hosts_get_the_same_rules_by_restore() {
    let Some(tools) = legacy_tools() else {
        return skip("no xtables-legacy-multi");
    };
    in_netns(move || {
        write_with_tool();
        let mut engine = Engine::open(Choice::Auto, tools.as_os_str());
        assert_eq!(engine.flavour(), cnibox_netfilter::Flavour::Legacy);
        engine.apply(&batch_of_all()).unwrap();
        let (mut ensure, mut delete) = (Batch::new(), Batch::new());
        for case in cases::all() {
            batch_at(&mut ensure, &case);
            delete = delete_rule(delete, &case);
        }
        engine.apply(&ensure).unwrap();
        for (family, _) in FAMILIES {
            let legacy = tools.join(format!("{}-save", family.tool()));
            let wanted = saved_rules(&format!("{}-save", family.tool()));
            assert_eq!(wanted, saved_rules(&legacy.to_string_lossy()));
        }
        engine.apply(&delete).unwrap();
        assert_eq!(saved_rules(&tools.join("iptables-save").to_string_lossy()), [""; 0]);
        std::fs::remove_dir_all(tools).unwrap();
    });
}
