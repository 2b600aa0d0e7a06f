// SPDX-License-Identifier: Apache-2.0
//! Runtimes that try ADD again without DEL (Nomad does, three times) get a clean start; a finished attachment is
//! refused.

use std::time::Duration;

use cnibox_testkit::sandbox;
use serde_json::{Value, json};

use crate::fixture::{Side, Target, World, wait};
use crate::killed::usual;
use crate::networks::{self, Network};
use crate::report::{Random, Tally, rounds, sides};

/// ADD of the chain up to a failing plugin, then of the whole chain, without DEL in between.
fn fail_then_retry(world: &World<'_>, broken: &World<'_>, before: &str, target: &Target) -> String {
    for _ in 0..2 {
        if broken.add(target).is_ok() {
            return "the broken ADD succeeded\n".to_owned();
        }
    }
    let result = match world.add(target) {
        Ok(result) => result,
        Err(answer) => return format!("retried ADD: {answer:?}\n"),
    };
    if let Err(answer) = world.check(target, &result) {
        return format!("CHECK after the retry: {answer:?}\n");
    }
    if let Err(answer) = world.del(target, &result) {
        return format!("DEL after the retry: {answer:?}\n");
    }
    world.left(before, target)
}

/// A network whose plugin at `index` is told something impossible.
fn break_plugin(network: &Network, index: usize) -> Network {
    let mut broken = network.clone();
    match broken.kind(index) {
        "portmap" => broken.ports = json!([{"hostPort": 70_000, "containerPort": 80, "protocol": "tcp"}]),
        "firewall" => broken.plugins[index]["ingressPolicy"] = json!("nothing"),
        // An address that is taken: the bridge fails after it has made its link.
        _ => {
            broken.plugins[index]["ipam"]["ranges"] =
                json!([[{"subnet": "10.61.0.0/30", "rangeStart": "10.61.0.2", "rangeEnd": "10.61.0.2"}]])
        }
    }
    broken
}

#[test]
fn add_after_a_failed_add_works_without_del() {
    for side in sides() {
        let mut tally = Tally::default();
        for network in [networks::v4(), networks::dual(), networks::native(), networks::isolated()] {
            sandbox(|net| {
                let world = World::new(net, network.clone(), side);
                let mut before = world.host();
                for index in 0..network.plugins.len() {
                    if index == 0 && network.label != "v4" {
                        continue;
                    }
                    let broken = world.with(break_plugin(&network, index));
                    let target = Target::of(&net.container());
                    let problem = fail_then_retry(&world, &broken, &before, &target);
                    tally.count(&format!("{} fails on {}", network.kind(index), network.label), &problem);
                    if !problem.is_empty() {
                        let _ = world.del(&target, &Value::Null);
                        before = world.host();
                    }
                }
            });
        }
        tally.close("a plugin of the chain fails, ADD again without DEL", side);
    }
}

#[test]
fn add_after_a_killed_add_works_without_del() {
    for side in sides() {
        let mut tally = Tally::default();
        let networks = [networks::v4(), networks::native(), networks::spoofchk(), networks::isolated()];
        let (mut seen, mut unseen) = (0, 0);
        let each = rounds(40, 200).div_ceil(networks.len());
        for (number, network) in networks.into_iter().enumerate() {
            sandbox(|net| {
                let mut random = Random::new(90 + number as u64);
                let world = World::new(net, network, side);
                let mut before = world.host();
                for _ in 0..each {
                    let target = Target::of(&net.container());
                    let usual = usual(&world, "ADD", &Target::of(&net.container()));
                    let problem;
                    let killed = kill_a_plugin(&world, &target, &mut random, usual);
                    let finished = is_finished(&world, &target);
                    if killed.is_none() || finished {
                        // Killed before its first or behind its last step: like any finished attachment, DEL removes it.
                        unseen += usize::from(killed.is_some());
                        problem = world.del(&target, &Value::Null).err().map_or_else(
                            || world.left(&before, &target),
                            |answer| format!("DEL: {answer:?}\n"),
                        );
                    } else {
                        seen += 1;
                        problem = match world.add(&target) {
                            Ok(result) => world.del(&target, &result).err().map_or_else(
                                || world.left(&before, &target),
                                |answer| format!("DEL after the retry: {answer:?}\n"),
                            ),
                            Err(answer) => format!("ADD after {killed:?} was killed: {answer:?}\n"),
                        };
                    }
                    tally.count(world.network.label, &problem);
                    if !problem.is_empty() {
                        let _ = world.del(&target, &Value::Null);
                        before = world.host();
                    }
                    net.run("ip", &["netns", "del", &target.id]);
                }
            });
        }
        assert!(seen > unseen, "{seen} kills in the middle of a call, {unseen} before or behind it");
        tally.close("ADD killed with -9, ADD again without DEL", side);
    }
}

/// Whether the attachment's host link says that every plugin that ran is done.
fn is_finished(world: &World<'_>, target: &Target) -> bool {
    let alias = format!("cnibox:ready:{}:{}:", world.network.name, target.id);
    world.net.run("ip", &["link"]).contains(&alias)
}

/// Runs the chain up to a plugin, which is killed while it works; its index, or `None` when it was done by then.
fn kill_a_plugin(world: &World<'_>, target: &Target, random: &mut Random, usual: Duration) -> Option<usize> {
    let victim = random.below(world.network.plugins.len());
    let mut prev = Value::Null;
    for index in 0..victim {
        prev = world.call(index, "ADD", target, &prev).run().json();
    }
    let usual = usize::try_from(usual.as_micros()).expect("less than an hour") / world.network.plugins.len();
    let moment = Duration::from_micros((300 + random.below(usual)) as u64);
    let mut child = world.call(victim, "ADD", target, &prev).start();
    if wait(&mut child, moment).is_some() {
        return None;
    }
    let _ = child.kill();
    let _ = child.wait();
    Some(victim)
}

#[test]
fn a_living_attachment_is_refused_in_the_references_words() {
    sandbox(|net| {
        for network in [networks::v4(), networks::spoofchk(), networks::layer2()] {
            let world = World::new(net, network, Side::Ours);
            let before = world.host();
            for _ in 0..2 {
                let answer =
                    world.add(&world.neighbour.clone()).expect_err("a second ADD of a living attachment");
                let message = answer.json()["msg"].as_str().unwrap_or_default().to_owned();
                let start = "container veth name (\"eth0\") peer provided (\"veth";
                assert!(message.starts_with(start) && message.ends_with("already exists"), "{message}");
                assert_eq!(answer.json()["code"], 999);
            }
            let left =
                world.left(&before, &Target { netns: "/nowhere".to_owned(), ..world.neighbour.clone() });
            assert!(left.is_empty(), "{}:\n{left}", world.network.label);
        }
    });
}
