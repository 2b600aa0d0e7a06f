// SPDX-License-Identifier: Apache-2.0
//! The transport that starts tools: `iptables-restore --noflush --wait` and its family, and `nft -f -`.
//!
//! It is used on hosts whose iptables is the legacy flavour, and for rules with words that only the tool understands. It
//! must never know netlink, nor why a rule is wanted. What tools print is foreign.

mod flavour;
mod quote;
mod script;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::error::{Error, Result};
use crate::plan::{Action, Reader, RuleInfo, Step, Uses};
use crate::rule::{AnyRule, Position, RuleId, TableRef, Wanted};
use crate::xt::{self, Family, Table};
pub use flavour::Flavour;
pub(crate) use flavour::{find_tool, is_legacy_program, reads_native_matches};
use quote::quote;
pub(crate) use quote::split_words;

/// The tools of one family, for one batch or question: a chain is listed once and remembered.
pub(crate) struct Tool {
    path: OsString,
    family: Family,
    listings: HashMap<(TableRef, String), Option<Vec<RuleInfo>>>,
}

impl Tool {
    pub(crate) fn new(path: &OsStr, family: Family) -> Self {
        Self { path: path.to_owned(), family, listings: HashMap::new() }
    }

    /// Carries out the steps with one `iptables-restore`.
    pub(crate) fn restore(&self, steps: &[Step]) -> Result<()> {
        let program = format!("{}-restore", self.family.tool());
        run(&self.path, &program, &["--noflush", "--wait"], Some(&restore_file(steps)?)).map(drop)
    }

    /// The rules of a chain, `None` if it does not exist.
    fn listing(&mut self, table: &TableRef, chain: &str) -> Result<Option<Vec<RuleInfo>>> {
        let key = (table.clone(), chain.to_owned());
        if let Some(known) = self.listings.get(&key) {
            return Ok(known.clone());
        }
        let rules = self.list(table, &["-S", chain])?.map(|text| {
            let lines = text.split(|byte| *byte == b'\n');
            lines.filter_map(|line| listed(line, self.family)).collect::<Vec<_>>()
        });
        self.listings.insert(key, rules.clone());
        Ok(rules)
    }

