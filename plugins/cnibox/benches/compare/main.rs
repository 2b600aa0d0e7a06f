// SPDX-License-Identifier: Apache-2.0
//! Ours beside the Go plugins: what a container's network costs, on one machine, in one run.
//!
//! Both sets of plugins have namespaces of their own and take turns, call by call, so that whatever else the machine does
//! hits both. Nothing is judged here: medians and ratios are printed and written to `target/bench/`. See `scripts/bench`.

mod chain;
mod costs;
mod crowd;
mod floor;
mod grown;
mod host;
mod large;
mod machine;
mod options;
mod plugins;
mod pod;
mod pool;
mod report;
mod samples;
mod services;
mod spent;
mod turns;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use options::{Options, Request};
use report::{Report, Section};

fn main() -> ExitCode {
    let outcome = match options::parse(std::env::args().skip(1).collect()) {
        Ok(Request::Compare(options)) => compare(&options),
        Ok(Request::Rows(options, names)) => rows(&options, &names),
        Ok(Request::Peak { file, program }) => return costs::peak(&file, &program),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            let _ = writeln!(std::io::stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<()> {
    let mut report = Report::new(machine::describe(options)?);
    for (name, scenario) in SCENARIOS {
        if options.wants(name) {
            // Progress is a courtesy.
            let _ = writeln!(std::io::stderr(), "bench: {name}");
            for section in scenario(options)? {
                report.add(name, section);
            }
        }
    }
    write!(std::io::stdout(), "{}", report.markdown())?;
    report.save(&options.out)
}

fn rows(options: &Options, names: &[String]) -> Result<()> {
    Ok(write!(std::io::stdout(), "{}", plugins::rows(options, names)?)?)
}

type Scenario = fn(&Options) -> Result<Vec<Section>>;

/// In the order of the report.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("nomad", grown::nomad),
    ("dual-stack", grown::dual_stack),
    ("crowd", crowd::run),
    ("host-local", pool::run),
    ("plugins", plugins::run),
    ("large", large::run),
    ("costs", costs::run),
    ("spent", spent::run),
];
