// SPDX-License-Identifier: Apache-2.0
//! Random histories of runtimes that forget, repeat and die, beside a model of what lives: at no moment do two namespaces
//! have one address, no ADD and no GC changes a living attachment, and after all DELs nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZero;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cnibox_netlink::{Mac, Rtnl};
use cnibox_netns::NetNs;
use cnibox_testkit::{in_netns, sandbox};
use serde_json::{Value, json};

use crate::fixture::{Side, Target, World, supported, wait};
use crate::networks::{self, Network};
use crate::report::{Random, Tally, rounds, sides};

const CONTAINERS: usize = 8;
const NAMESPACES: usize = 12;
const STEPS: usize = 22;

/// One thing that a runtime does, or that happens to it.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// ADD of the whole chain, with an earlier result that is none of its own where `chained` says so.
    Add { container: usize, netns: usize, chained: bool },
    /// The plugin of this index is killed after so many microseconds of its ADD.
    Killed { container: usize, netns: usize, plugin: usize, after: u64 },
    /// ADD whose last plugin fails.
    Failed { container: usize, netns: usize },
    /// DEL in the namespace of the last ADD; `lost` is one without prevResult.
    Del { container: usize, lost: bool },
    /// The namespace is removed, and whatever is in it.
    Removed { netns: usize },
    /// GC with the list of those that live.
    Gc,
    /// CHECK with what the last ADD answered.
    Check { container: usize },
    /// The runtime's agent starts again, as Nomad's does: CHECK of everything, and ADD without DEL of what is lost.
    Restarted,
}

impl Step {
    fn random(random: &mut Random, plugins: usize) -> Self {
        let (container, netns) = (random.below(CONTAINERS), random.below(NAMESPACES));
        match random.below(18) {
            0..=5 => Self::Add { container, netns, chained: random.below(6) == 0 },
            6..=8 => Self::Killed {
                container,
                netns,
                plugin: random.below(plugins),
                after: (200 << random.below(8)) + random.below(200) as u64,
            },
            9..=10 => Self::Failed { container, netns },
            11..=12 => Self::Del { container, lost: random.below(2) == 0 },
            13..=14 => Self::Removed { netns },
            15 => Self::Check { container },
            16 => Self::Restarted,
            _ => Self::Gc,
        }
    }
}

/// What a living attachment looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    mac: Option<Mac>,
    addresses: Vec<IpAddr>,
}

/// A host on which histories happen, one after the other.
struct Stage<'w, 'a> {
    world: &'w World<'a>,
    broken: World<'a>,
    /// The attachments that live: namespace, result and looks.
    living: BTreeMap<usize, (usize, Value, Look)>,
    /// Where the runtime last tried, and what it was answered.
    last: BTreeMap<usize, (usize, Value)>,
    /// Of whose ADD nobody knows whether it was killed in the middle or behind its end, and where. One that came to its end
    /// lives there until DEL names that namespace, and stands in the way of others, as with the Go plugins.
    unclear: BTreeSet<(usize, usize)>,
    /// Everywhere that it tried.
    tried: BTreeSet<(usize, usize)>,
}

impl<'w, 'a> Stage<'w, 'a> {
    fn new(world: &'w World<'a>) -> Self {
        let broken = world.with(world.network.clone().broken());
        Self {
            world,
            broken,
            living: BTreeMap::new(),
            last: BTreeMap::new(),
            unclear: BTreeSet::new(),
            tried: BTreeSet::new(),
        }
    }

    fn target(container: usize, netns: usize) -> Target {
        // Its number chooses what it can have only once.
        let id = format!("pod{}-c{container}", container + 1);
        Target { id, netns: path(netns), ifname: "eth0".to_owned() }
    }

