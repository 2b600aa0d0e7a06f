// SPDX-License-Identifier: Apache-2.0
//! Somebody else's iptables commands at random moments of ADD and DEL: nobody loses a rule.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::Duration;

use cnibox_testkit::{Sandbox, sandbox};

use crate::fixture::{Side, Target, World};
use crate::networks::{self, Network};
use crate::report::{Random, Tally, rounds, sides};

/// A chain: the tool of its family, its table, its name.
type Place = (&'static str, &'static str, &'static str);

/// Chains that are everybody's, one that is ours but made for administrators, and the stranger's own.
const PLACES: &[Place] = &[
    ("iptables", "nat", "PREROUTING"),
    ("iptables", "nat", "POSTROUTING"),
    ("iptables", "nat", OWN_CHAIN),
    ("iptables", "filter", "FORWARD"),
    ("iptables", "filter", "CNI-ADMIN"),
    ("ip6tables", "nat", "POSTROUTING"),
    ("ip6tables", "filter", "FORWARD"),
];
const OWN_CHAIN: &str = "STRANGER";

/// Somebody with rules of their own.
struct Stranger {
    random: Random,
    /// The rules that must be there, in order.
    rules: BTreeMap<Place, Vec<usize>>,
    made: usize,
}

impl Stranger {
    /// One with a chain, and whose commands have made all tables that they will use.
    fn new(net: &Sandbox, seed: u64) -> Self {
        net.run("iptables", &["-w", "-t", "nat", "-N", OWN_CHAIN]);
        for (tool, table, chain) in PLACES {
            for verb in ["-A", "-D"] {
                net.run("sh", &["-ec", &format!("{tool} -w -t {table} {verb} {chain} {}", spec(0))]);
            }
        }
        Self { random: Random::new(seed), rules: BTreeMap::new(), made: 0 }
    }

    /// Starts a few commands, with pauses; what they do is noted in [`Self::rules`] already.
    fn commands(&mut self) -> Child {
        let mut script = String::new();
        for _ in 0..3 + self.random.below(5) {
            script += &format!("sleep 0.00{}\n", self.random.below(8));
            script += &self.command();
        }
        let mut shell = Command::new("sh");
        shell.args(["-ec", &script]).spawn().expect("start a shell")
    }

    fn command(&mut self) -> String {
        let place = *self.random.pick(PLACES);
        let (tool, table, chain) = place;
        let how = self.random.below(5);
        if how > 2
            && let Some(rules) = self.rules.get_mut(&place)
            && !rules.is_empty()
        {
            let gone = rules.remove(self.random.below(rules.len()));
            return format!("{tool} -w -t {table} -D {chain} {}\n", spec(gone));
        }
        self.made += 1;
        let rules = self.rules.entry(place).or_default();
        let spec = spec(self.made);
        match how {
            0 => {
                rules.insert(0, self.made);
                format!("{tool} -w -t {table} -I {chain} {spec}\n")
            }
            1 => {
                rules.push(self.made);
                format!("printf '*{table}\\n-A {chain} {spec}\\nCOMMIT\\n' | {tool}-restore -w --noflush\n")
            }
            _ => {
                rules.push(self.made);
                format!("{tool} -w -t {table} -A {chain} {spec}\n")
            }
        }
    }

    /// Waits for the commands, and answers with what went wrong with them.
    fn after(&self, verb: &str, mut commands: Child, net: &Sandbox) -> String {
        let status = commands.wait().expect("wait for a shell");
        let mut problem = self.lost(&saved(net));
        if !status.success() {
            problem += &format!("one of the stranger's commands: {status}\n");
        }
        if problem.is_empty() { problem } else { format!("during {verb}: {problem}") }
    }

    /// What is missing of the stranger's, or should not be there any more. Empty if nothing.
    fn lost(&self, saved: &str) -> String {
        let found = |(tool, table, chain): &Place| -> Vec<usize> {
            let of_table = saved.split_once(&format!("# {tool} {table}\n")).map_or("", |(_, rest)| rest);
            let of_table = of_table.split_once("COMMIT").map_or("", |(rules, _)| rules);
            let of_chain = of_table.lines().filter(|line| line.starts_with(&format!("-A {chain} ")));
            of_chain.filter_map(|line| line.split_once(MARK)?.1.split(' ').next()?.parse().ok()).collect()
        };
        let wrong = PLACES.iter().filter_map(|place| {
            let wanted = self.rules.get(place).cloned().unwrap_or_default();
            let found = found(place);
            (found != wanted).then(|| format!("{place:?}: {found:?}, not {wanted:?}\n"))
        });
        wrong.collect()
    }

    /// Takes all rules away again.
    fn leave(self, net: &Sandbox) {
        for ((tool, table, chain), rules) in &self.rules {
            for rule in rules {
                net.run("sh", &["-ec", &format!("{tool} -w -t {table} -D {chain} {}", spec(*rule))]);
            }
        }
    }
}

const MARK: &str = "stranger-";

fn spec(rule: usize) -> String {
    format!("-p udp -m comment --comment {MARK}{rule} -j RETURN")
}

/// All rules of all tables that there are, below a line that names each.
fn saved(net: &Sandbox) -> String {
    let script = "for tool in iptables ip6tables; do for table in nat filter; do \
         echo \"# $tool $table\"; $tool-save -t $table | grep -v '^#' | sed '/^:/s/ \\[.*//'; done; done";
    net.run("sh", &["-ec", script])
}

fn without_strangers(saved: &str) -> Vec<&str> {
    saved.lines().filter(|line| !line.contains(MARK)).collect()
}

/// One container comes and goes while the stranger is at it; what went wrong.
fn interleave(world: &World<'_>, stranger: &mut Stranger, moments: &mut Random) -> String {
    let before = saved(world.net);
    let target = Target::of(&world.net.container());
    let mut moment = || std::thread::sleep(Duration::from_millis(moments.below(25) as u64));

    let commands = stranger.commands();
    moment();
    let added = world.add(&target);
    let mut problem = stranger.after("ADD", commands, world.net);
    let result = match added {
        Ok(result) => result,
        Err(answer) => return problem + &format!("ADD: {answer:?}\n"),
    };
    if let Err(answer) = world.check(&target, &result) {
        problem += &format!("CHECK: {answer:?}\n");
    }

    let commands = stranger.commands();
    moment();
    if let Err(answer) = world.del(&target, &result) {
        problem += &format!("DEL: {answer:?}\n");
    }
    problem += &stranger.after("DEL", commands, world.net);
    if without_strangers(&saved(world.net)) != without_strangers(&before) {
        problem += "DEL left, or took, other rules\n";
    }
    problem
}

/// A world for each network, and in it one container after the other.
fn among_strangers(network: Network, side: Side, (seed, turns): (u64, usize), tally: &mut Tally) {
    sandbox(|net| {
        let world = World::new(net, network.clone(), side);
        let mut stranger = Stranger::new(net, seed);
        let before = world.host();
        let mut moments = Random::new(seed + 1);
        for turn in 0..turns {
            let problem = interleave(&world, &mut stranger, &mut moments);
            tally.count(&format!("{}, turn {turn}", network.label), &problem);
        }
        stranger.leave(net);
        tally.count(&format!("{}, in the end", network.label), &world.left_on_host(&before));
    });
}

#[test]
fn nobody_loses_a_rule_to_the_iptables_of_others() {
    for side in sides() {
        let mut tally = Tally::default();
        for (number, network) in [networks::v4(), networks::dual()].into_iter().enumerate() {
            among_strangers(network, side, (97 + number as u64, rounds(100, 250)), &mut tally);
        }
        tally.close("iptables commands of others at random moments of ADD and DEL", side);
    }
}
