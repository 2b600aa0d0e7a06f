// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::turns::Side;

/// What to measure, and with what.
#[derive(Debug)]
pub(crate) struct Options {
    /// Directory with our plugins.
    pub(crate) ours: PathBuf,
    /// Directory with the Go plugins.
    pub(crate) reference: PathBuf,
    /// What the report calls the Go plugins.
    pub(crate) reference_name: String,
    /// Where the report goes.
    pub(crate) out: PathBuf,
    /// What the report says about how it was made.
    pub(crate) command: String,
    /// What the report says about the sources.
    pub(crate) commit: String,
    /// Boots a complete kernel for what this one lacks.
    pub(crate) full_kernel: Option<PathBuf>,
    /// A smoke test: few rounds, small hosts.
    pub(crate) quick: bool,
    rounds: Option<usize>,
    only: Vec<String>,
}

/// What this executable is asked for.
#[derive(Debug)]
pub(crate) enum Request {
    /// The benchmark.
    Compare(Options),
    /// Measure these plugins and print the rows: see [`crate::plugins::rows`].
    Rows(Options, Vec<String>),
    /// Run `program` and write its peak memory to `file`: see [`crate::costs::peak`].
    Peak {
        /// Where the number goes.
        file: PathBuf,
        /// What to run.
        program: PathBuf,
    },
}

impl Options {
    /// Whether the scenario is asked for.
    pub(crate) fn wants(&self, scenario: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == scenario)
    }

    /// The directory of a side's plugins.
    pub(crate) fn bin(&self, side: Side) -> &Path {
        if side == Side::Go { &self.reference } else { &self.ours }
    }

    /// How often to measure: what `--rounds` says, else few when quick, else `usual`.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(if self.quick { 2 } else { usual })
    }

    /// `full` values, or the first two of them when quick.
    pub(crate) fn sizes<'a>(&self, full: &'a [usize]) -> &'a [usize] {
        full.get(..2).filter(|_| self.quick).unwrap_or(full)
    }
}

/// Reads the command line.
pub(crate) fn parse(args: Vec<String>) -> Result<Request> {
    // Cargo tells a benchmark that it is one.
    let mut args = args.into_iter().filter(|arg| arg != "--bench");
    let mut options = Options {
        ours: PathBuf::new(),
        reference: PathBuf::new(),
        reference_name: "the Go plugins".to_owned(),
        out: PathBuf::from("target/bench"),
        command: "scripts/bench".to_owned(),
        commit: "an unknown commit".to_owned(),
        full_kernel: None,
        quick: false,
        rounds: None,
        only: Vec::new(),
    };
    let mut rows = Vec::new();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--peak" => return Ok(Request::Peak { file: value()?.into(), program: value()?.into() }),
            "--ours" => options.ours = value()?.into(),
            "--reference" => options.reference = value()?.into(),
            "--reference-name" => options.reference_name = value()?,
            "--out" => options.out = value()?.into(),
            "--command" => options.command = value()?,
            "--commit" => options.commit = value()?,
            "--full-kernel" => options.full_kernel = Some(value()?.into()),
            "--rows" => rows.push(value()?),
            "--quick" => options.quick = true,
            "--rounds" => options.rounds = Some(value()?.parse().context("--rounds needs a number")?),
            "--only" => options.only.push(known(value()?)?),
            other => bail!("unknown option {other:?}"),
        }
    }
    for (name, dir) in [("--ours", &options.ours), ("--reference", &options.reference)] {
        if !dir.join("bridge").exists() {
            bail!("{name} must name a directory with the plugins; scripts/bench does");
        }
    }
    Ok(if rows.is_empty() { Request::Compare(options) } else { Request::Rows(options, rows) })
}

fn known(name: String) -> Result<String> {
    let names: Vec<_> = crate::SCENARIOS.iter().map(|(name, _)| *name).collect();
    if !names.contains(&name.as_str()) {
        bail!("no scenario {name:?}; there are {}", names.join(", "));
    }
    Ok(name)
}
