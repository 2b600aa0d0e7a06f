// SPDX-License-Identifier: Apache-2.0
//! Single plugins with very many of what they are given: what they cost must grow with the number and no faster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Map, Value, json};

use crate::chain::Chain;
use crate::host;
use crate::options::Options;
use crate::pod::Pod;
use crate::report::{Section, ms, times};
use crate::samples::Samples;
use crate::turns::{Side, Turn, side_by_side};

/// Wall clock and processor time by number.
pub(crate) fn run(options: &Options) -> Result<Vec<Section>> {
    let mut table = Section::new(
        "Many of a kind",
        "One plugin by itself, tuning behind ptp, with so many port mappings, addresses or sysctls. User: processor time \
         outside the kernel, of the plugins and what they start. The last row of each kind is what twice as many cost. The Go plugins are measured \
         once, and where they start processes for every rule only with the smaller number; a call of theirs that takes \
         longer than the time behind \">\" is given up, and with it the verbs behind it.",
        &["what, verb", "cnibox", "cnibox, user", "Go plugins", "Go plugins, user", "ratio"],
    );
    for kind in KINDS {
        let sizes = if options.quick { kind.sizes.map(|size| size / 100) } else { kind.sizes };
        let few = measure(options, kind, sizes[0], true)?;
        let many = measure(options, kind, sizes[1], !kind.starts_processes)?;
        for (size, sides) in sizes.iter().zip([&few, &many]) {
            for verb in VERBS {
                rows(&mut table, kind, (&format!("{size} {}, {verb}", kind.name), verb), sides);
            }
        }
        for verb in VERBS {
            let grown = |side: usize, what: &str| {
                times(median(&many, side, verb, what) / median(&few, side, verb, what))
            };
            let cells = [(0, kind.measured), (0, USER), (1, kind.measured), (1, USER)]
                .map(|(side, what)| grown(side, what));
            let [ours, user, go, go_user] = cells;
            let what = format!("{} / {} {}, {verb}", sizes[1], sizes[0], kind.name);
            table.row([what, ours, user, go, go_user, String::new()]);
        }
    }
    Ok(vec![table.for_docs()])
}

fn rows(table: &mut Section, kind: &Kind, (what, verb): (&str, &str), sides: &[Samples]) {
    let time = |side, of| median(sides, side, verb, of);
    let (ours, own) = (time(0, kind.measured), ms(time(0, USER)));
    let (go, at_least) = match time(1, GIVEN_UP) {
        limit if limit.is_nan() => (time(1, kind.measured), ""),
        limit => (limit, "> "),
    };
    let theirs = if at_least.is_empty() { ms(time(1, USER)) } else { "-".to_owned() };
    let (shown, ratio) = (format!("{at_least}{}", ms(go)), format!("{at_least}{}", times(go / ours)));
    table.row([what.to_owned(), ms(ours), own, shown, theirs, ratio]);
}

fn median(sides: &[Samples], side: usize, verb: &str, what: &str) -> f64 {
    sides.get(side).map_or(f64::NAN, |samples| samples.median(verb, what))
}

/// What there may be many of.
struct Kind {
    name: &'static str,
    /// As few, then twice as many.
    sizes: [usize; 2],
    /// Whether the Go plugin starts processes for each.
    starts_processes: bool,
    /// The plugin whose time counts.
    measured: &'static str,
    /// The chain with so many.
    plugins: fn(usize) -> Value,
    /// How many port mappings the runtime asks for.
    mappings: fn(usize) -> usize,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "port mappings, iptables",
        sizes: [1_000, 2_000],
        starts_processes: true,
        measured: "portmap",
        plugins: |_| portmap("iptables"),
        mappings: |count| count,
    },
    Kind {
        name: "port mappings, nftables",
        sizes: [10_000, 20_000],
        starts_processes: false,
        measured: "portmap",
        plugins: |_| portmap("nftables"),
        mappings: |count| count,
    },
    Kind {
        name: "addresses, firewall",
        sizes: [1_000, 2_000],
        starts_processes: true,
        measured: "firewall",
        plugins: |count| json!([{"type": "firewall", "backend": "iptables", "prevResult": addresses(count)}]),
        mappings: |_| 0,
    },
    Kind {
        name: "sysctls, tuning",
        sizes: [10_000, 20_000],
        starts_processes: false,
        measured: "tuning",
        // Its CHECK wants an interface.
        plugins: |count| json!([ptp(), {"type": "tuning", "sysctl": sysctls(count)}]),
        mappings: |_| 0,
    },
];

