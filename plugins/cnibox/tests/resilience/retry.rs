// SPDX-License-Identifier: Apache-2.0
//! Runtimes that try ADD again without DEL (Nomad does, three times) get a clean start; a finished attachment is
//! refused.

use std::time::Duration;

use cnibox_testkit::sandbox;
use serde_json::{Value, json};

use crate::fixture::{Side, Target, World, on_each, wait};
use crate::hostile::{FOREIGN_IPAM, with_foreign_ipam};
use crate::killed::{MOST_TRIES, shorter, usual};
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

/// A network whose plugin at `index` is told something impossible; `None` where nothing is.
fn break_plugin(network: &Network, index: usize) -> Option<Network> {
    let mut broken = network.clone();
    match broken.kind(index) {
        "portmap" => broken.ports = json!([{"hostPort": 70_000, "containerPort": 80, "protocol": "tcp"}]),
        "firewall" => broken.plugins[index]["ingressPolicy"] = json!("nothing"),
        // An address of a group, which only the kernel refuses, after the sysctls have been written.
        "tuning" => broken.plugins[index]["mac"] = json!("01:00:5e:00:00:01"),
        "bandwidth" => broken.plugins[index]["ingressBurst"] = json!(0),
        "sbr" => broken.plugins[index]["gateways"] = json!(["nowhere"]),
        "vrf" => broken.plugins[index]["vrfname"] = json!(""),
        "loopback" => return None,
        _ => {
            let ipam = broken.plugins[index].get_mut("ipam")?;
            ipam["addresses"] = json!([{"address": "nowhere"}]);
            // The neighbour has the only address: the plugin fails after it has made its link.
            for range in ipam["ranges"].as_array_mut().into_iter().flatten() {
                let subnet = range[0]["subnet"].as_str().unwrap_or_default();
                let network = subnet.split('/').next().unwrap_or_default();
                let taken =
                    network.strip_suffix(".0").map_or(format!("{network}2"), |net| format!("{net}.2"));
                range[0]["rangeStart"] = json!(taken);
                range[0]["rangeEnd"] = json!(taken);
            }
        }
    }
    Some(broken)
}

/// Every plugin of every network's chain fails in turn.
pub(crate) fn fail_and_retry(networks: Vec<Network>, side: Side, tally: &mut Tally) {
    on_each(networks, side, |_, world| {
        for index in 0..world.network.plugins.len() {
            let Some(broken) = break_plugin(&world.network, index) else { continue };
            let before = world.host();
            let target = Target::of(&world.net.container());
            let problem = fail_then_retry(world, &world.with(broken), &before, &target);
            tally.count(&format!("{} fails on {}", world.network.kind(index), world.network.label), &problem);
            let _ = world.del(&target, &Value::Null);
        }
    });
}

#[test]
fn add_after_a_failed_add_works_without_del() {
    for side in sides() {
        let mut tally = Tally::default();
        fail_and_retry(networks::all(), side, &mut tally);
        tally.close("a plugin of the chain fails, ADD again without DEL", side);
    }
}

#[test]
fn add_after_a_failed_add_works_where_nothing_can_be_remembered() {
    sandbox(|net| {
        std::fs::write("/run/cnibox", "not a directory").expect("a file in place of the memory");
        let mut tally = Tally::default();
        let world = World::new(net, networks::v4(), Side::Ours);
        // The plugins behind the one that makes the interface.
        for index in 1..world.network.plugins.len() {
            let broken = break_plugin(&world.network, index).expect("a plugin that can fail");
            let target = Target::of(&world.net.container());
            // Rules of the addresses before need the memory, so that nothing is said about what is left.
            let _ = world.with(broken).add(&target).expect_err("the broken ADD");
            let retried = world.add(&target).and_then(|result| world.del(&target, &result));
            tally.count(
                world.network.kind(index),
                &retried.err().map_or_else(String::new, |it| format!("{it:?}\n")),
            );
        }
        tally.expect_spotless("no memory, ADD again without DEL");
    });
}

#[test]
fn add_after_a_killed_add_works_without_del() {
    for side in sides() {
        let mut tally = Tally::default();
        let networks = networks::all();
        let each = rounds(36, 240).div_ceil(networks.len());
        kill_and_retry(networks, side, each, &mut tally);
        tally.close("ADD killed with -9, ADD again without DEL", side);
    }
}

/// Kills so many calls on each network. Those that had not begun by then, or were done, do not count.
pub(crate) fn kill_and_retry(networks: Vec<Network>, side: Side, each: usize, tally: &mut Tally) {
    on_each(networks, side, |number, world| {
        let mut random = Random::new(90 + number as u64);
        let usual = usual(world, "ADD", &Target::of(&world.net.container()));
        let (mut seen, mut window) = (0, usual);
        for _ in 0..each * MOST_TRIES {
            if seen == each {
                break;
            }
            if kill_then_retry(world, window, &mut random, tally) {
                (seen, window) = (seen + 1, usual);
            } else {
                window = shorter(window);
            }
        }
        // A Go plugin may fail at once after what an earlier one has left.
        let enough = seen == each || side == Side::Go;
        assert!(enough, "{}: only {seen} kills were in the middle of a call", world.network.label);
    });
}

