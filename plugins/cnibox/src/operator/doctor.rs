// SPDX-License-Identifier: Apache-2.0
//! What this machine has of what plugins need: permission, kinds of links, the packet filter, the entries in the
//! directories of plugins, and the networks' own STATUS. Asks and looks only; nothing is changed.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use cnibox_runtime::{Error, Network, PLUGINS_DIR};
use cnibox_sys::{Failure, Sys};

use super::Console;
use super::install::what_is;

/// The kinds of links that plugins make, and which plugins do.
const KINDS: &[(&str, &str)] = &[
    ("bridge", "bridge"),
    ("veth", "bridge, ptp"),
    ("macvlan", "macvlan"),
    ("ipvlan", "ipvlan"),
    ("vlan", "vlan"),
    ("dummy", "dummy"),
    ("ifb", "bandwidth"),
    ("vrf", "vrf"),
];

/// What came of one look: a word for it, and what was looked at.
type Finding = (&'static str, String);

/// As it should be.
const GOOD: &str = "ok";
/// Missing, which is no matter where nobody uses it.
const LACKING: &str = "lacking";
/// Something will not work.
const BAD: &str = "bad";

/// Looks at everything and prints a line for each.
///
/// # Errors
/// When something will not work; when stdout is closed.
pub(super) fn run(console: &mut Console<'_>) -> Result<()> {
    let mut findings = machine(console);
    findings.extend(directories(console));
    findings.extend(networks(console));
    let mut bad = 0;
    for (word, text) in findings {
        bad += usize::from(word == BAD);
        writeln!(console.out, "{word:<8} {text}")?;
    }
    if bad == 0 { Ok(()) } else { bail!("{bad} of these will not work") }
}

fn machine(console: &mut Console<'_>) -> Vec<Finding> {
    let mut sys = Sys::outside(&console.env, console.err, &[]);
    if let Err(failure) = sys.require_net_admin() {
        return vec![(BAD, failure.to_string())];
    }
    let mut findings = vec![(GOOD, "permission to configure networks".to_owned())];
    for (kind, users) in KINDS {
        findings.push(lacking(format!("links of kind {kind}, for {users}"), sys.require_kind(kind)));
    }
    findings.push(lacking("TAP devices, for tap".to_owned(), sys.require_tun()));
    findings.push(match sys.packet_filter() {
        Ok(how) => (GOOD, format!("iptables rules are written {how}")),
        Err(failure) => (BAD, format!("iptables rules: {failure}")),
    });
    findings
}

fn lacking(what: String, found: Result<(), Failure>) -> Finding {
    match found {
        Ok(()) => (GOOD, what),
        Err(failure) => (LACKING, format!("{what}: {failure}")),
    }
}

/// The plugins that runtimes find, of this executable or not.
fn directories(console: &Console<'_>) -> Vec<Finding> {
    let path = console.env.var("CNI_PATH");
    let path = if path.is_empty() { PLUGINS_DIR } else { &*path };
    path.split(':').map(|dir| directory(Path::new(dir), &console.plugins)).collect()
}

fn directory(dir: &Path, plugins: &[&str]) -> Finding {
    let (mut own, mut others) = (0, Vec::new());
    for name in plugins {
        match what_is(dir, name) {
            Ok(Some(true)) => own += 1,
            Ok(Some(false)) => others.push(*name),
            Ok(None) => {}
            Err(error) => return (BAD, format!("plugins in {}: {error:#}", dir.display())),
        }
    }
    let text = format!("plugins in {}: {own} of cnibox's {}", dir.display(), plugins.len());
    match others.as_slice() {
        [] if own > 0 => (GOOD, text),
        [] => (LACKING, text),
        others => (LACKING, format!("{text}; not cnibox: {}", others.join(", "))),
    }
}

/// What the networks' plugins say themselves.
fn networks(console: &mut Console<'_>) -> Vec<Finding> {
    let mut runtime = super::runtime(console);
    let networks = match runtime.networks.all() {
        Ok(networks) => networks,
        Err(error) => return vec![(BAD, format!("networks: {error}"))],
    };
    let told = |(file, network): (PathBuf, Result<Network, Error>)| {
        let status = network.and_then(|network| runtime.status(&network));
        let network = format!("network in {}", file.display());
        match status {
            Ok(true) => (GOOD, format!("{network}: STATUS of its plugins")),
            Ok(false) => (GOOD, format!("{network}: older than 1.1.0, no STATUS")),
            Err(error) => (BAD, format!("{network}: {error}")),
        }
    };
    networks.map(told).collect()
}
