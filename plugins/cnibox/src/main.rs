// SPDX-License-Identifier: Apache-2.0
//! Every CNI reference plugin in one executable: the plugin is chosen by `argv[0]`, else by the first argument.
//! Everything else is a command for people. The one place that knows all plugins, reads the process's environment and
//! streams, and exits.

mod operator;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use cnibox_harness::{BUILD_VERSION, builtin};
use cnibox_spec::{Code, ErrorObject, print_error};
use cnibox_sys::{Builtin, Entry, Env, Host, Registry, sweep};

use nix::sys::signal::{SigSet, Signal};

use operator::Console;

/// musl's own allocator maps and unmaps every large buffer, a quarter of the time of a call with rules.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// The only list of plugins that ships, sorted by name.
static PLUGINS: &[Builtin] = &[
    builtin::<cnibox_bandwidth::Bandwidth>(),
    builtin::<cnibox_bridge::Bridge>(),
    builtin::<cnibox_dhcp::Dhcp>(),
    builtin::<cnibox_dummy::Dummy>(),
    builtin::<cnibox_firewall::Firewall>(),
    builtin::<cnibox_host_device::HostDevice>(),
    builtin::<cnibox_host_local::HostLocal>(),
    builtin::<cnibox_ipvlan::Ipvlan>(),
    builtin::<cnibox_loopback::Loopback>(),
    builtin::<cnibox_macvlan::Macvlan>(),
    builtin::<cnibox_portmap::Portmap>(),
    builtin::<cnibox_ptp::Ptp>(),
    builtin::<cnibox_sbr::Sbr>(),
    builtin::<cnibox_static::Static>(),
    builtin::<cnibox_tap::Tap>(),
    builtin::<cnibox_tuning::Tuning>(),
    builtin::<cnibox_vlan::Vlan>(),
    builtin::<cnibox_vrf::Vrf>(),
];

/// Something a plugin's executable does besides the protocol, with the arguments behind its name; answers with the exit
/// status.
type Command = fn(&[OsString]) -> u8;

/// What plugins do besides the protocol: plugin, name, entry point.
const COMMANDS: &[(&str, &str, Command)] = &[("dhcp", "daemon", cnibox_dhcp::daemon_main)];

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_panic));
    keep_file_size_signal();
    let args: Vec<_> = std::env::args_os().collect();
    let registry = Registry(PLUGINS);
    let own_name = args.first().and_then(|path| Path::new(path).file_name());
    let first = args.get(1).map(OsString::as_os_str);
    let names = [(own_name, 1), (first, 2)].into_iter().filter_map(|(name, next)| Some((name?, next)));
    let named = |(name, next)| Some((name, next, plugin_named(registry, name)?));
    let Some((name, next, entry)) = names.into_iter().find_map(named) else {
        return operate(args.get(1..).unwrap_or_default());
    };
    match args
        .get(next..)
        .and_then(<[_]>::split_first)
        .and_then(|(word, rest)| Some((command(name, word)?, rest)))
    {
        Some((command, rest)) => ExitCode::from(command(rest)),
        None => serve(registry, entry),
    }
}

/// A write beyond a limit of the process (`RLIMIT_FSIZE`) is an error like any other; its signal would end a plugin in the
/// middle of its work and without a word. Programs that are started get it.
fn keep_file_size_signal() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    // Without it the process is as before.
    let _ = signals.thread_block();
}

/// The command of the plugin called `name`.
fn command(name: &OsStr, word: &OsStr) -> Option<Command> {
    let (_, _, run) = COMMANDS.iter().find(|(plugin, known, _)| *plugin == name && *known == word)?;
    Some(*run)
}

/// The plugin of exactly this name, also in the form that BuildKit looks for.
fn plugin_named(registry: Registry, name: &OsStr) -> Option<Entry> {
    let name = name.to_str()?;
    registry.find(name.strip_prefix("buildkit-cni-").unwrap_or(name)).map(|plugin| plugin.entry)
}

fn operate(args: &[OsString]) -> ExitCode {
    let mut console = Console {
        out: &mut std::io::stdout().lock(),
        err: &mut std::io::stderr().lock(),
        env: std::env::vars_os().collect(),
        plugins: PLUGINS.iter().map(|plugin| plugin.name).collect(),
        version: BUILD_VERSION,
    };
    ExitCode::from(operator::run(args, &mut console))
}

fn serve(registry: Registry, entry: Entry) -> ExitCode {
    let mut host = Host {
        env: std::env::vars_os().collect::<Env>(),
        stdin: &mut std::io::stdin().lock(),
        stdout: &mut unbuffered_stdout(),
        stderr: &mut std::io::stderr().lock(),
        registry,
        fail_at: None,
    };
    let status = entry(&mut host);
    sweep();
    ExitCode::from(status)
}

/// The standard library's own stdout flushes by line, which would tear a document into several writes.
fn unbuffered_stdout() -> Box<dyn Write> {
    match std::io::stdout().as_fd().try_clone_to_owned() {
        Ok(fd) => Box::new(File::from(fd)),
        Err(_) => Box::new(std::io::stdout()),
    }
}

/// A runtime wants an error object even for a defect of ours. Nothing has been printed at that point: results are
/// written in one piece at the end.
#[expect(clippy::exit, reason = "the process aborts otherwise, with a status that says less")]
fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let msg = format!("cnibox defect: {info}");
    let object = ErrorObject { code: Code::INTERNAL, msg, details: String::new() };
    let _ = unbuffered_stdout().write_all(print_error(&object).as_bytes());
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<&'static str> {
        PLUGINS.iter().map(|plugin| plugin.name).collect()
    }

    #[test]
    fn the_table_is_sorted_without_duplicates_and_has_every_plugin() {
        let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folders = std::fs::read_dir(plugins).unwrap().map(|entry| entry.unwrap().path());
        let mut folders: Vec<_> = folders.filter(|path| path.join("Cargo.toml").is_file()).collect();
        folders.sort();
        let folders: Vec<_> =
            folders.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names(), folders.into_iter().filter(|name| *name != "cnibox").collect::<Vec<_>>());
    }

    #[test]
    fn tests_call_every_plugin_of_the_table() {
        assert_eq!(names(), cnibox_testkit::PLUGINS);
    }

    #[test]
    fn only_plugins_that_say_so_have_commands() {
        assert!(command(OsStr::new("dhcp"), OsStr::new("daemon")).is_some());
        for (name, word) in [("dhcp", "deamon"), ("dhcp", ""), ("bridge", "daemon"), ("cnibox", "daemon")] {
            assert!(command(OsStr::new(name), OsStr::new(word)).is_none(), "{name} {word}");
        }
    }

    #[test]
    fn only_exact_names_are_plugins() {
        let registry = Registry(PLUGINS);
        for name in ["loopback", "buildkit-cni-loopback"] {
            assert!(plugin_named(registry, OsStr::new(name)).is_some(), "{name}");
        }
        for name in ["", "cnibox", "my-loopback", "loopback2", "Loopback", "/bin/loopback", "buildkit-cni-"] {
            assert!(plugin_named(registry, OsStr::new(name)).is_none(), "{name}");
        }
    }
}