    /// The world as the container's runtime configures it.
    fn of(&self, container: usize) -> World<'a> {
        let mut world = self.world.with(self.world.network.clone());
        if !world.network.ports.is_null() {
            world.network = world.network.with_ports(30_000 + 10 * container);
        }
        world
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Add { container, netns, chained } => self.add(container, netns, chained),
            Step::Killed { container, netns, plugin, after } => self.killed(container, netns, plugin, after),
            Step::Failed { container, netns } => {
                self.tries(container, netns);
                let _ = self.broken.add(&Self::target(container, netns));
                self.has_failed(container, netns);
                Ok(())
            }
            Step::Del { container, lost } => self.del(container, lost),
            Step::Removed { netns } => {
                if Path::new(&path(netns)).exists() {
                    self.world.net.run("ip", &["netns", "del", &name(netns)]);
                    self.living.retain(|_, (of, ..)| *of != netns);
                }
                Ok(())
            }
            Step::Gc => self.gc(),
            Step::Check { container } => self.check(container).map(drop),
            Step::Restarted => {
                let known: Vec<_> =
                    self.last.iter().map(|(container, (netns, _))| (*container, *netns)).collect();
                for (container, netns) in known {
                    if !self.check(container)? {
                        self.add(container, netns, false)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Whether CHECK of what the last ADD answered succeeds, as it does for what lives.
    fn check(&mut self, container: usize) -> Result<bool, String> {
        let Some((netns, result)) = self.last.get(&container).filter(|(_, result)| !result.is_null()) else {
            return Ok(false);
        };
        let outcome = self.of(container).check(&Self::target(container, *netns), result);
        match outcome {
            Err(answer) if self.living.contains_key(&container) => {
                Err(format!("CHECK of c{container}, which lives: {answer:?}"))
            }
            outcome => Ok(outcome.is_ok()),
        }
    }

    fn tries(&mut self, container: usize, netns: usize) {
        if !Path::new(&path(netns)).exists() {
            self.world.net.run("ip", &["netns", "add", &name(netns)]);
            let made = NetNs::open(path(netns)).expect("open what was made");
            in_netns(&made, trust_addresses);
        }
        self.tried.insert((container, netns));
    }

    fn add(&mut self, container: usize, netns: usize, chained: bool) -> Result<(), String> {
        self.tries(container, netns);
        let target = Self::target(container, netns);
        let world = self.of(container);
        let occupied = look(netns).is_some();
        let prev = if chained {
            json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": target.netns}]})
        } else {
            Value::Null
        };
        let outcome = world.add_behind(&target, prev);
        let lived = self.living.contains_key(&container);
        match outcome {
            Ok(_) if lived => Err(format!("ADD of c{container} succeeded although it lives")),
            Ok(result) => {
                let looks = look(netns).ok_or("ADD succeeded without an interface")?;
                self.is_clear_in(container, netns);
                self.living.insert(container, (netns, result.clone(), looks));
                self.last.insert(container, (netns, result));
                Ok(())
            }
            Err(answer) => {
                self.has_failed(container, netns);
                let is_full = answer.stdout.contains("no IP addresses available");
                let is_lent = world.network.host == networks::DEVICES;
                let is_unclear = self.unclear.iter().any(|(of, _)| *of == container);
                let excused = lived || occupied || is_full || is_lent || is_unclear;
                if excused {
                    Ok(())
                } else {
                    Err(format!("ADD of c{container}, which does not live: {answer:?}"))
                }
            }
        }
    }

    /// An ADD that failed; of a living attachment the runtime goes on knowing what it knew.
    fn has_failed(&mut self, container: usize, netns: usize) {
        if !self.living.contains_key(&container) {
            self.last.insert(container, (netns, Value::Null));
        }
    }

    fn killed(&mut self, container: usize, netns: usize, plugin: usize, after: u64) -> Result<(), String> {
        self.tries(container, netns);
        let target = Self::target(container, netns);
        let world = self.of(container);
        let mut prev = Value::Null;
        for index in 0..plugin {
            let answer = world.call(index, "ADD", &target, &prev).run();
            if !answer.ok() {
                return Ok(());
            }
            prev = answer.json();
        }
        let mut child = world.call(plugin, "ADD", &target, &prev).start();
        if wait(&mut child, Duration::from_micros(after)).is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !is_unfinished(&target) {
            self.unclear.insert((container, netns));
        }
        self.has_failed(container, netns);
        Ok(())
    }

    /// What a killed ADD made is gone, if it was in this namespace or is there no more.
    fn is_clear_in(&mut self, container: usize, netns: usize) {
        self.unclear.retain(|(of, made)| *of != container || *made != netns && look(*made).is_some());
    }

    fn del(&mut self, container: usize, lost: bool) -> Result<(), String> {
        let Some((netns, result)) = self.last.get(&container).cloned() else { return Ok(()) };
        let prev = if lost { Value::Null } else { result };
        let outcome = self.of(container).del(&Self::target(container, netns), &prev);
        self.living.remove(&container);
        self.is_clear_in(container, netns);
        outcome.map_err(|answer| format!("DEL of c{container}: {answer:?}"))
    }

    fn gc(&mut self) -> Result<(), String> {
        let mut valid: Vec<Target> =
            self.living.iter().map(|(container, (netns, ..))| Self::target(*container, *netns)).collect();
        valid.push(self.world.neighbour.clone());
        let valid: Vec<_> = valid.iter().collect();
        self.world.gc(Some(&valid)).map_err(|answer| format!("GC: {answer:?}"))
    }

    /// What must hold at every moment.
    fn is_sound(&self) -> Result<(), String> {
        let mut owners: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for netns in 0..NAMESPACES {
            for address in look(netns).map(|look| look.addresses).unwrap_or_default() {
                if let Some(other) = owners.insert(address, netns) {
                    return Err(format!("{address} is in {} and in {}", name(other), name(netns)));
                }
            }
        }
        for (container, (netns, _, looks)) in &self.living {
            let now = look(*netns);
            if now.as_ref() != Some(looks) {
                return Err(format!("c{container} lives in {} and was {looks:?}, is {now:?}", name(*netns)));
            }
        }
        Ok(())
    }

    /// DEL of everything that was ever tried, then the namespaces go.
    fn end(&mut self, before: &str) -> Result<(), String> {
        for (container, netns) in std::mem::take(&mut self.tried) {
            let prev =
                self.last.get(&container).filter(|(of, _)| *of == netns).map(|(_, result)| result.clone());
            let target = Self::target(container, netns);
            let outcome = self.of(container).del(&target, &prev.unwrap_or_default());
            outcome.map_err(|answer| format!("last DEL of c{container}: {answer:?}"))?;
        }
        for netns in 0..NAMESPACES {
            if Path::new(&path(netns)).exists() {
                self.world.net.run("ip", &["netns", "del", &name(netns)]);
            }
        }
        let left = self.world.left_but_devices(before);
        if left.is_empty() { Ok(()) } else { Err(format!("left:\n{left}")) }
    }
}

fn name(netns: usize) -> String {
    format!("ns{netns}")
}

fn path(netns: usize) -> String {
    format!("/run/netns/{}", name(netns))
}

/// Whether the ledger says that the container's ADD has not come to its end.
fn is_unfinished(target: &Target) -> bool {
    let shelves = std::fs::read_dir("/run/cnibox/attachments").into_iter().flatten().flatten();
    let records = shelves.flat_map(|shelf| std::fs::read_dir(shelf.path()).into_iter().flatten().flatten());
    let own =
        records.filter(|record| record.file_name().to_string_lossy().starts_with(&format!("{}:", target.id)));
    let texts = own.filter_map(|record| std::fs::read_to_string(record.path()).ok());
    texts.into_iter().any(|text| {
        [r#""progress":"begun""#, r#""progress":"failed""#].iter().any(|unfinished| text.contains(unfinished))
    })
}

/// The container's interface in a namespace, without what the kernel gives it.
fn look(netns: usize) -> Option<Look> {
    let netns = NetNs::open(path(netns)).ok()?;
    in_netns(&netns, || {
        let mut rtnl = Rtnl::open().expect("a socket");
        let link = rtnl.link_by_name_if_present("eth0").expect("ask for eth0")?;
        let addresses =
            rtnl.addrs(link.index, None).expect("addresses").into_iter().map(|addr| addr.net.ip());
        let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        Some(Look { mac: link.mac, addresses: addresses.filter(|ip| !is_local(ip)).collect() })
    })
}

/// One history from its beginning to its end; the number of the step that went wrong, and how.
fn happen(world: &World<'_>, before: &str, steps: &[Step]) -> Result<(), String> {
    let mut stage = Stage::new(world);
    for (number, step) in steps.iter().enumerate() {
        let wrong = stage.take(*step).and_then(|()| stage.is_sound());
        if let Err(problem) = wrong {
            let _ = stage.end(before);
            return Err(format!("step {number}, {step:?}: {problem}"));
        }
    }
    stage.end(before)
}

/// Leaves out what the history does not need to go wrong.
fn shortest(world: &World<'_>, before: &str, mut steps: Vec<Step>) -> Vec<Step> {
    let mut at = 0;
    while at < steps.len() {
        let mut fewer = steps.clone();
        fewer.remove(at);
        if happen(world, before, &fewer).is_err() { steps = fewer } else { at += 1 }
    }
    steps
}

/// Five addresses for eight containers.
pub(crate) fn crowded(mut network: Network) -> Network {
    for range in network.interface()["ipam"]["ranges"].as_array_mut().into_iter().flatten() {
        let subnet = range[0]["subnet"].as_str().unwrap_or_default();
        let start = subnet.split('/').next().unwrap_or_default();
        let start = start.strip_suffix('0').filter(|_| start.contains('.')).unwrap_or(start).to_owned();
        range[0]["rangeStart"] = json!(format!("{start}2"));
        // The neighbour has one.
        range[0]["rangeEnd"] = json!(format!("{start}7"));
    }
    network
}

/// Networks of every plugin that makes an interface of its own, with a chained one that can fail.
fn all() -> Vec<Network> {
    [
        networks::v4(),
        networks::native(),
        networks::routed(),
        networks::stacked(),
        networks::tap(),
        networks::lent(),
    ]
    .map(crowded)
    .to_vec()
}

/// In the current namespace nobody asks whether an address is somebody else's already: that takes the kernel a second or
/// two for each, and a history has dozens.
fn trust_addresses() {
    for place in ["all", "default"] {
        let switch = format!("/proc/sys/net/ipv6/conf/{place}/accept_dad");
        std::fs::write(&switch, "0").unwrap_or_else(|error| panic!("write {switch}: {error}"));
    }
}

/// The histories of these numbers on one network. One that goes wrong is the last: what it left would be the next one's.
fn histories(network: &Network, side: Side, numbers: &[usize], tally: &Mutex<Tally>) {
    if numbers.is_empty() {
        return;
    }
    sandbox(|net| {
        trust_addresses();
        if !supported(net, network) {
            return;
        }
        let world = World::new(net, network.clone(), side);
        let before = world.host();
        for &number in numbers {
            let mut random = Random::new((number + seed()) as u64);
            let steps: Vec<_> =
                (0..STEPS).map(|_| Step::random(&mut random, network.plugins.len())).collect();
            let problem = happen(&world, &before, &steps).err().map(|problem| {
                let short = if side == Side::Ours { shortest(&world, &before, steps) } else { steps };
                format!("{problem}\nshortest: {short:#?}\n")
            });
            let bad = problem.is_some();
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.count(&format!("history {number} on {}", network.label), &problem.unwrap_or_default());
            if bad {
                break;
            }
        }
    });
}

/// `CNIBOX_HISTORIES_SEED`: another one for other histories.
fn seed() -> usize {
    number("CNIBOX_HISTORIES_SEED").unwrap_or(0)
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// `CNIBOX_HISTORIES`: how many to try in place of the usual number.
fn count() -> usize {
    number("CNIBOX_HISTORIES").unwrap_or_else(|| rounds(6, 10_000))
}

#[test]
fn what_lives_is_left_alone_whatever_a_runtime_does() {
    // They spend half of their time waiting for the kernel.
    let at_once = 2 * std::thread::available_parallelism().map_or(1, NonZero::get);
    for side in sides() {
        let tally = Mutex::new(Tally::default());
        let networks = all();
        let each = if side == Side::Ours { count() } else { 60 }.div_ceil(networks.len());
        let share = |thread: usize| {
            for (index, network) in networks.iter().enumerate() {
                let numbers = index * each..(index + 1) * each;
                let mine: Vec<_> = numbers.filter(|number| number % at_once == thread).collect();
                histories(network, side, &mine, &tally);
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..at_once {
                let share = &share;
                scope.spawn(move || share(thread));
            }
        });
        tally
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .close("random histories of 22 steps", side);
    }
}
