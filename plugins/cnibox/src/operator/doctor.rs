// SPDX-License-Identifier: Apache-2.0
//! What this machine has of what plugins need: permission, kinds of links, the packet filter, the entries in the
//! directories of plugins, and the networks' own STATUS. Asks and looks only; nothing is changed.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use cnibox_runtime::{Network, NetworkError, PLUGINS_DIR, RuntimeError};
use cnibox_sys::{Failure, Host, Registry, Sys};

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

/// What came of one look.
enum Finding {
    /// As it should be.
    Good(String),
    /// Missing, which is no matter where nobody uses it.
    Lacking(String),
    /// Something will not work.
    Bad(String),
}

/// Looks at everything and prints a line for each.
///
/// # Errors
/// When something will not work; when stdout is closed.
pub(super) fn run(console: &mut Console<'_>) -> Result<()> {
    let mut findings = machine(console);
    findings.extend(directories(console));
    findings.extend(networks(console));
    let mut bad = 0;
    for finding in findings {
        let (word, text) = match finding {
            Finding::Good(text) => ("ok", text),
            Finding::Lacking(text) => ("lacking", text),
            Finding::Bad(text) => {
                bad += 1;
                ("bad", text)
            }
        };
        writeln!(console.out, "{word:<8} {text}")?;
    }
    if bad == 0 { Ok(()) } else { bail!("{bad} of these will not work") }
}

fn machine(console: &mut Console<'_>) -> Vec<Finding> {
    let (mut nothing, mut nowhere) = (std::io::empty(), std::io::sink());
    let mut host = Host {
        env: console.env.clone(),
        stdin: &mut nothing,
        stdout: &mut nowhere,
        stderr: &mut *console.err,
        registry: Registry::default(),
        fail_at: None,
    };
    let mut sys = Sys::new(&mut host, &[]);
    if let Err(failure) = sys.require_net_admin() {
        return vec![Finding::Bad(failure.to_string())];
    }
    let mut findings = vec![Finding::Good("permission to configure networks".to_owned())];
    for (kind, users) in KINDS {
        findings.push(lacking(format!("links of kind {kind}, for {users}"), sys.require_kind(kind)));
    }
    findings.push(lacking("TAP devices, for tap".to_owned(), sys.require_tun()));
    findings.push(match sys.packet_filter() {
        Ok(how) => Finding::Good(format!("iptables rules are written {how}")),
        Err(failure) => Finding::Bad(format!("iptables rules: {failure}")),
    });
    findings
}

fn lacking(what: String, found: Result<(), Failure>) -> Finding {
    match found {
        Ok(()) => Finding::Good(what),
        Err(failure) => Finding::Lacking(format!("{what}: {failure}")),
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
            Err(error) => return Finding::Bad(format!("plugins in {}: {error:#}", dir.display())),
        }
    }
    let text = format!("plugins in {}: {own} of cnibox's {}", dir.display(), plugins.len());
    match others.as_slice() {
        [] if own > 0 => Finding::Good(text),
        [] => Finding::Lacking(text),
        others => Finding::Lacking(format!("{text}; not cnibox: {}", others.join(", "))),
    }
}

/// What the networks' plugins say themselves.
fn networks(console: &mut Console<'_>) -> Vec<Finding> {
    let mut runtime = super::runtime(console);
    let networks = match runtime.networks.all() {
        Ok(networks) => networks,
        Err(error) => return vec![Finding::Bad(format!("networks: {error}"))],
    };
    let told = |(file, network): (PathBuf, Result<Network, NetworkError>)| {
        let status = network.map_err(RuntimeError::from).and_then(|network| runtime.status(&network));
        let network = format!("network in {}", file.display());
        match status {
            Ok(true) => Finding::Good(format!("{network}: STATUS of its plugins")),
            Ok(false) => Finding::Good(format!("{network}: older than 1.1.0, no STATUS")),
            Err(error) => Finding::Bad(format!("{network}: {error}")),
        }
    };
    networks.into_iter().map(told).collect()
}
