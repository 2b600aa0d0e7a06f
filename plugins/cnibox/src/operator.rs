// SPDX-License-Identifier: Apache-2.0
//! The commands for people: install, list, doctor, and a runtime with cnitool's command line. None of this runs when the
//! executable is called as a plugin.

mod conf;
mod doctor;
mod help;
mod install;

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use cnibox_runtime::{CACHE_DIR, Cache, Keep, NETWORKS_DIR, Networks, PLUGINS_DIR, Runtime};
use cnibox_spec::{Attachment, Json, quoted};
use cnibox_sys::Env;
use thiserror::Error;

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
    let Err(error) = perform(args, console) else { return 0 };
    let (message, status) = match error.downcast_ref() {
        Some(Usage(wrong)) => (format!("cnibox: {wrong}; `cnibox help` shows what there is"), 2),
        None => (format!("{error:#}"), 1),
    };
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(console.err, "{message}");
    status
}

/// What is wrong with the command line. Nothing has been done.
#[derive(Debug, Error)]
#[error("{0}")]
struct Usage(String);

fn perform(args: &[OsString], console: &mut Console<'_>) -> Result<()> {
    let (first, rest) =
        args.split_first().map_or((Cow::from("help"), args), |(first, rest)| (first.to_string_lossy(), rest));
    let words = Words::new(rest);
    if words.has("--help") || words.has("-h") {
        return print_help(console);
    }
    match &*first {
        "help" | "--help" | "-h" => print_help(console),
        "version" | "--version" | "-V" => {
            words.only(&[], 0..=0)?;
            Ok(writeln!(console.out, "cnibox {}", console.version)?)
        }
        "list" => {
            words.only(&[], 0..=0)?;
            console.plugins.iter().try_for_each(|name| Ok(writeln!(console.out, "{name}")?))
        }
        "doctor" => {
            words.only(&[], 0..=0)?;
            doctor::run(console)
        }
        "install" => install(&words, console),
        "uninstall" => {
            words.only(&["--dry-run"], 1..=1)?;
            let names = entry_names(&console.plugins, true);
            install::uninstall(words.path(0)?, &names, words.has("--dry-run"), console.out)
        }
        "add" | "check" | "del" => {
            words.only(&[], 2..=2)?;
            let conf = conf::read(words.text(0)?, words.text(1)?, &console.env)?;
            let mut runtime = runtime(console);
            match &*first {
                "add" => print_result(&told(runtime.add(&conf))?, console.out),
                "check" => told(runtime.check(&conf)),
                _ => told(runtime.del(&conf)),
            }
        }
        "status" => {
            words.only(&[], 1..=2)?;
            let mut runtime = runtime(console);
            let network = told(runtime.networks.find(words.text(0)?))?;
            told(runtime.status(&network)).map(drop)
        }
        "gc" => gc(&words, console),
        unknown => Err(Usage(format!("unknown command {}", quoted(unknown))).into()),
    }
}

fn install(words: &Words<'_>, console: &mut Console<'_>) -> Result<()> {
    words.only(&["--symlink", "--hardlink", "--copy", "--buildkit", "--force", "--dry-run"], 1..=1)?;
    let forms = [("--symlink", Form::Symlink), ("--hardlink", Form::Hardlink), ("--copy", Form::Copy)];
    let mut chosen = forms.into_iter().filter(|(option, _)| words.has(option)).map(|(_, form)| form);
    let form = chosen.next().unwrap_or_default();
    if chosen.next().is_some() {
        let wrong = "only one of --symlink, --hardlink and --copy is possible";
        return Err(Usage(wrong.to_owned()).into());
    }
    let [buildkit, force, dry_run] = ["--buildkit", "--force", "--dry-run"].map(|option| words.has(option));
    let names = entry_names(&console.plugins, buildkit);
    let source = &install::this_executable();
    Install { dir: words.path(0)?, source, names, form, force, dry_run }.run(console.out)
}

fn gc(words: &Words<'_>, console: &mut Console<'_>) -> Result<()> {
    let (network, keep, dry_run) = gc_words(words)?;
    let mut runtime = runtime(console);
    let network = told(runtime.networks.find(network))?;
    let attachments = told(runtime.gc(&network, keep, dry_run))?;
    let verb = if dry_run { "would detach" } else { "detached" };
    attachments.iter().try_for_each(|Attachment { container, ifname, .. }| {
        Ok(writeln!(console.out, "{verb} {container} {ifname}")?)
    })
}

/// The network, what is kept of it, and whether to say only what would be done.
fn gc_words<'a>(words: &Words<'a>) -> Result<(&'a str, Keep, bool), Usage> {
    words.only(&["--all", "--dry-run"], 1..=2)?;
    let keep = if words.has("--all") { Keep::Nothing } else { Keep::Live };
    Ok((words.text(0)?, keep, words.has("--dry-run")))
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
    fn only(&self, options: &[&str], count: std::ops::RangeInclusive<usize>) -> Result<(), Usage> {
        let known = |given: &OsString| options.iter().any(|option| given == option);
        if let Some(unknown) = self.options.iter().find(|given| !known(given)) {
            return Err(Usage(format!("unknown option {}", quoted(&unknown.to_string_lossy()))));
        }
        match self.others.len() {
            few if few < *count.start() => Err(Usage("an argument is missing".to_owned())),
            many if many > *count.end() => Err(Usage("too many arguments".to_owned())),
            _ => Ok(()),
        }
    }

    fn path(&self, index: usize) -> Result<&'a Path, Usage> {
        let word = self.others.get(index).ok_or_else(|| Usage("an argument is missing".to_owned()))?;
        Ok(Path::new(*word))
    }

    fn text(&self, index: usize) -> Result<&'a str, Usage> {
        let path = self.path(index)?;
        path.to_str().ok_or_else(|| Usage(format!("{} is not UTF-8", path.display())))
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
