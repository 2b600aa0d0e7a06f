// SPDX-License-Identifier: Apache-2.0
//! kill -9 at random moments of ADD and DEL: the next DEL, or GC, leaves the host as before, and the next ADD works.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{Answer, Side, Target, World, on_each, wait};
use crate::networks::{self, Network};
use crate::report::{Random, Tally, rounds, sides};

/// Runs the chain until `moment`; kills the plugin that is running then. Whether there was one.
fn killed_at(world: &World<'_>, verb: &str, target: &Target, result: &Value, moment: Duration) -> bool {
    let deadline = Instant::now() + moment;
    let mut order: Vec<_> = (0..world.network.plugins.len()).collect();
    if verb == "DEL" {
        order.reverse();
    }
    let mut prev = result.clone();
    for index in order {
        let mut child = world.call(index, verb, target, &prev).start();
        match wait(&mut child, deadline.saturating_duration_since(Instant::now())) {
            Some(answer) if verb == "ADD" => prev = answer.json(),
            Some(_) => {}
            None => {
                let _ = child.kill();
                return child.wait().is_ok_and(|status| status.code().is_none());
            }
        }
    }
    false
}

/// How long a verb usually takes.
pub(crate) fn usual(world: &World<'_>, verb: &str, target: &Target) -> Duration {
    if verb == "DEL" {
        let result = world.add(target).expect("ADD");
        let started = Instant::now();
        world.expect_del(target, &result);
        return started.elapsed();
    }
    let started = Instant::now();
    let result = world.add(target).expect("ADD");
    let took = started.elapsed();
    world.expect_del(target, &result);
    took
}

/// One round: a verb, killed, and what is left after DEL or GC.
fn round(
    world: &World<'_>,
    verb: &str,
    target: &Target,
    (before, moment, by_gc): (&str, Duration, bool),
) -> (bool, String) {
    let result = if verb == "DEL" { world.add(target).expect("ADD to be deleted") } else { Value::Null };
    let killed = killed_at(world, verb, target, &result, moment);
    let in_container = !world.network.has_host_end();
    if by_gc && in_container {
        // What is in the container goes with it.
        world.bury(target);
    }
    let cleaned = if by_gc { collect(world) } else { world.del(target, &result) };
    if let Err(answer) = cleaned {
        // As a runtime would: once more.
        let again = world.del(target, &result);
        return (killed, format!("cleaning failed: {answer:?}, then {again:?}\n"));
    }
    let left =
        if by_gc && in_container { world.left_but_devices(before) } else { world.left(before, target) };
    (killed, left)
}

/// GC with the neighbour as the only living attachment.
fn collect(world: &World<'_>) -> Result<(), Answer> {
    world.gc(Some(&[&world.neighbour]))
}

#[test]
fn a_killed_call_is_cleaned_by_the_next_del_or_gc() {
    for side in sides() {
        let mut tally = Tally::default();
        let networks = networks::all();
        let each = rounds(72, 552).div_ceil(networks.len() * 2);
        kill_everywhere(networks, side, each, &mut tally);
        tally.close("kill -9 at a random moment of ADD or DEL, then DEL or GC", side);
    }
}

/// A random moment hardly ever is the one between a file's making and its naming.
#[test]
fn gc_removes_what_a_killed_call_was_writing() {
    on_each(vec![networks::v4()], Side::Ours, |_, world| {
        let before = world.host();
        let target = Target::of(&world.net.container());
        for dir in ["attachments/ab", "addresses/net-half"] {
            let dir = Path::new("/run/cnibox").join(dir);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .expect("make a directory of the ledger");
            fs::write(dir.join(".new-half"), "").expect("write half a file");
        }
        collect(world).expect("GC");
        assert_eq!(world.left(&before, &target), "");
    });
}

/// Kills so many calls of each verb on each network. Those that were done by then do not count.
pub(crate) fn kill_everywhere(networks: Vec<Network>, side: Side, each: usize, tally: &mut Tally) {
    on_each(networks, side, |number, world| {
        for verb in ["ADD", "DEL"] {
            kill_each_time(world, verb, each, Random::new(7 + number as u64), tally);
        }
    });
}

/// Kills so many calls of one verb on one network.
fn kill_each_time(world: &World<'_>, verb: &str, times: usize, mut random: Random, tally: &mut Tally) {
    let mut before = world.host();
    let usual = usual(world, verb, &Target::of(&world.net.container()));
    let (mut kills, mut window) = (0, usual);
    for turn in 0..times * MOST_TRIES {
        if kills == times {
            break;
        }
        let target = Target::of(&world.net.container());
        let micros = usize::try_from(window.as_micros()).expect("less than an hour");
        let moment = Duration::from_micros(random.below(micros + 500) as u64);
        // The Go plugins have no GC.
        let by_gc = verb == "ADD" && turn % 3 == 2 && world.side == Side::Ours;
        let (killed, mut problem) = round(world, verb, &target, (&before, moment, by_gc));
        // Each is measured against what was left before it, not against the beginning: a device that was lent ends with a
        // container that nobody detached, and another takes its place.
        if by_gc {
            before = world.host();
        }
        if problem.is_empty() && turn % 4 == 0 {
            problem = world.next_works(&before, &Target::of(&world.net.container()));
        }
        window = if killed { usual } else { shorter(window) };
        kills += usize::from(killed);
        if killed || !problem.is_empty() {
            tally.count(
                &format!("{verb} on {} killed after {moment:?}, gc {by_gc}", world.network.label),
                &problem,
            );
        }
        world.bury(&target);
        if !problem.is_empty() || by_gc {
            before = world.host();
        }
    }
    // A Go plugin may fail at once after what an earlier one has left.
    assert!(
        kills == times || world.side == Side::Go,
        "{verb} on {}: only {kills} calls still ran when they were killed",
        world.network.label
    );
}

/// Where to look for the next moment after one that came too late: what is usual may have been measured in a bad one.
pub(crate) fn shorter(window: Duration) -> Duration {
    window * 3 / 4
}

/// How many calls, for each that is to be killed, may be done by the moment.
pub(crate) const MOST_TRIES: usize = 10;
