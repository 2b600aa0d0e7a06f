// SPDX-License-Identifier: Apache-2.0
//! Whole chains, on an empty host and on one with many containers.

use anyhow::{Result, ensure};
use cnibox_testkit::{Sandbox, diff};

use crate::chain::{Chain, WHOLE};
use crate::floor;
use crate::host::{self, Network};
use crate::options::Options;
use crate::pod::Pod;
use crate::report::{Section, ms, times};
use crate::samples::Samples;
use crate::turns::{Side, Turn, side_by_side};

/// Nomad's chain with two ports for TCP and UDP each, and the floor beside it.
pub(crate) fn nomad(options: &Options) -> Result<Vec<Section>> {
    // Deletions wait for all processors, each for another time: medians of 20 are a tenth apart from run to run.
    let rounds = options.rounds(60);
    let setup =
        Setup { options, rounds, network: host::nomad(), sides: &[Side::Ours, Side::Go, Side::Floor] };
    let mut table = Section::new(
        "Nomad's chain",
        "loopback, bridge with ipMasq and host-local, firewall and portmap (2 ports x TCP and UDP), with the iptables \
         backends. The floor makes the same kernel objects by one `ip -batch` per namespace and one `iptables-restore`. What \
         is measured begins when the kernel has come to rest, and at another phase of the clock's tick each time.",
        &["containers on the host, verb", "cnibox", "Go plugins", "ratio", "floor"],
    );
    let mut growth = Section::new(
        "What many containers cost, Nomad's chain",
        "The floor makes and deletes the same kernel objects by one `ip -batch` per namespace and one \
         `iptables-restore`, without any plugin: its growth is the kernel's. bridge and portmap both write to the table \
         `nat`, each in its own process, and the kernel validates the whole table for each; one `iptables-restore` for each \
         plugin that writes rules is the floor of a chain. The floor's containers speak IPv6 as early as the plugins': \
         duplicate address detection, which bridge switches off, would put off what goes to all ports of the bridge.",
        &["verb, containers on the host", "cnibox", "Go plugins", "floor"],
    );
    let mut plugins = Vec::new();
    let mut measured = Vec::new();
    for &containers in options.sizes(&[0, 100, 1000]) {
        let sides = setup.measure(containers)?;
        chain_rows(&mut table, containers, &sides);
        plugins.push(plugin_table(&setup, containers, &sides));
        measured.push((containers, sides));
    }
    if let (Some((least, few)), Some((most, many))) = (measured.first(), measured.last()) {
        for verb in VERBS {
            for (containers, sides) in &measured {
                let time = |side: usize| ms(median(sides, side, verb));
                growth.row([format!("{verb}, {containers}"), time(0), time(1), time(2)]);
            }
            let grown = |side: usize| times(median(many, side, verb) / median(few, side, verb));
            growth.row([format!("{verb}, {most} / {least}"), grown(0), grown(1), grown(2)]);
        }
        for (containers, sides) in &measured {
            let time =
                sides.get(2).map_or(f64::NAN, |floor| floor.median("ADD", floor::Rules::ByPlugin.label()));
            let share = |side: usize| times(median(sides, side, "ADD") / time);
            let what = format!(
                "ADD, {containers}, compared with the floor by one `iptables-restore` per plugin, {}",
                ms(time)
            );
            growth.row([what, share(0), share(1), share(2)]);
        }
        for (containers, sides) in &measured {
            let link = sides.get(2).map_or(f64::NAN, |floor| floor.median("DEL", floor::LINK));
            let share = |side: usize| times(median(sides, side, "DEL") / link);
            let what =
                format!("DEL, {containers}, compared with `ip` that only deletes such a link, {}", ms(link));
            growth.row([what, share(0), share(1), share(2)]);
        }
    }
    Ok([table, growth.for_docs()].into_iter().chain(plugins).collect())
}

/// Two families, twenty ports, nftables backends.
pub(crate) fn dual_stack(options: &Options) -> Result<Vec<Section>> {
    let rounds = options.rounds(20);
    let setup = Setup { options, rounds, network: host::dual_stack(), sides: &[Side::Ours, Side::Go] };
    let sides = setup.measure(0)?;
    let mut table = plugin_table(&setup, 0, &sides);
    for verb in VERBS {
        let (ours, go) = (median(&sides, 0, verb), median(&sides, 1, verb));
        table.headline(
            &format!("{verb}, dual stack, 20 ports, nftables"),
            ms(ours),
            ms(go),
            times(go / ours),
        );
    }
    Ok(vec![table])
}

/// One network to measure.
struct Setup<'a> {
    options: &'a Options,
    rounds: usize,
    network: Network,
    sides: &'a [Side],
}

