// SPDX-License-Identifier: Apache-2.0
//! Where and with what the numbers were measured.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::options::Options;

/// One paragraph: machine, versions, command, date, commit.
pub(crate) fn describe(options: &Options) -> Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("read /proc/cpuinfo")?;
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown CPU");
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel's release")?;
    Ok(format!(
        "Measured by `{}` on {} at {} ({cores} cores, {}, Linux {}, {}); {} beside {}. \
         Both take turns in one run, each in namespaces of its own; times are medians.",
        options.command,
        said(Command::new("date").args(["-u", "+%Y-%m-%d"]))?,
        options.commit,
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim(),
        said(Command::new("iptables").arg("--version"))?,
        about(&options.ours)?,
        options.reference_name,
    ))
}

/// What a plugin says when it is called without a command, which is on stderr.
fn about(bin: &Path) -> Result<String> {
    let output = Command::new(bin.join("bridge")).env_clear().stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("start bridge of {}", bin.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(format!("\"{}\"", said.lines().next().unwrap_or_default()))
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {:?}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
