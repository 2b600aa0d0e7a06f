// SPDX-License-Identifier: Apache-2.0
//! Everything a plugin may leave behind, as comparable text.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use cnibox_netns::NetNs;
use serde_json::Value;

use crate::settle::settle;
use crate::{Container, Sandbox, diff};

/// Links, addresses, routes, rules, packet filter and state files of a namespace, without what changes by itself
/// (counters, IPv6 `tentative`). `Debug` prints it as text; compare with [`Snapshot::assert_same`] for a readable
/// difference.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    sections: BTreeMap<String, Vec<String>>,
}

impl Sandbox {
    /// The sandbox's own namespace and its state files.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::of(self.netns());
        for dir in ["/run/cnibox", "/run/cni", "/var/lib/cni"] {
            snapshot.sections.insert(dir.to_owned(), files(Path::new(dir)));
        }
        snapshot
    }

    /// A pod's namespace.
    pub fn snapshot_of(&self, pod: &Container) -> Snapshot {
        Snapshot::of(&pod.netns)
    }
}

impl Snapshot {
    fn of(netns: &NetNs) -> Self {
        settle(netns);
        let sections = COMMANDS.iter().map(|(name, command, normal)| {
            let printed = netns.run(|| output(command)).expect("enter the namespace");
            (format!("{name}: {}", command.join(" ")), normal(&printed))
        });
        Self { sections: sections.collect() }
    }

    /// Without the lines that contain `text`: what is known to stay, such as a lock file.
    #[must_use]
    pub fn without(mut self, text: &str) -> Self {
        for lines in self.sections.values_mut() {
            lines.retain(|line| !line.contains(text));
        }
        self
    }

    /// All lines that contain `text`.
    pub fn lines(&self, text: &str) -> Vec<&str> {
        self.sections.values().flatten().map(String::as_str).filter(|line| line.contains(text)).collect()
    }

    /// Compares with a later snapshot.
    ///
    /// # Panics
    /// If they differ, showing the lines that do.
    #[track_caller]
    pub fn assert_same(&self, later: &Self) {
        let difference = diff(&format!("{self:?}"), &format!("{later:?}"));
        assert!(self == later, "the namespace differs:\n{difference}");
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, lines) in &self.sections {
            writeln!(f, "# {name}")?;
            for line in lines {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}

/// What a command prints; if it fails, what it says about that, which then is part of the comparison.
fn output(command: &[&str]) -> String {
    let (program, args) = command.split_first().expect("a program");
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => format!("{program}: {error}"),
    }
}

/// One line per object of `ip -j`.
fn objects(printed: &str) -> Vec<String> {
    match serde_json::from_str(printed) {
        Ok(Value::Array(objects)) => {
            let lines = objects
                .into_iter()
                .filter(|object| !follows_dad(object))
                .map(|object| steady(object).to_string());
            lines.filter(|line| line != "{}").collect()
        }
        Ok(_) | Err(_) => printed.lines().map(str::to_owned).collect(),
    }
}

/// The kernel's own routes to an IPv6 address and to its network's anycast address, which appear when duplicate address
/// detection is over; the addresses themselves are compared anyway.
fn follows_dad(object: &Value) -> bool {
    let is_ipv6 = object["dst"].as_str().is_some_and(|dst| dst.contains(':') && !dst.contains('/'));
    let is_own = object["type"] == "local" || object["type"] == "anycast";
    object["table"] == "local" && object["protocol"] == "kernel" && is_ipv6 && is_own
}

/// Without the members that change by themselves.
fn steady(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .filter(|(key, _)| !UNSTEADY.contains(&key.as_str()))
                .map(|(key, value)| (key, steady(value)))
                .collect(),
        ),
        Value::Array(values) => {
            let counts = |value: &Value| !value.as_str().is_some_and(|flag| UNSTEADY_FLAGS.contains(&flag));
            Value::Array(values.into_iter().filter(counts).map(steady).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Lines of `iptables-save` without comments and counters.
fn saved(printed: &str) -> Vec<String> {
    let lines = printed.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap_or(line).to_owned()).collect()
}

/// Lines of `nft list ruleset` without counters.
fn ruleset(printed: &str) -> Vec<String> {
    printed.lines().filter(|line| !line.starts_with('#')).map(without_counter).collect()
}

fn without_counter(line: &str) -> String {
    let mut words: Vec<_> = line.split(' ').collect();
    while let Some(at) = words.windows(3).position(|w| w[0] == "packets" && w[2] == "bytes") {
        words.drain(at..(at + 4).min(words.len()));
    }
    words.join(" ")
}

/// Path, mode-independent, and content of every file below a directory.
fn files(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            lines.extend(files(&path));
        } else {
            let content = fs::read(&path).unwrap_or_default();
            lines.push(format!("{}: {:?}", path.display(), String::from_utf8_lossy(&content)));
        }
    }
    lines.sort();
    lines
}

type Normal = fn(&str) -> Vec<String>;

const COMMANDS: &[(&str, &[&str], Normal)] = &[
    ("links", &["ip", "-j", "-d", "link"], objects),
    ("addresses", &["ip", "-j", "address"], objects),
    ("routes", &["ip", "-j", "-d", "route", "show", "table", "all"], objects),
    ("routes6", &["ip", "-j", "-d", "-6", "route", "show", "table", "all"], objects),
    ("rules", &["ip", "-j", "rule"], objects),
    ("rules6", &["ip", "-j", "-6", "rule"], objects),
    ("iptables", &["iptables-save"], saved),
    ("ip6tables", &["ip6tables-save"], saved),
    ("nft", &["nft", "list", "ruleset"], ruleset),
];

/// Duplicate address detection, timers of bridges, and the state of carriers, which follows with a delay.
const UNSTEADY: &[&str] = &[
    "tentative",
    "dadfailed",
    "hello_timer",
    "tcn_timer",
    "topology_change_timer",
    "gc_timer",
    "fdb_n_learned",
    "operstate",
    "linkmode",
    "carrier_changes",
    "valid_life_time",
    "preferred_life_time",
    "expires",
];

/// Flags of links and routes that follow the carrier with a delay.
const UNSTEADY_FLAGS: &[&str] = &["NO-CARRIER", "LOWER_UP", "linkdown"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_do_not_count() {
        assert_eq!(
            saved("# now\n:INPUT ACCEPT [12:3456]\n-A INPUT -j X"),
            [":INPUT ACCEPT", "-A INPUT -j X"]
        );
        assert_eq!(ruleset("  counter packets 1 bytes 84 drop"), ["  counter drop"]);
        assert_eq!(objects(r#"[{"a":1,"i":[{"tentative":true}]},{}]"#), [r#"{"a":1,"i":[{}]}"#]);
    }

    #[test]
    fn what_follows_duplicate_address_detection_does_not_count() {
        let own = r#"{"type":"local","dst":"fd00::1","dev":"a","table":"local","protocol":"kernel"}"#;
        let mine = r#"{"type":"unicast","dst":"fd00::1","dev":"a","protocol":"boot"}"#;
        assert_eq!(objects(&format!("[{own},{mine}]")).len(), 1);
    }

    #[test]
    fn text_that_is_no_json_is_compared_as_text() {
        assert_eq!(objects("ip failed: no"), ["ip failed: no"]);
    }
}
