// SPDX-License-Identifier: Apache-2.0
//! System calls that fail, and kills before they are made, each in turn: a clean error or success, nothing left after
//! DEL, and the next ADD works.

use std::collections::BTreeMap;

use cnibox_testkit::{sandbox, skip};
use serde_json::Value;

use crate::fixture::{Answer, Call, Side, Target, World, on_each};
use crate::networks::{self, Network};
use crate::report::{Random, Tally, rounds, sides};

/// What can fail, and how. The errors are those that the call has in its manual page, or that interruption and
/// exhaustion bring.
const FAULTS: Menu = &[
    ("sendto", &["ENOBUFS", "EPERM", "EINTR", "ENOMEM"]),
    ("sendmsg", &["ENOBUFS", "EPERM", "ENOMEM"]),
    ("recvfrom", &["EINTR", "ENOBUFS", "ENOMEM"]),
    ("recvmsg", &["EINTR", "ENOBUFS", "ENOMEM"]),
    ("socket", &["EMFILE", "EPERM", "ENOMEM"]),
    ("bind", &["EADDRINUSE", "ENOMEM"]),
    ("setsockopt", &["ENOPROTOOPT", "EPERM"]),
    ("openat", &["EMFILE", "EPERM", "ENOMEM", "EINTR", "ENOSPC"]),
    ("setns", &["EPERM", "ENOMEM"]),
    ("read", &["EIO", "EINTR"]),
    ("pread64", &["EIO", "EINTR"]),
    ("write", &["ENOSPC", "EINTR", "EIO"]),
    ("pwrite64", &["ENOSPC", "EIO", "EINTR"]),
    ("linkat", &["ENOSPC", "EEXIST", "EPERM"]),
    ("unlinkat", &["EBUSY", "EPERM"]),
    ("unlink", &["EBUSY"]),
    ("rename", &["ENOSPC", "EPERM"]),
    ("renameat", &["ENOSPC", "EPERM"]),
    ("flock", &["EINTR", "ENOLCK"]),
    ("ioctl", &["EBUSY", "ENOMEM", "EPERM"]),
    ("mkdir", &["ENOSPC", "EPERM"]),
    ("mkdirat", &["ENOSPC", "EPERM"]),
    ("rmdir", &["EBUSY"]),
    ("ftruncate", &["EIO", "ENOSPC"]),
    ("fstat", &["ENOMEM"]),
    ("newfstatat", &["ENOMEM", "EACCES"]),
    ("statx", &["ENOMEM", "EACCES"]),
    ("getdents64", &["ENOMEM"]),
    ("poll", &["EINTR", "ENOMEM"]),
    ("ppoll", &["EINTR", "ENOMEM"]),
    ("clone3", &["EAGAIN"]),
    ("fsync", &["EIO"]),
    ("sync_file_range", &["EIO", "ENOSPC"]),
];

/// The system calls that change something, or decide what the next one changes.
const KILLS: Menu = &[
    ("sendto", &[KILL]),
    ("sendmsg", &[KILL]),
    ("setns", &[KILL]),
    ("openat", &[KILL]),
    ("write", &[KILL]),
    ("pwrite64", &[KILL]),
    ("linkat", &[KILL]),
    ("unlinkat", &[KILL]),
    ("unlink", &[KILL]),
    ("rename", &[KILL]),
    ("renameat", &[KILL]),
    ("ioctl", &[KILL]),
    ("mkdir", &[KILL]),
    ("rmdir", &[KILL]),
    ("ftruncate", &[KILL]),
];

/// Names of system calls, and what can be done to each.
type Menu = &'static [(&'static str, &'static [&'static str])];

/// The call is not made: its process is killed instead.
const KILL: &str = "kill -9";

/// A fault: the n-th call of `syscall` fails with `error`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    syscall: &'static str,
    error: &'static str,
    when: usize,
}

