// SPDX-License-Identifier: Apache-2.0
//! How long batches take, in a network namespace of its own (needs root): `cargo bench -p cnibox-netfilter`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and may panic")]

use std::time::{Duration, Instant};

use cnibox_netfilter::xt::{Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Choice, Engine, Family, Owner, Position, TableRef};

const ROUNDS: usize = 100;
/// Rules with xt matches wait in the kernel until the rules of an earlier transaction are destroyed
/// (`nft_compat_wait_for_destructors`), which takes an RCU grace period.
const QUIET: Duration = Duration::from_millis(25);

#[expect(clippy::disallowed_methods, reason = "the process ends in the namespace")]
fn main() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    report("8 rules appended, new engine each time", || {
        let batch = eight();
        timed(|| Engine::open(Choice::Netlink, &path).apply(&batch).unwrap())
    });
    let mut engine = Engine::open(Choice::Netlink, &path);
    report("8 rules appended, engine in use", || {
        let batch = eight();
        timed(|| engine.apply(&batch).unwrap())
    });
    for count in [0, 100, 1000, 2000] {
        clean(&mut engine);
        (1..=count).for_each(|index| engine.apply(&masquerade(index)).unwrap());
        report(&format!("{count} others: add a container (chain is new, nothing is searched)"), || {
            engine.apply(&unmasquerade(0)).unwrap();
            std::thread::sleep(QUIET);
            timed(|| engine.apply(&masquerade(0)).unwrap())
        });
        report(&format!("{count} others: add one right after a deletion"), || {
            engine.apply(&unmasquerade(0)).unwrap();
            timed(|| engine.apply(&masquerade(0)).unwrap())
        });
        report(&format!("{count} others: ensure its rule, present at the tail"), || {
            engine.apply(&masquerade(0)).unwrap();
            timed(|| engine.apply(&jump(0)).unwrap())
        });
        report(&format!("{count} others: delete it"), || {
            engine.apply(&masquerade(0)).unwrap();
            timed(|| engine.apply(&unmasquerade(0)).unwrap())
        });
    }
    let nat = TableRef::Xt(Family::Ipv4, Table::Nat);
    report("decode 2000 rules", || timed(|| drop(engine.rules(&nat, "POSTROUTING").unwrap())));
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn report(what: &str, mut round: impl FnMut() -> Duration) {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| round()).collect();
    times.sort();
    println!("{what}: median {:?}, best {:?}", times[ROUNDS / 2], times[0]);
}

fn rule(index: u32, target: Target) -> Rule {
    let address = std::net::IpAddr::from((0x0a16_0000 + index).to_be_bytes());
    Rule::new(vec![Match::source(address), Match::comment(format!("name: \"n\" id: \"{index}\""))], target)
}

fn eight() -> Batch {
    let mut batch = Batch::new();
    for index in 0..8 {
        batch.xt(Family::Ipv4, Table::Filter).append_rule("FORWARD", rule(index, Target::Accept));
    }
    batch
}

fn chain(index: u32) -> String {
    format!("CNI-{index:024x}")
}

fn jump(index: u32) -> Batch {
    let mut batch = Batch::new();
    let rule = rule(index, Target::Jump(chain(index)));
    batch.xt(Family::Ipv4, Table::Nat).ensure_rule("POSTROUTING", rule, Position::Tail);
    batch
}

fn masquerade(index: u32) -> Batch {
    let mut batch = Batch::new();
    batch
        .xt(Family::Ipv4, Table::Nat)
        .ensure_chain(chain(index))
        .ensure_rule(chain(index), rule(index, Target::Accept), Position::Tail)
        .ensure_rule(chain(index), rule(index, Target::Masquerade), Position::Tail);
    batch.extend(jump(index));
    batch
}

fn unmasquerade(index: u32) -> Batch {
    let mut batch = Batch::new();
    batch
        .xt(Family::Ipv4, Table::Nat)
        .delete_rules_where("POSTROUTING", Owner::JumpsTo(chain(index)))
        .delete_chain_if_unreferenced(chain(index));
    batch
}

/// Removes what earlier measurements left.
fn clean(engine: &mut Engine) {
    let mut batch = Batch::new();
    batch.xt(Family::Ipv4, Table::Filter).flush_chain("FORWARD");
    batch.xt(Family::Ipv4, Table::Nat).flush_chain("POSTROUTING");
    (0..=2000).for_each(|index| {
        batch.xt(Family::Ipv4, Table::Nat).delete_chain(chain(index));
    });
    engine.apply(&batch).unwrap();
}
