// SPDX-License-Identifier: Apache-2.0
//! Where the time of Nomad's chain goes: system calls by what they are for, on an empty and on a full host.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use cnibox_testkit::Sandbox;

use crate::chain::WHOLE;
use crate::costs::{behind, take};
use crate::host;
use crate::options::Options;
use crate::pod::Pod;
use crate::report::{Section, ms, times};
use crate::samples::{Samples, median};
use crate::turns::{Side, side_by_side};

/// Times by what they were spent for, of one verb in one round.
type Spent = BTreeMap<&'static str, Duration>;

/// Ours alone on a host; the system calls' own times by `strace -T`, the whole without it.
pub(crate) fn run(options: &Options) -> Result<Vec<Section>> {
    let mut table = Section::new(
        "Where the time goes, Nomad's chain",
        "cnibox alone on its host. The system calls that cost most, by `strace -T`; the last line is the whole chain \
         without it. Transactions are dear because the kernel validates the \
         whole table for each that adds a rule, listings and openings because they pass over the other containers' \
         entries, and deleting a link waits for all processors.",
        &["", "ADD", "DEL"],
    );
    let sizes = options.sizes(&[0, 100, 1000]);
    let mut whole = Vec::new();
    for &containers in sizes {
        let sides =
            side_by_side(&[Side::Ours], |net, _, turn| turn.take(|| measure(options, net, containers)))?;
        let Some((spent, samples)) = sides.into_iter().next() else { continue };
        for (group, _) in GROUPS {
            let of_round = |round: &Spent| round.get(group).copied().unwrap_or_default();
            let time = |verb| median(&rounds(&spent, verb).map(of_round).collect::<Vec<_>>());
            table.row([format!("{containers} containers: {group}"), ms(time("ADD")), ms(time("DEL"))]);
        }
        let time = |verb| samples.median(verb, WHOLE);
        table.row([format!("{containers} containers: all, not traced"), ms(time("ADD")), ms(time("DEL"))]);
        whole.push((containers, time("ADD"), time("DEL")));
    }
    if let (Some((few, add_few, del_few)), Some((many, add_many, del_many))) = (whole.first(), whole.last()) {
        let what = format!("growth from {few} to {many} containers, cnibox alone");
        table.row([what, times(add_many / add_few), times(del_many / del_few)]);
    }
    Ok(vec![table.for_docs()])
}

fn rounds<'s>(spent: &'s [(&'static str, Spent)], verb: &'s str) -> impl Iterator<Item = &'s Spent> {
    spent.iter().filter(move |(of, _)| *of == verb).map(|(_, spent)| spent)
}

fn measure(
    options: &Options,
    net: &Sandbox,
    containers: usize,
) -> Result<(Vec<(&'static str, Spent)>, Samples)> {
    host::prepare(net);
    let network = host::nomad();
    let chain = network.chain(net, &options.ours)?;
    let mut unused = Samples::default();
    let first = Pod::new(0, network.ports)?;
    let result = chain.add(&first, &mut unused)?;
    chain.del(&first, &result, &mut unused)?;
    for number in 1..=containers {
        chain.add(&Pod::new(number, network.ports)?, &mut unused)?;
    }
    let (traced, log) = behind(net.dir(), &chain, &["strace", "-T", "-qq", "-A", "-e", "signal=none"]);
    let (mut spent, mut samples) = (Vec::new(), Samples::default());
    for round in 1..=options.rounds(9) {
        let pod = Pod::new(containers + round, network.ports)?;
        let result = chain.add(&pod, &mut samples)?;
        chain.del(&pod, &result, &mut samples)?;
        let result = traced.add(&pod, &mut unused)?;
        spent.push(("ADD", sums(&take(&log)?)));
        traced.del(&pod, &result, &mut unused)?;
        spent.push(("DEL", sums(&take(&log)?)));
    }
    Ok((spent, samples))
}

/// The times of a trace by what the calls were for. A line is `call(arguments) = result <seconds>`.
fn sums(log: &str) -> Spent {
    let mut sums = Spent::new();
    for line in log.lines() {
        let time = line.rsplit_once('<').and_then(|(_, time)| time.strip_suffix('>')?.parse::<f64>().ok());
        let Some(seconds) = time else { continue };
        let found = GROUPS.iter().find(|(_, words)| words.iter().any(|word| is_about(line, word)));
        let Some((group, _)) = found else { continue };
        *sums.entry(group).or_default() += Duration::from_secs_f64(seconds);
    }
    sums
}

/// Whether a line is that system call (before the colon) and names that thing.
fn is_about(line: &str, word: &str) -> bool {
    word.split_once(':').is_some_and(|(call, thing)| {
        line.strip_prefix(call).is_some_and(|rest| rest.starts_with('(') && rest.contains(thing))
    })
}

/// What calls are for, by words of their arguments; strace knows no names in a namespace that is not its own.
const GROUPS: &[(&str, &[&str])] = &[
    ("nf_tables, transactions", &["sendto:NFNL_MSG_BATCH_BEGIN"]),
    ("nf_tables, listing rules", &["sendto:NFT_MSG_GETRULE", "recvfrom:NFT_MSG_NEWRULE"]),
    ("rtnetlink, deleting a link", &["sendto:RTM_DELLINK", "sendto:nlmsg_type=0x11 "]),
    ("rtnetlink, everything else", &["sendto:RTM_", "sendto:nlmsg_type=0x1", "recvfrom:RTM_"]),
    ("opening files below /proc/sys/net", &["openat:/proc/sys/net", "open:/proc/sys/net"]),
];