impl Fault {
    /// The command that a plugin runs under.
    fn injector(&self) -> Vec<String> {
        let (syscall, error, when) = (self.syscall, self.error, self.when);
        let inject = match error {
            KILL => format!("inject={syscall}:signal=KILL:when={when}"),
            error => format!("inject={syscall}:error={error}:when={when}"),
        };
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={}", self.syscall), "-e", &inject]
            .map(str::to_owned)
            .to_vec()
    }
}

/// The command under which a plugin is killed before it renames a file for the `when`-th time: what is written at once is
/// named last, so that this is between two notes.
pub(crate) fn killed_before_rename(when: usize) -> Vec<String> {
    Fault { syscall: "rename,renameat,renameat2", error: KILL, when }.injector()
}

/// How often a call makes which system call.
fn counts(call: &Call) -> (Answer, BTreeMap<&'static str, usize>) {
    let log = "/run/testkit/strace.log";
    let names: Vec<_> = FAULTS.iter().map(|(name, _)| format!("?{name}")).collect();
    let under = ["strace", "-f", "-qq", "-o", log, "-e", &format!("trace={}", names.join(","))];
    let answer = Call { under: under.map(str::to_owned).to_vec(), ..call.clone() }.run();
    let log = std::fs::read_to_string(log).expect("strace's log");
    let count = |name: &str| {
        let begins = |line: &&str| {
            line.split_whitespace().nth(1).is_some_and(|word| word.starts_with(&format!("{name}(")))
        };
        log.lines().filter(begins).count()
    };
    (answer, FAULTS.iter().map(|(name, _)| (*name, count(name))).filter(|(_, count)| *count > 0).collect())
}

/// Every fault of the menu that a call can suffer.
fn faults(menu: Menu, counts: &BTreeMap<&'static str, usize>) -> Vec<Fault> {
    let mut all = Vec::new();
    for (syscall, errors) in menu {
        for when in 1..=counts.get(syscall).copied().unwrap_or_default() {
            all.extend(errors.iter().map(|error| Fault { syscall, error, when }));
        }
    }
    all
}

/// The answer of a call under a fault: clean, unless the fault took its voice.
fn judged(answer: &Answer, fault: &Fault) -> String {
    if fault.error == KILL {
        return String::new();
    }
    let mute = fault.syscall == "write" && answer.stdout.is_empty() && answer.status == Some(1);
    // The standard library gives up without a word when it cannot even start.
    let unborn = matches!(fault.syscall, "poll") && fault.when == 1;
    // A thread that cannot return to its own namespace must not go on (crates/netns).
    let astray = fault.syscall == "setns" && answer.status.is_none();
    match answer.unclean() {
        Some(problem) if !mute && !unborn && !astray => problem + "\n",
        _ => String::new(),
    }
}

/// ADD of the chain with a fault in the plugin at `index`, then DEL.
fn fail_add(world: &World<'_>, index: usize, fault: &Fault, target: &Target) -> String {
    let mut prev = Value::Null;
    let mut problem = String::new();
    for plugin in 0..=index {
        let mut call = world.call(plugin, "ADD", target, &prev);
        if plugin == index {
            call.under = fault.injector();
        }
        let answer = call.run();
        if plugin == index {
            problem = judged(&answer, fault);
        }
        prev = answer.json();
    }
    if let Err(answer) = world.del(target, &Value::Null) {
        problem.push_str(&format!("DEL: {answer:?}\n"));
    }
    problem
}

/// DEL with a fault in the plugin at `index`; then, as runtimes do, DEL again.
fn fail_del(world: &World<'_>, index: usize, fault: &Fault, target: &Target) -> String {
    let result = match world.add(target) {
        Ok(result) => result,
        Err(answer) => return format!("ADD before DEL: {answer:?}\n"),
    };
    let mut problem = String::new();
    for later in (index + 1..world.network.plugins.len()).rev() {
        let answer = world.call(later, "DEL", target, &result).run();
        if !answer.ok() {
            problem.push_str(&format!("DEL of {}: {answer:?}\n", world.network.kind(later)));
        }
    }
    let mut call = world.call(index, "DEL", target, &result);
    call.under = fault.injector();
    problem.push_str(&judged(&call.run(), fault));
    if let Err(answer) = world.del(target, &result) {
        problem.push_str(&format!("DEL again: {answer:?}\n"));
    }
    problem
}

