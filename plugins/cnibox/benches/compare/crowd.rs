// SPDX-License-Identifier: Apache-2.0
//! Many containers at the same moment.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::chain::Chain;
use crate::host;
use crate::options::Options;
use crate::pod::Pod;
use crate::report::{Section, ms, times};
use crate::samples::{Samples, median};
use crate::turns::{Side, side_by_side};

/// Forty chains at once: the time until the last is done.
pub(crate) fn run(options: &Options) -> Result<Vec<Section>> {
    let many = if options.quick { 8 } else { 40 };
    let sides = side_by_side(&[Side::Ours, Side::Go], |net, side, turn| {
        let chain = host::nomad().chain(net, options.bin(side))?;
        let mut crowd = Crowd::default();
        turn.take(|| {
            host::prepare(net);
            crowd.warm_up(&chain)
        })?;
        for round in 0..options.rounds(3) {
            let first = 1 + round * many;
            let pods = (first..first + many).map(|number| Pod::new(number, 2)).collect::<Result<Vec<_>>>()?;
            let results = turn.take(|| Ok(crowd.add(&chain, &pods)))?;
            turn.take(|| {
                crowd.del(&chain, &pods, &results);
                Ok(())
            })?;
        }
        Ok(crowd)
    })?;
    Ok(table(many, &sides).into_iter().collect())
}

/// Wall times of whole crowds.
#[derive(Debug, Default)]
struct Crowd {
    adds: Vec<Duration>,
    dels: Vec<Duration>,
    failed: usize,
}

impl Crowd {
    fn warm_up(&self, chain: &Chain) -> Result<()> {
        let (pod, mut unused) = (Pod::new(0, 2)?, Samples::default());
        let result = chain.add(&pod, &mut unused)?;
        chain.del(&pod, &result, &mut unused)
    }

    /// Answers with the results; one that failed is null.
    fn add(&mut self, chain: &Chain, pods: &[Pod]) -> Vec<Value> {
        let started = Instant::now();
        let results: Vec<Result<Value>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                pods.iter().map(|pod| scope.spawn(|| chain.add(pod, &mut Samples::default()))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a call does not panic")).collect()
        });
        self.adds.push(started.elapsed());
        self.failed += results.iter().filter(|result| result.is_err()).count();
        results.into_iter().map(Result::unwrap_or_default).collect()
    }

    fn del(&mut self, chain: &Chain, pods: &[Pod], results: &[Value]) {
        let started = Instant::now();
        let failed = std::thread::scope(|scope| {
            let one = |pod, result| chain.del(pod, result, &mut Samples::default()).is_err();
            let threads: Vec<_> =
                pods.iter().zip(results).map(|(pod, result)| scope.spawn(move || one(pod, result))).collect();
            let joined = threads.into_iter().map(|thread| thread.join().expect("a call does not panic"));
            joined.filter(|failed| *failed).count()
        });
        self.dels.push(started.elapsed());
        self.failed += failed;
    }
}

fn table(many: usize, sides: &[Crowd]) -> Option<Section> {
    let [ours, go] = sides else { return None };
    let header = ["all at once", "cnibox", "Go plugins", "ratio"];
    let mut table = Section::new(
        &format!("{many} containers at once"),
        "Nomad's chain; wall time until the last is done.",
        &header,
    );
    for (verb, ours, go) in [("ADD", &ours.adds, &go.adds), ("DEL", &ours.dels, &go.dels)] {
        let (ours, go) = (median(ours), median(go));
        table.compare(&format!("{many} {verb}s"), ours, go);
        table.headline(&format!("{many} {verb}s at once"), ms(ours), ms(go), times(go / ours));
    }
    table.row([
        "calls that failed".to_owned(),
        ours.failed.to_string(),
        go.failed.to_string(),
        String::new(),
    ]);
    Some(table)
}
