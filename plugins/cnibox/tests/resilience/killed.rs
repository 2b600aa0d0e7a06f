// SPDX-License-Identifier: Apache-2.0
//! kill -9 at random moments of ADD and DEL: the next DEL, or GC, leaves the host as before, and the next ADD works.

use std::time::{Duration, Instant};

use cnibox_testkit::sandbox;
use serde_json::Value;

use crate::fixture::{Target, World, wait};
use crate::networks;
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
        world.del(target, &result).expect("DEL");
        return started.elapsed();
    }
    let started = Instant::now();
    let result = world.add(target).expect("ADD");
    let took = started.elapsed();
    world.del(target, &result).expect("DEL");
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
    let cleaned = if by_gc { collect(world) } else { world.del(target, &result) };
    if let Err(answer) = cleaned {
        // As a runtime would: once more.
        let again = world.del(target, &result);
        return (killed, format!("cleaning failed: {answer:?}, then {again:?}\n"));
    }
    (killed, world.left(before, target))
}

/// GC with the neighbour as the only living attachment.
fn collect(world: &World<'_>) -> Result<(), crate::fixture::Answer> {
    world.gc(Some(&[&world.neighbour]))
}

#[test]
fn a_killed_call_is_cleaned_by_the_next_del_or_gc() {
    for side in sides() {
        let mut tally = Tally::default();
        let (mut kills, mut rounds_done) = (0, 0);
        let networks = networks::all();
        let each = rounds(72, 504).div_ceil(networks.len() * 2);
        for (number, network) in networks.into_iter().enumerate() {
            sandbox(|net| {
                let mut random = Random::new(7 + number as u64);
                let world = World::new(net, network, side);
                let mut before = world.host();
                for verb in ["ADD", "DEL"] {
                    let usual = usual(&world, verb, &Target::of(&net.container()));
                    let usual = u32::try_from(usual.as_micros()).expect("less than an hour");
                    for turn in 0..each {
                        let target = Target::of(&net.container());
                        let moment = Duration::from_micros(random.below(usual as usize + 500) as u64);
                        // The Go plugins have no GC.
                        let by_gc = verb == "ADD" && turn % 3 == 2 && side == crate::fixture::Side::Ours;
                        let (killed, mut problem) = round(&world, verb, &target, (&before, moment, by_gc));
                        if problem.is_empty() && turn % 4 == 0 {
                            problem = world.next_works(&before, &target);
                        }
                        kills += usize::from(killed);
                        rounds_done += 1;
                        let what =
                            format!("{verb} on {} killed after {moment:?}, gc {by_gc}", world.network.label);
                        let broken = !problem.is_empty();
                        tally.count(&what, &problem);
                        if broken {
                            // The next round is measured against what this one left, not against the beginning.
                            before = world.host();
                        }
                        net.run("ip", &["netns", "del", &target.id]);
                    }
                }
            });
        }
        assert!(
            kills > rounds_done / 2,
            "only {kills} of {rounds_done} calls still ran when they were killed"
        );
        tally.close("kill -9 at a random moment of ADD or DEL, then DEL or GC", side);
    }
}