/// One killed ADD and what follows; whether it was killed in the middle.
fn kill_then_retry(world: &World<'_>, window: Duration, random: &mut Random, tally: &mut Tally) -> bool {
    let before = world.host();
    let target = Target::of(&world.net.container());
    let killed = kill_a_plugin(world, &target, random, window);
    // Killed before its first or behind its last step: like any finished attachment, DEL removes it.
    let in_the_middle = killed.is_some() && !is_finished(world, &target);
    let added = if in_the_middle { world.add(&target) } else { Ok(Value::Null) };
    let problem = match added {
        Err(answer) => format!("ADD after {killed:?} was killed: {answer:?}\n"),
        Ok(result) => match world.del(&target, &result) {
            Err(answer) => format!("DEL: {answer:?}\n"),
            Ok(()) => world.left(&before, &target),
        },
    };
    if in_the_middle || !problem.is_empty() {
        tally.count(world.network.label, &problem);
    }
    let _ = world.del(&target, &Value::Null);
    world.bury(&target);
    in_the_middle
}

/// Whether every plugin that ran is done: the interface is there, its host link has its owner's mark, and the ledger says
/// nothing of an ADD that is under way.
fn is_finished(world: &World<'_>, target: &Target) -> bool {
    let made = if world.network.has_host_end() {
        let alias = format!("cnibox:ready:{}:{}:", world.network.name, target.id);
        world.net.run("ip", &["link"]).contains(&alias)
    } else {
        world.net.run("ip", &["netns", "exec", &target.id, "ip", "link"]).contains(" eth0")
    };
    let ledger = world.net.run("sh", &["-c", "cat /run/cnibox/attachments/*/* 2>/dev/null; true"]);
    let own = format!(r#"{{"attachment":["{}","{}","#, world.network.name, target.id);
    let record = ledger.lines().find(|record| record.starts_with(&own));
    made && !record.is_some_and(|record| record.contains(r#""progress":"begun""#))
}

/// Runs the chain up to a plugin, which is killed while it works; its index, or `None` when it was done by then.
fn kill_a_plugin(world: &World<'_>, target: &Target, random: &mut Random, window: Duration) -> Option<usize> {
    let victim = random.below(world.network.plugins.len());
    let mut prev = Value::Null;
    for index in 0..victim {
        prev = world.call(index, "ADD", target, &prev).run().json();
    }
    let each = usize::try_from(window.as_micros()).expect("less than an hour") / world.network.plugins.len();
    let moment = Duration::from_micros((300 + random.below(each)) as u64);
    let mut child = world.call(victim, "ADD", target, &prev).start();
    if wait(&mut child, moment).is_some() {
        return None;
    }
    let _ = child.kill();
    let _ = child.wait();
    Some(victim)
}

/// What is noted of an ADD that runs is no note where there is no room for it.
#[test]
fn a_full_memory_tells_nothing_of_living_attachments() {
    for network in [networks::v4(), networks::routed()] {
        sandbox(|net| {
            let world = World::new(net, network.clone(), Side::Ours);
            let fill = "mount -t tmpfs -o size=4k tmpfs /run/cnibox; dd if=/dev/zero of=/run/cnibox/full bs=4k count=1 2>&1";
            net.run("sh", &["-ec", fill]);
            let target = Target::of(&net.container());
            let result = world.add(&target).expect("ADD");
            world.add(&target).expect_err("a second ADD of a living attachment");
            world.check(&target, &result).expect("CHECK of a living attachment");
        });
    }
}

/// The IPAM plugin's DEL would release what the container has.
#[test]
fn a_refused_add_leaves_a_living_attachment_its_address() {
    for (network, wanted) in [
        (networks::v4(), "IgnoreUnknown=1;IP=10.61.0.77"),
        (networks::routed(), "IgnoreUnknown=1;IP=10.71.0.77"),
    ] {
        sandbox(|net| {
            let world = World::new(net, network.clone(), Side::Ours);
            let target = Target::of(&net.container());
            let add = || world.call(0, "ADD", &target, &Value::Null).env("CNI_ARGS", wanted);
            let result = add().run();
            assert!(result.ok(), "{result:?}");
            assert!(!add().run().ok(), "a second ADD of a living attachment");
            let checked = world.call(0, "CHECK", &target, &result.json()).run();
            assert!(checked.ok(), "{}: {checked:?}", network.label);
        });
    }
}

/// An IPAM plugin that refuses an address of the container's at first, and has no other when that was released.
const REFUSING_IPAM: &str = r#"#!/bin/sh
cat >/dev/null
echo $CNI_COMMAND >>/run/testkit/verbs
[ $CNI_COMMAND = ADD ] || exit 0
msg='no address'
[ $(grep -c ADD /run/testkit/verbs) != 1 ] || msg='10.64.0.10 has been allocated to c, duplicate allocation is not allowed'
echo "{\"code\":999,\"msg\":\"$msg\"}"
exit 1
"#;

/// What a failed ADD is followed by holds for the second one, too, once the dead attempt's address was released.
#[test]
fn an_ipam_plugin_that_fails_again_is_told_del_again() {
    sandbox(|net| {
        crate::fixture::install();
        let world = World::new(net, with_foreign_ipam(FOREIGN_IPAM), Side::Ours);
        let target = Target::of(&net.container());
        let _ = with_foreign_ipam(&FOREIGN_IPAM.replace("10.64.0.9/", "10.64.0.10/"));
        world.add(&target).expect("ADD");
        let name = cnibox_spec::Attachment::new(&world.network.name, &target.id, &target.ifname);
        let ledger = cnibox_sys::Ledger::of_host();
        let mut record = ledger.read(&name.expect("names")).expect("a record");
        // As an ADD leaves it that was killed.
        record.progress = cnibox_sys::Progress::Begun;
        drop(ledger.write(&record));
        let _ = with_foreign_ipam(REFUSING_IPAM);
        let answer = world.call(0, "ADD", &target, &Value::Null).run();
        assert_eq!(answer.json()["msg"], "no address", "{answer:?}");
        let verbs = std::fs::read_to_string("/run/testkit/verbs").expect("what the plugin was told");
        assert_eq!(verbs, "ADD\nDEL\nADD\nDEL\n");
    });
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
