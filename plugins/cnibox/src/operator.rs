// SPDX-License-Identifier: Apache-2.0
//! The commands for people: install, list, doctor, and a runtime with cnitool's command line. None of this runs when the
//! executable is called as a plugin.

mod conf;
mod doctor;
mod help;
mod install;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use cnibox_runtime::{CACHE_DIR, Cache, Keep, NETWORKS_DIR, Networks, PLUGINS_DIR, Runtime};
use cnibox_spec::{Attachment, Json, quoted};
use cnibox_sys::Env;

use install::{Form, Install};

/// What surrounds a command.
pub(crate) struct Console<'a> {
    /// Results.
    pub(crate) out: &'a mut dyn Write,
    /// Errors, and what plugins say to people.
    pub(crate) err: &'a mut dyn Write,
    /// The environment.
    pub(crate) env: Env,
    /// The names of the plugins in this executable.
    pub(crate) plugins: Vec<&'static str>,
    /// The executable's version.
    pub(crate) version: &'static str,
}

/// Runs the command line `args`, without the executable's name. Answers with the exit status.
pub(crate) fn run(args: &[OsString], console: &mut Console<'_>) -> u8 {
    let outcome = parse(args).map_err(Trouble::Usage).and_then(|command| Ok(perform(command, console)?));
    let (message, status) = match outcome {
        Ok(()) => return 0,
        Err(Trouble::Usage(message)) => (format!("cnibox: {message}; `cnibox help` shows what there is"), 2),
        Err(Trouble::Failure(error)) => (format!("{error:#}"), 1),
    };
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(console.err, "{message}");
    status
}

enum Trouble {
    Usage(String),
    Failure(anyhow::Error),
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Failure(error)
    }
}

/// A command line, understood.
#[derive(Debug, PartialEq)]
enum Command<'a> {
    Help,
    Version,
    List,
    Install { dir: &'a Path, form: Form, buildkit: bool, force: bool, dry_run: bool },
    Uninstall { dir: &'a Path, dry_run: bool },
    Add { network: &'a str, netns: &'a str },
    Check { network: &'a str, netns: &'a str },
    Del { network: &'a str, netns: &'a str },
    Status { network: &'a str },
    Gc { network: &'a str, keep: Keep, dry_run: bool },
    Doctor,
}

fn parse(args: &[OsString]) -> Result<Command<'_>, String> {
    let Some((first, rest)) = args.split_first() else { return Ok(Command::Help) };
    let words = Words::new(rest);
    let first = first.to_string_lossy();
    if words.has("--help") || words.has("-h") {
        return Ok(Command::Help);
    }
    match &*first {
        "help" | "--help" | "-h" => Ok(Command::Help),
        "version" | "--version" | "-V" => words.only(&[], 0..=0).map(|()| Command::Version),
        "list" => words.only(&[], 0..=0).map(|()| Command::List),
        "doctor" => words.only(&[], 0..=0).map(|()| Command::Doctor),
        "install" => parse_install(&words),
        "uninstall" => {
            words.only(&["--dry-run"], 1..=1)?;
            Ok(Command::Uninstall { dir: words.path(0)?, dry_run: words.has("--dry-run") })
        }
        "add" | "check" | "del" => {
            words.only(&[], 2..=2)?;
            let (network, netns) = (words.text(0)?, words.text(1)?);
            Ok(match &*first {
                "add" => Command::Add { network, netns },
                "check" => Command::Check { network, netns },
                _ => Command::Del { network, netns },
            })
        }
        "status" => {
            words.only(&[], 1..=2)?;
            Ok(Command::Status { network: words.text(0)? })
        }
        "gc" => {
            words.only(&["--all", "--dry-run"], 1..=2)?;
            let keep = if words.has("--all") { Keep::Nothing } else { Keep::Live };
            Ok(Command::Gc { network: words.text(0)?, keep, dry_run: words.has("--dry-run") })
        }
        unknown => Err(format!("unknown command {}", quoted(unknown))),
    }
}

fn parse_install<'a>(words: &Words<'a>) -> Result<Command<'a>, String> {
    words.only(&["--symlink", "--hardlink", "--copy", "--buildkit", "--force", "--dry-run"], 1..=1)?;
    let forms = [("--symlink", Form::Symlink), ("--hardlink", Form::Hardlink), ("--copy", Form::Copy)];
    let mut chosen = forms.into_iter().filter(|(option, _)| words.has(option)).map(|(_, form)| form);
    let form = chosen.next().unwrap_or_default();
    if chosen.next().is_some() {
        return Err("only one of --symlink, --hardlink and --copy is possible".to_owned());
    }
    let [buildkit, force, dry_run] = ["--buildkit", "--force", "--dry-run"].map(|option| words.has(option));
    Ok(Command::Install { dir: words.path(0)?, form, buildkit, force, dry_run })
}

