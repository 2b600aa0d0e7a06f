// SPDX-License-Identifier: Apache-2.0
//! How long to try, and what came out of it.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::json;

use crate::fixture::Side;

/// How many rounds: `short` with the other tests, at least `long` when `scripts/resilience` runs.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    match std::env::var("CNIBOX_RESILIENCE_MINUTES").ok().and_then(|minutes| minutes.parse::<usize>().ok()) {
        None => short,
        // What `long` asks for takes about ten minutes for all scenarios together.
        Some(minutes) => long * (minutes / 10).max(1),
    }
}

/// What is run beside ours: the Go plugins too when a table is wanted and they are there.
pub(crate) fn sides() -> Vec<Side> {
    let mut sides = vec![Side::Ours];
    if std::env::var_os(TABLE).is_some() && Side::Go.dir().is_some() {
        sides.push(Side::Go);
    }
    sides
}

/// What one scenario found.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How often something was injected.
    pub(crate) runs: usize,
    /// After how many of them something was left, or did not work.
    pub(crate) bad: usize,
    /// What, for people.
    pub(crate) examples: Vec<String>,
}

impl Tally {
    /// Counts a run; `problem` is empty when all was well.
    pub(crate) fn count(&mut self, what: &str, problem: &str) {
        self.runs += 1;
        if !problem.is_empty() {
            self.bad += 1;
            self.examples.push(format!("{what}:\n{problem}"));
        }
    }

    /// Ours must be spotless. Nothing may have been tried, where the kernel lacks everything.
    ///
    /// # Panics
    /// When ours are not.
    #[track_caller]
    pub(crate) fn expect_spotless(&self, what: &str) {
        let examples = self.examples.iter().take(3).cloned().collect::<Vec<_>>().join("\n");
        assert!(self.bad == 0, "{what}: {} of {} runs went wrong:\n{examples}", self.bad, self.runs);
    }

    /// Writes the table's row. Ours must be spotless.
    ///
    /// # Panics
    /// When ours are not.
    #[track_caller]
    #[expect(clippy::print_stdout, reason = "what the Go plugins left is for people to read")]
    pub(crate) fn close(self, scenario: &str, side: Side) {
        if let Some(path) = std::env::var_os(TABLE) {
            let row = json!({"scenario": scenario, "side": side.name(), "runs": self.runs, "bad": self.bad});
            let mut file =
                OpenOptions::new().create(true).append(true).open(path).expect("open the table's file");
            file.write_all(format!("{row}\n").as_bytes()).expect("write the table's row");
        }
        assert!(self.runs > 0, "{scenario}: nothing was injected");
        let examples = self.examples.iter().take(3).cloned().collect::<Vec<_>>().join("\n");
        match side {
            Side::Ours => {
                assert!(
                    self.bad == 0,
                    "{scenario}: {} of {} runs went wrong:\n{examples}",
                    self.bad,
                    self.runs
                );
            }
            Side::Go => {
                println!("{scenario}, Go plugins: {} of {} went wrong:\n{examples}", self.bad, self.runs)
            }
        }
    }
}

/// A small generator, so that failures repeat.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap_or_default()
    }

    pub(crate) fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}

const TABLE: &str = "CNIBOX_RESILIENCE_TABLE";
