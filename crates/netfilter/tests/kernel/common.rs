// SPDX-License-Identifier: Apache-2.0
//! A network namespace for each test, and the tools inside it.

use std::ffi::OsString;
use std::process::{Command, Output};

use cnibox_netfilter::{Choice, Engine};
use cnibox_testkit::skip;

/// Runs `test` on a thread of its own in a new network namespace. Without the right to make one it is skipped.
pub(crate) fn in_netns(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Err(errno) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
            return skip(&format!("no network namespace: {errno}"));
        }
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

pub(crate) fn engine() -> Engine {
    Engine::open(Choice::Netlink, &path())
}

pub(crate) fn output(program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .env("PATH", path())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Runs a tool that must succeed and returns what it prints.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = output(program, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