/// The words after the command: options in any place, and the others.
struct Words<'a> {
    options: Vec<&'a OsString>,
    others: Vec<&'a OsString>,
}

impl<'a> Words<'a> {
    fn new(args: &'a [OsString]) -> Self {
        let is_option = |word: &&'a OsString| word.as_encoded_bytes().starts_with(b"-");
        let (options, others) = args.iter().partition(is_option);
        Self { options, others }
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|given| *given == option)
    }

    /// Refuses other options than these and another number of words.
    fn only(&self, options: &[&str], count: std::ops::RangeInclusive<usize>) -> Result<(), String> {
        let known = |given: &OsString| options.iter().any(|option| given == option);
        if let Some(unknown) = self.options.iter().find(|given| !known(given)) {
            return Err(format!("unknown option {}", quoted(&unknown.to_string_lossy())));
        }
        match self.others.len() {
            few if few < *count.start() => Err("an argument is missing".to_owned()),
            many if many > *count.end() => Err("too many arguments".to_owned()),
            _ => Ok(()),
        }
    }

    fn path(&self, index: usize) -> Result<&'a Path, String> {
        let word = self.others.get(index).ok_or_else(|| "an argument is missing".to_owned())?;
        Ok(Path::new(*word))
    }

    fn text(&self, index: usize) -> Result<&'a str, String> {
        let path = self.path(index)?;
        path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))
    }
}

fn perform(command: Command<'_>, console: &mut Console<'_>) -> Result<()> {
    match command {
        Command::Help => print_help(console),
        Command::Version => Ok(writeln!(console.out, "cnibox {}", console.version)?),
        Command::List => console.plugins.iter().try_for_each(|name| Ok(writeln!(console.out, "{name}")?)),
        Command::Install { dir, form, buildkit, force, dry_run } => {
            let names = entry_names(&console.plugins, buildkit);
            let source = &install::this_executable();
            Install { dir, source, names, form, force, dry_run }.run(console.out)
        }
        Command::Uninstall { dir, dry_run } => {
            install::uninstall(dir, &entry_names(&console.plugins, true), dry_run, console.out)
        }
        Command::Add { network, netns } => {
            let conf = conf::read(network, netns, &console.env)?;
            print_result(&told(runtime(console).add(&conf))?, console.out)
        }
        Command::Check { network, netns } => {
            let conf = conf::read(network, netns, &console.env)?;
            told(runtime(console).check(&conf))
        }
        Command::Del { network, netns } => {
            let conf = conf::read(network, netns, &console.env)?;
            told(runtime(console).del(&conf))
        }
        Command::Status { network } => {
            let mut runtime = runtime(console);
            let network = told(runtime.networks.find(network))?;
            told(runtime.status(&network)).map(drop)
        }
        Command::Gc { network, keep, dry_run } => {
            let mut runtime = runtime(console);
            let network = told(runtime.networks.find(network))?;
            let attachments = told(runtime.gc(&network, keep, dry_run))?;
            let verb = if dry_run { "would detach" } else { "detached" };
            attachments.iter().try_for_each(|Attachment { container, ifname, .. }| {
                Ok(writeln!(console.out, "{verb} {container} {ifname}")?)
            })
        }
        Command::Doctor => doctor::run(console),
    }
}

/// The first line must be one that a program looking for a version understands: Nomad runs everything in the directory
/// of plugins and takes the first word that looks like one.
fn print_help(console: &mut Console<'_>) -> Result<()> {
    Ok(write!(console.out, "cnibox {}\n{}\n\n{}", console.version, help::MARK, help::HELP)?)
}

fn entry_names(plugins: &[&str], buildkit: bool) -> Vec<String> {
    let own = plugins.iter().map(|name| (*name).to_owned());
    let prefixed = plugins.iter().filter(|_| buildkit).map(|name| format!("buildkit-cni-{name}"));
    own.chain(prefixed).collect()
}

fn runtime<'a>(console: &'a mut Console<'_>) -> Runtime<'a> {
    let env = console.env.clone();
    let networks = match env.var("NETCONFPATH") {
        dir if dir.is_empty() => Networks::new(NETWORKS_DIR),
        dir => Networks::new(&*dir),
    };
    let env = if env.var("CNI_PATH").is_empty() { env.with("CNI_PATH", PLUGINS_DIR) } else { env };
    Runtime { env, networks, cache: Cache::new(CACHE_DIR), notes: &mut *console.err }
}

/// A library's error says everything itself, causes included.
fn told<T>(outcome: Result<T, impl std::fmt::Display>) -> Result<T> {
    outcome.map_err(|error| anyhow!("{error}"))
}

fn print_result(result: &Json, out: &mut dyn Write) -> Result<()> {
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, formatter);
    serde::Serialize::serialize(result, &mut serializer).context("print the result")?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests;