/// Networks, and which of their plugins are to fail: every plugin with every backend.
fn chains() -> Vec<(Network, &'static [usize])> {
    vec![
        (networks::v4(), &[0, 1, 2]),
        (networks::native(), &[0, 1]),
        (networks::spoofchk(), &[0]),
        (networks::isolated(), &[1]),
        (networks::routed(), &[0]),
        (networks::stacked(), &[0, 1]),
        (networks::fixed(), &[0, 1]),
        (networks::tap(), &[0]),
        (networks::lent(), &[0]),
        (networks::laden(), &[0, 2]),
    ]
}

/// The faults of one plugin's verb that this run tries: all of them, or an even sample.
fn sample(all: Vec<Fault>, wanted: usize, random: &mut Random) -> Vec<Fault> {
    let mut all = all;
    while all.len() > wanted {
        all.swap_remove(random.below(all.len()));
    }
    all
}

/// So many faults of the menu in either verb of one plugin on one network.
fn inject(world: &World<'_>, index: usize, menu: Menu, wanted: usize, tally: &mut Tally) {
    let mut random = Random::new(17 + index as u64);
    let mut before = world.host();
    for verb in ["ADD", "DEL"] {
        let target = Target::of(&world.net.container());
        let mut prev = Value::Null;
        for plugin in 0..index {
            prev = world.call(plugin, "ADD", &target, &prev).run().json();
        }
        let (mut answer, mut seen) = counts(&world.call(index, "ADD", &target, &prev));
        assert!(answer.ok(), "{answer:?}");
        if verb == "DEL" {
            (answer, seen) = counts(&world.call(index, "DEL", &target, &answer.json()));
            assert!(answer.ok() || world.side == Side::Go, "{answer:?}");
        }
        world.expect_del(&target, &Value::Null);
        for (turn, fault) in sample(faults(menu, &seen), wanted, &mut random).into_iter().enumerate() {
            let target = Target::of(&world.net.container());
            let mut problem = match verb {
                "ADD" => fail_add(world, index, &fault, &target),
                _ => fail_del(world, index, &fault, &target),
            };
            problem.push_str(&world.left(&before, &target));
            if problem.is_empty() && turn % 8 == 0 {
                problem = world.next_works(&before, &Target::of(&world.net.container()));
            }
            let what =
                format!("{verb} of {} on {} with {fault:?}", world.network.kind(index), world.network.label);
            if !problem.is_empty() {
                before = world.host();
            }
            tally.count(&what, &problem);
            world.bury(&target);
        }
    }
}

/// Everything on a menu would be some ten thousand runs: `ours` and `go` say how many each plugin's verb gets.
fn inject_everywhere(menu: Menu, scenario: &str, ours: usize, go: usize) {
    sandbox(|net| {
        // Nested tracing and some containers forbid it.
        let probe = net
            .netns()
            .run(|| std::process::Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status());
        if !probe.is_ok_and(|status| status.is_ok_and(|status| status.success())) {
            return skip("strace cannot trace here");
        }
        for side in sides() {
            let mut tally = Tally::default();
            let wanted = if side == Side::Go { go } else { ours };
            let (networks, victims): (Vec<_>, Vec<_>) = chains().into_iter().unzip();
            on_each(networks, side, |number, world| {
                victims[number].iter().for_each(|index| inject(world, *index, menu, wanted, &mut tally));
            });
            tally.close(scenario, side);
        }
    });
}

#[test]
fn whatever_system_call_fails_nothing_is_left() {
    let scenario = "a system call fails (strace -e inject), ADD or DEL, then DEL";
    inject_everywhere(FAULTS, scenario, rounds(6, 40), rounds(5, 25));
}

#[test]
fn whatever_system_call_a_kill_comes_before_nothing_is_left() {
    let scenario = "kill -9 before a system call (strace -e inject), ADD or DEL, then DEL";
    inject_everywhere(KILLS, scenario, rounds(2, 40), rounds(2, 10));
}