impl Setup<'_> {
    /// Measures on a host with this many containers; answers with each side's samples.
    fn measure(&self, containers: usize) -> Result<Vec<Samples>> {
        let played = side_by_side(self.sides, |net, side, turn| {
            let mut player = Player { setup: self, net, side, samples: Samples::default() };
            let objects = turn.take(|| player.warm_up())?;
            turn.take(|| player.populate(containers))?;
            for round in 0..self.rounds {
                player.round(turn, 1 + containers + 2 * round, floor::Rules::of_round(round))?;
            }
            Ok((player.samples, objects))
        })?;
        let (samples, objects): (Vec<_>, Vec<_>) = played.into_iter().unzip();
        if let [ours, go, ..] = objects.as_slice() {
            ensure!(ours == go, "the two leave different objects:\n{}", diff(ours, go));
        }
        Ok(samples)
    }

    fn chain(&self, net: &Sandbox, side: Side) -> Result<Chain> {
        self.network.chain(net, self.options.bin(side))
    }

    fn pod(&self, number: usize) -> Result<Pod> {
        Pod::new(number, self.network.ports)
    }
}

struct Player<'a> {
    setup: &'a Setup<'a>,
    net: &'a Sandbox,
    side: Side,
    samples: Samples,
}

impl Player<'_> {
    /// The first container, which also makes what all share. Answers with the packet filter it leaves.
    fn warm_up(&self) -> Result<String> {
        host::prepare(self.net);
        let (chain, pod) = (self.setup.chain(self.net, self.side)?, self.setup.pod(0)?);
        let mut unused = Samples::default();
        let result = chain.add(&pod, &mut unused)?;
        let objects = packet_filter(self.net);
        chain.check(&pod, &result, &mut unused)?;
        chain.del(&pod, &result, &mut unused)?;
        Ok(objects)
    }

    /// By ours on every side: both leave the same, and the Go plugins would take very long.
    fn populate(&self, containers: usize) -> Result<()> {
        let chain = self.setup.chain(self.net, Side::Ours)?;
        for number in 1..=containers {
            chain.add(&self.setup.pod(number)?, &mut Samples::default())?;
        }
        Ok(())
    }

    /// One container comes, is checked, and goes; beside the floor's own, whose rules are `written` so, `ip` deletes the link of
    /// one of cnibox's, which has the next number.
    fn round(&mut self, turn: &Turn<'_>, number: usize, written: floor::Rules) -> Result<()> {
        // In a turn of their own: making a namespace takes the lock of all links.
        let (pod, such) = turn.take(|| Ok((self.setup.pod(number)?, self.setup.pod(number + 1)?)))?;
        if self.side == Side::Floor {
            return self.floor_round(turn, (&pod, &such), written);
        }
        let chain = self.setup.chain(self.net, self.side)?;
        let result = turn.take(|| chain.add(&pod, &mut self.samples))?;
        turn.take(|| chain.check(&pod, &result, &mut self.samples))?;
        turn.take(|| chain.del(&pod, &result, &mut self.samples))?;
        turn.take(|| Ok(()))
    }

    fn floor_round(
        &mut self,
        turn: &Turn<'_>,
        (pod, such): (&Pod, &Pod),
        written: floor::Rules,
    ) -> Result<()> {
        floor::prepare(pod)?;
        turn.take(|| {
            self.samples.note("ADD", written.label(), floor::add(pod, written)?);
            Ok(())
        })?;
        let chain = self.setup.chain(self.net, Side::Ours)?;
        let result = turn.take(|| chain.add(such, &mut Samples::default()))?;
        turn.take(|| {
            self.samples.note("DEL", WHOLE, floor::del(pod)?);
            Ok(())
        })?;
        turn.take(|| {
            self.samples.note("DEL", floor::LINK, floor::link_del(such)?);
            chain.del(such, &result, &mut Samples::default())
        })
    }
}

/// All rules, without order and counters.
fn packet_filter(net: &Sandbox) -> String {
    let saved = net.run("iptables-save", &[]) + &net.run("nft", &["list", "tables"]);
    let lines = saved.lines().filter(|line| !line.starts_with('#'));
    let mut lines: Vec<_> = lines.map(|line| line.split(" [").next().unwrap_or(line)).collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn chain_rows(table: &mut Section, containers: usize, sides: &[Samples]) {
    for verb in VERBS {
        let [ours, go, floor] = [0, 1, 2].map(|side| median(sides, side, verb));
        let what = format!("{containers}, {verb}");
        table.row([what, ms(ours), ms(go), times(go / ours), ms(floor)]);
        let what = format!("{verb}, Nomad's chain, {containers} containers on the host");
        table.headline(&what, ms(ours), ms(go), times(go / ours));
    }
}

fn plugin_table(setup: &Setup<'_>, containers: usize, sides: &[Samples]) -> Section {
    let header = ["verb, plugin", "cnibox", "Go plugins", "ratio"];
    let title = format!("{}, plugin by plugin, {containers} containers on the host", setup.network.name());
    let mut table = Section::new(&title, "", &header);
    let plugins = setup.network.plugins();
    for verb in VERBS {
        for plugin in plugins.iter().map(String::as_str).chain([WHOLE]) {
            let time = |side: usize| sides.get(side).map_or(f64::NAN, |samples| samples.median(verb, plugin));
            table.compare(&format!("{verb} {plugin}"), time(0), time(1));
        }
    }
    table
}

fn median(sides: &[Samples], side: usize, verb: &str) -> f64 {
    sides.get(side).map_or(f64::NAN, |samples| samples.median(verb, WHOLE))
}

const VERBS: [&str; 3] = ["ADD", "CHECK", "DEL"];
