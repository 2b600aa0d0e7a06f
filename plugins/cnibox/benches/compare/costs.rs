// SPDX-License-Identifier: Apache-2.0
//! What can be counted: processes, system calls, memory, bytes on disk.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};

use crate::chain::Chain;
use crate::host;
use crate::options::Options;
use crate::pod::Pod;
use crate::report::{Section, times};
use crate::samples::Samples;
use crate::turns::{Side, side_by_side};

/// Counts for one container of Nomad's chain and of the dual-stack one, on a host that has had containers before.
pub(crate) fn run(options: &Options) -> Result<Vec<Section>> {
    let header = ["", "cnibox", "Go plugins", "ratio"];
    let mut tables = Vec::new();
    for (network, is_headline) in [(host::nomad(), true), (host::dual_stack(), false)] {
        let name = network.name();
        let mut table = Section::new(
            &format!("{name}: processes, system calls, memory"),
            "One container. Processes: every program that is started, the plugins included; others: those that are no \
             plugins. Memory: the largest process of the chain, by its maximum resident set.",
            &header,
        );
        let sides = side_by_side(&[Side::Ours, Side::Go], |net, side, turn| {
            turn.take(|| {
                host::prepare(net);
                count(net.dir(), &network.chain(net, options.bin(side))?, network.ports)
            })
        })?;
        if let [ours, go] = sides.as_slice() {
            for ((what, ours), (_, go)) in ours.iter().zip(go) {
                let row = (ours.to_string(), go.to_string(), ratio(*ours, *go));
                table.row([what.clone(), row.0.clone(), row.1.clone(), row.2.clone()]);
                if is_headline && HEADLINES.iter().any(|part| what.contains(part)) {
                    table.headline(&format!("{what}, {name}"), row.0, row.1, row.2);
                }
            }
        }
        tables.push(table);
    }
    tables.push(installed(options)?);
    Ok(tables)
}

/// All counts, in the order of the table.
fn count(dir: &Path, chain: &Chain, ports: usize) -> Result<Vec<(String, u64)>> {
    traced(dir, chain, Pod::new(0, ports)?, &[])?;
    let mut counts = Vec::new();
    for (verb, log) in traced(dir, chain, Pod::new(1, ports)?, EXECVE)? {
        let started = started(&log, chain);
        counts.push((format!("{verb}: processes"), started.0));
        counts.push((format!("{verb}: other processes"), started.1));
    }
    for (verb, log) in traced(dir, chain, Pod::new(2, ports)?, &["strace", "-f", "-c", "-qq", "-A"])? {
        counts.push((format!("{verb}: system calls"), totals(&log)));
    }
    let own = std::env::current_exe().context("own path")?.display().to_string();
    for (verb, log) in traced(dir, chain, Pod::new(3, ports)?, &[&own, "--peak"])? {
        let peak = log.lines().filter_map(|line| line.parse().ok()).max().unwrap_or(0);
        counts.push((format!("{verb}: peak memory, KiB"), peak));
    }
    Ok(counts)
}

/// How many programs that are no plugins ADD and DEL start.
pub(crate) fn programs(dir: &Path, chain: &Chain, pod: &Pod) -> Result<Vec<(&'static str, u64)>> {
    let (traced, log) = behind(dir, chain, EXECVE);
    let mut unused = Samples::default();
    let result = traced.add(pod, &mut unused)?;
    let add = started(&take(&log)?, chain).1;
    traced.del(pod, &result, &mut unused)?;
    Ok(vec![("ADD", add), ("DEL", started(&take(&log)?, chain).1)])
}

/// All programs in a log of `execve`, and those that are no plugins.
fn started(log: &str, chain: &Chain) -> (u64, u64) {
    let all: Vec<_> = log.lines().filter(|line| line.ends_with(" = 0")).collect();
    let plugin = |line: &&&str| line.contains(&format!("execve(\"{}/", chain.bin.display()));
    let plugins = all.iter().filter(plugin).count();
    (all.len() as u64, (all.len() - plugins) as u64)
}