fn portmap(backend: &str) -> Value {
    json!([{"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}, "prevResult": addresses(1)}])
}

fn ptp() -> Value {
    let ipam = json!({"type": "static", "addresses": [{"address": "10.7.0.9/24", "gateway": "10.7.0.1"}]});
    json!({"type": "ptp", "ipam": ipam})
}

/// The result of an earlier plugin.
fn addresses(count: usize) -> Value {
    let ips = (2..count + 2)
        .map(|number| json!({"address": format!("10.99.{}.{}/16", number / 250, number % 250 + 1)}));
    json!({"cniVersion": "1.0.0", "ips": ips.collect::<Vec<_>>()})
}

/// One sysctl by as many names, up to 12 to the power of 4: slashes may be repeated.
fn sysctls(count: usize) -> Map<String, Value> {
    let name = |number: usize| {
        let slashes = |digit: usize| "/".repeat(digit % 12 + 1);
        let [first, second, third, fourth] = [1, 12, 144, 1728].map(|unit| slashes(number / unit));
        format!("net{first}ipv4{second}conf{third}lo{fourth}log_martians")
    };
    (0..count).map(|number| (name(number), json!("0"))).collect()
}

/// Both sides' samples; without Go's own if it is not asked for.
fn measure(options: &Options, kind: &Kind, count: usize, with_go: bool) -> Result<Vec<Samples>> {
    let rounds = options.rounds(9);
    side_by_side(&[Side::Ours, Side::Go], |net, side, turn| {
        let list = json!({"cniVersion": "1.0.0", "name": "large", "plugins": (kind.plugins)(count)});
        let mut chain = Chain::new(options.bin(side), list);
        if side == Side::Go {
            let words = ["timeout", "--signal=KILL", &PATIENCE.as_secs().to_string()];
            chain = chain.behind(words.map(str::to_owned).to_vec());
        }
        turn.take(|| {
            host::prepare(net);
            Ok(())
        })?;
        let mut samples = Samples::default();
        for number in 0..rounds {
            if side == Side::Ours || (with_go && number == 0) {
                // For TCP and UDP each.
                let pod = Pod::new(number, (kind.mappings)(count).div_ceil(2))?;
                round(&chain, turn, &pod, &mut samples)?;
            } else {
                VERBS.iter().try_for_each(|_| turn.take(|| Ok(())))?;
            }
        }
        Ok(samples)
    })
}

fn round(chain: &Chain, turn: &Turn<'_>, pod: &Pod, samples: &mut Samples) -> Result<()> {
    let added = turn.take(|| timed("ADD", samples, |samples| chain.add(pod, samples)))?;
    let checked = turn.take(|| {
        let Some(result) = &added else { return Ok(None) };
        timed("CHECK", samples, |samples| chain.check(pod, result, samples))
    })?;
    turn.take(|| {
        let (Some(result), Some(())) = (&added, checked) else { return Ok(()) };
        timed("DEL", samples, |samples| chain.del(pod, result, samples)).map(drop)
    })
}

/// As [`spent`]; nothing if it took so long that it was given up.
fn timed<T>(
    verb: &str,
    samples: &mut Samples,
    work: impl FnOnce(&mut Samples) -> Result<T>,
) -> Result<Option<T>> {
    let started = Instant::now();
    let outcome = spent(verb, samples, work);
    if outcome.is_err() && started.elapsed() >= PATIENCE {
        samples.note(verb, GIVEN_UP, PATIENCE);
        return Ok(None);
    }
    outcome.map(Some)
}

/// Notes the user time of the processes that `work` waits for.
fn spent<T>(verb: &str, samples: &mut Samples, work: impl FnOnce(&mut Samples) -> Result<T>) -> Result<T> {
    let before = user()?;
    let outcome = work(samples)?;
    samples.note(verb, USER, user()?.saturating_sub(before));
    Ok(outcome)
}

fn user() -> Result<Duration> {
    let time = getrusage(UsageWho::RUSAGE_CHILDREN).context("ask for the usage")?.user_time();
    let micros = u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0);
    Ok(Duration::from_micros(micros))
}

const VERBS: [&str; 3] = ["ADD", "CHECK", "DEL"];
const USER: &str = "user";
const GIVEN_UP: &str = "given up";
/// For a call of the Go plugins.
const PATIENCE: Duration = Duration::from_secs(60);