    /// Runs `iptables -t <table> <args> --wait`; `None` if something is missing. The tool ends with status 1 then, and
    /// with others for everything that is wrong with the call or the system. What it says does not help: 1.8.9 calls a
    /// missing chain incompatible.
    fn list(&self, table: &TableRef, args: &[&str]) -> Result<Option<Vec<u8>>> {
        let args = [&["-t", table.name()][..], args, &["--wait"]].concat();
        match run(&self.path, self.family.tool(), &args, None) {
            Ok(output) => Ok(Some(output)),
            Err(Error::Tool { status: 1, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Reader for Tool {
    fn has_table(&mut self, _: &TableRef) -> Result<bool> {
        Ok(true)
    }

    fn chain(&mut self, table: &TableRef, chain: &str) -> Result<Option<Uses>> {
        Ok(self.listing(table, chain)?.map(|_| Uses::Unknown))
    }

    /// The heading is `Chain NAME (2 references)`.
    fn jumps(&mut self, table: &TableRef, chain: &str) -> Result<u32> {
        let output = self.list(table, &["-n", "-L", chain])?.unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let heading = output.lines().find(|line| line.starts_with("Chain ")).unwrap_or_default();
        let note = heading.rsplit_once('(').map_or("", |(_, note)| note);
        Ok(note.split_once(" references").and_then(|(count, _)| count.parse().ok()).unwrap_or(0))
    }

    fn rules(&mut self, table: &TableRef, chain: &str) -> Result<Vec<RuleInfo>> {
        Ok(self.listing(table, chain)?.unwrap_or_default())
    }

    /// The tool cannot tell which of the listed rules it found.
    fn holds(&mut self, table: &TableRef, chain: &str, wanted: &Wanted) -> Result<bool> {
        let AnyRule::Xt(rule) = wanted.rule() else { return Ok(false) };
        let args = rule.to_args();
        let check: Vec<&str> = ["-C", chain].into_iter().chain(args.iter().map(String::as_str)).collect();
        Ok(self.list(table, &check)?.is_some())
    }
}

/// A line of `iptables -S`. One that is not UTF-8 is of no rule that this crate could have written.
fn listed(line: &[u8], family: Family) -> Option<RuleInfo> {
    let Ok(line) = std::str::from_utf8(line) else {
        return Some(RuleInfo::foreign(RuleId::Listed(Vec::new()), None, None));
    };
    let mut words = split_words(line).into_iter();
    if words.next()? != "-A" {
        return None;
    }
    let words: Vec<String> = words.skip(1).collect();
    let canon = xt::rule_from_listing(&words).and_then(|rule| rule.canon(family));
    let after = |at: Option<usize>| Some(words.get(at? + 1)?.clone());
    Some(match canon {
        Some(canon) => RuleInfo::known(RuleId::Listed(words), canon.into()),
        None => {
            let comment = after(words.iter().position(|word| word == "--comment"));
            // What leads to a chain comes last; before it the same word may be a comment.
            let jump = after(words.iter().rposition(|word| word == "-j" || word == "-g"));
            RuleInfo::foreign(RuleId::Listed(words), comment, jump)
        }
    })
}

/// Reads lines of `iptables -S`, and writes those that would delete the rules.
///
/// # Panics
/// When a rule becomes more than the one line that deletes it.
#[cfg(feature = "fuzzing")]
pub fn read_listing(output: &[u8]) {
    for rule in output.split(|byte| *byte == b'\n').filter_map(|line| listed(line, Family::Ipv4)) {
        let action = Action::DeleteRule { chain: "CHAIN".to_owned(), id: rule.id };
        if let Ok(Some(deletion)) = line(&action) {
            assert!(!deletion.contains('\n'), "more than a line: {deletion:?}");
        }
    }
}

/// One section per table; the rules in the order of the steps.
fn restore_file(steps: &[Step]) -> Result<String> {
    let mut file = String::new();
    for table in [Table::Filter, Table::Nat] {
        let mine = |step: &&Step| matches!(step.table, TableRef::Xt(_, of) if of == table);
        let lines: Vec<String> = steps
            .iter()
            .filter(mine)
            .filter_map(|step| line(&step.action).transpose())
            .collect::<Result<_>>()?;
        if !lines.is_empty() {
            file.push_str(&format!("*{}\n{}\nCOMMIT\n", table.name(), lines.join("\n")));
        }
    }
    Ok(file)
}

/// A line of the file, or nothing for what comes into being by itself.
fn line(action: &Action) -> Result<Option<String>> {
    let words = match action {
        Action::AddTable { .. } => return Ok(None),
        Action::AddChain(chain) if chain.hook.is_some() => return Ok(None),
        Action::AddChain(chain) => vec!["-N".to_owned(), chain.name.clone()],
        Action::AddRule { chain, rule, at } => {
            let place = match at {
                Position::Head => vec!["-I".to_owned(), chain.clone(), "1".to_owned()],
                Position::Tail => vec!["-A".to_owned(), chain.clone()],
            };
            let AnyRule::Xt(rule) = rule.rule() else { return Ok(None) };
            place.into_iter().chain(rule.to_args()).collect()
        }
        Action::DeleteRule { chain, id: RuleId::Listed(words) } => {
            [&["-D".to_owned(), chain.clone()], words.as_slice()].concat()
        }
        Action::DeleteRule { id: RuleId::Handle(handle), .. } => {
            return Err(Error::InvalidText { kind: "rule", value: handle.to_string() });
        }
        Action::Flush(chain) => vec!["-F".to_owned(), chain.clone()],
        Action::DeleteChain(chain) => {
            return Ok(Some(format!("-F {0}\n-X {0}", quote(chain)?)));
        }
    };
    let quoted: Result<Vec<String>> = words.iter().map(|word| quote(word)).collect();
    Ok(Some(quoted?.join(" ")))
}

/// Carries out the steps with one `nft -f -`, which is one transaction.
pub(crate) fn run_nft(path: &OsStr, steps: &[Step]) -> Result<()> {
    let commands: Vec<String> = steps.iter().map(script::command).collect::<Result<_>>()?;
    run(path, "nft", &["-f", "-"], Some(&(commands.join("\n") + "\n"))).map(drop)
}

/// Runs a tool of `PATH` and returns what it printed.
fn run(path: &OsStr, name: &str, args: &[&str], input: Option<&str>) -> Result<Vec<u8>> {
    let program = find_tool(name, path).ok_or_else(|| Error::ToolMissing { program: name.to_owned() })?;
    let spawned = spawn(&program, args, path, input);
    let output = spawned.map_err(|source| Error::Spawn { program: name.to_owned(), source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let status = output.status.code().unwrap_or(-1);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let program = program.display().to_string();
    let argv = std::iter::once(program).chain(args.iter().map(|arg| (*arg).to_owned())).collect();
    Err(Error::Tool { argv, status, stderr })
}

fn spawn(program: &Path, args: &[&str], path: &OsStr, input: Option<&str>) -> std::io::Result<Output> {
    let mut command = Command::new(program);
    command.args(args).env("PATH", path).env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn()?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        match stdin.write_all(text.as_bytes()) {
            // it refused its input; its own words tell why
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_foreign_rule_leads_to_is_its_last_word() {
        for (line, comment, jump) in [
            ("-m statistic --mode nth -m comment --comment x -j CHAIN", "x", Some("CHAIN")),
            ("-m statistic --mode nth -m comment --comment -j -j CHAIN", "-j", Some("CHAIN")),
            ("-m statistic --mode nth -m comment --comment -j -g CHAIN", "-j", Some("CHAIN")),
            (
                "-m statistic --mode nth -m comment --comment \"a -g\" -j LOG --log-level 4",
                "a -g",
                Some("LOG"),
            ),
            ("-m statistic --mode nth -m comment --comment x", "x", None),
        ] {
            let rule = listed(format!("-A TOP {line}").as_bytes(), Family::Ipv4).unwrap();
            assert_eq!((rule.xt(), rule.comment(), rule.jump()), (None, Some(comment), jump), "{line}");
        }
    }
}
