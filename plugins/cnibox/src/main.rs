// SPDX-License-Identifier: Apache-2.0
//! Every CNI reference plugin in one executable: the plugin is chosen by `argv[0]`, else by the first argument.
//! The one place that knows all plugins, reads the process's environment and streams, and exits.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use cnibox_harness::{Plugin, run};
use cnibox_spec::{Code, ErrorObject, print_error};
use cnibox_sys::{Entry, Env, Host, Registry};

/// The only list of plugins in the repository, sorted by name.
macro_rules! plugins {
    ($($plugin:ty),* $(,)?) => {
        static PLUGINS: &[(&str, Entry)] = &[$((<$plugin as Plugin>::NAME, run::<$plugin>)),*];
    };
}

    cnibox_bridge::Bridge,
    cnibox_firewall::Firewall,
    cnibox_loopback::Loopback,
    cnibox_portmap::Portmap,
];
plugins![
plugins![cnibox_bridge::Bridge, cnibox_host_local::HostLocal, cnibox_loopback::Loopback,];

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_panic));
    let args: Vec<_> = std::env::args_os().collect();
    let registry = Registry(PLUGINS);
    let called = args.first().and_then(|arg| plugin_named(registry, arg));
    if let Some(entry) = called {
        return serve(registry, entry);
    }
    match args.get(1).and_then(|arg| plugin_named(registry, arg)) {
        Some(entry) => serve(registry, entry),
        None => ExitCode::FAILURE,
    }
}

/// The plugin that a path's last component names, also in the form that BuildKit looks for.
fn plugin_named(registry: Registry, arg: &OsStr) -> Option<Entry> {
    let name = Path::new(arg).file_name()?.to_str()?;
    registry.find(name.strip_prefix("buildkit-cni-").unwrap_or(name))
}

fn serve(registry: Registry, entry: Entry) -> ExitCode {
    let mut host = Host {
        env: std::env::vars_os().collect::<Env>(),
        stdin: &mut std::io::stdin().lock(),
        stdout: &mut std::io::stdout().lock(),
        stderr: &mut std::io::stderr().lock(),
        registry,
        fail_at: None,
    };
    ExitCode::from(entry(&mut host))
}

/// A runtime wants an error object even for a defect of ours. Nothing has been printed at that point: results are
/// written in one piece at the end.
#[expect(clippy::exit, reason = "the process aborts otherwise, with a status that says less")]
fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let object =
        ErrorObject { code: Code::INTERNAL, msg: format!("cnibox defect: {info}"), details: String::new() };
    let _ = std::io::stdout().write_all(print_error(&object).as_bytes());
    std::process::exit(1);
}
