// SPDX-License-Identifier: Apache-2.0
//! Durations and their medians.

use std::collections::BTreeMap;
use std::time::Duration;

/// Durations by what was timed.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<(String, String), Vec<Duration>>);

impl Samples {
    /// Notes how long a plugin took for a verb.
    pub(crate) fn note(&mut self, verb: &str, plugin: &str, time: Duration) {
        self.0.entry((verb.to_owned(), plugin.to_owned())).or_default().push(time);
    }

    /// Takes over what `other` noted for a verb, under another name.
    pub(crate) fn adopt(&mut self, name: &str, other: &Self, verb: &str) {
        for ((known, plugin), times) in &other.0 {
            if known == verb {
                self.0.insert((name.to_owned(), plugin.clone()), times.clone());
            }
        }
    }

    /// The median in milliseconds; nothing was noted: not a number.
    pub(crate) fn median(&self, verb: &str, plugin: &str) -> f64 {
        let key = (verb.to_owned(), plugin.to_owned());
        median(self.0.get(&key).map(Vec::as_slice).unwrap_or_default())
    }
}

/// The median in milliseconds; of nothing: not a number.
pub(crate) fn median(times: &[Duration]) -> f64 {
    let mut sorted: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => middle(odd / 2),
        even => f64::midpoint(middle(even / 2 - 1), middle(even / 2)),
    }
}