/// Runs every verb behind a tracer that appends to a file, and answers with what it wrote for each.
fn traced(dir: &Path, chain: &Chain, pod: Pod, tracer: &[&str]) -> Result<Vec<(&'static str, String)>> {
    let (chain, log) = behind(dir, chain, tracer);
    let mut unused = Samples::default();
    let result = chain.add(&pod, &mut unused)?;
    let add = take(&log)?;
    chain.check(&pod, &result, &mut unused)?;
    let check = take(&log)?;
    chain.del(&pod, &result, &mut unused)?;
    Ok(vec![("ADD", add), ("CHECK", check), ("DEL", take(&log)?)])
}

/// The chain behind a tracer, and the file that it appends to.
pub(crate) fn behind(dir: &Path, chain: &Chain, tracer: &[&str]) -> (Chain, PathBuf) {
    let log = dir.join("trace");
    let mut wrap: Vec<String> = tracer.iter().map(|&word| word.to_owned()).collect();
    match tracer {
        [] => {}
        ["strace", ..] => wrap.extend(["-o".to_owned(), log.display().to_string()]),
        _ => wrap.push(log.display().to_string()),
    }
    (chain.behind(wrap), log)
}

/// What was written since the last time; nothing without a tracer.
pub(crate) fn take(log: &Path) -> Result<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    fs::write(log, "").context("empty the trace")?;
    Ok(text)
}

/// The calls of all summaries of `strace -c`.
fn totals(log: &str) -> u64 {
    let lines = log.lines().filter(|line| line.ends_with(" total"));
    lines.filter_map(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok()).sum()
}

/// `--peak`: runs a program with this one's streams and environment and appends to `file` how much memory it, or the
/// largest process it waited for, had at most, in KiB. A process of its own, because the kernel counts from the fork on
/// what the parent has: the number is never below this small program's.
pub(crate) fn peak(file: &Path, program: &Path) -> ExitCode {
    let run = || -> Result<ExitCode> {
        let status = Command::new(program).status().context("start the program")?;
        let peak = getrusage(UsageWho::RUSAGE_CHILDREN).context("ask for the usage")?.max_rss();
        let mut log = fs::OpenOptions::new().append(true).create(true).open(file).context("open the log")?;
        writeln!(log, "{peak}").context("write the log")?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    };
    run().unwrap_or(ExitCode::FAILURE)
}

fn installed(options: &Options) -> Result<Section> {
    let mut table = Section::new("Installed", "", &["", "cnibox", "Go plugins", "ratio"]);
    let (ours, go) = (files(&options.ours)?, files(&options.reference)?);
    let sum = |files: &[(PathBuf, u64)]| files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    // The executable itself is no plugin.
    table.row(["plugins".to_owned(), (ours.len() - 1).to_string(), go.len().to_string(), String::new()]);
    let row = (sum(&ours).to_string(), sum(&go).to_string(), ratio(sum(&ours), sum(&go)));
    table.row(["bytes".to_owned(), row.0.clone(), row.1.clone(), row.2.clone()]);
    table.headline(
        &format!("bytes installed, {} and {} plugins", ours.len() - 1, go.len()),
        row.0,
        row.1,
        row.2,
    );
    Ok(table)
}

/// The files of a directory with their sizes; a link's is that of the link.
fn files(dir: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let entries = fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    let entries = entries.map(|entry| {
        let entry = entry?;
        Ok((entry.path(), entry.metadata()?.len()))
    });
    entries.collect::<std::io::Result<_>>().with_context(|| format!("list {}", dir.display()))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ratio(ours: u64, go: u64) -> String {
    if ours == 0 { String::new() } else { times(go as f64 / ours as f64) }
}

const EXECVE: &[&str] = &["strace", "-f", "-qq", "-A", "-e", "trace=execve", "-e", "signal=none"];
const HEADLINES: &[&str] = &["other processes", "system calls", "peak memory"];
