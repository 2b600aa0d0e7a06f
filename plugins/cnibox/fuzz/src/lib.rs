// SPDX-License-Identifier: Apache-2.0
//! Whole calls of a plugin in this process. They write where the process may: run it in namespaces of its own.

use std::path::PathBuf;

use cnibox_sys::{Entry, Env, Exit, Host, Registry};

/// A scratch directory of this process.
pub fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("cnibox-fuzz-{}", std::process::id()))
}

/// Calls a plugin. `netns` is `CNI_NETNS`.
pub fn call(entry: Entry, verb: &str, netns: &str, stdin: &[u8]) -> (Exit, Vec<u8>) {
    let vars = [
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/nowhere"),
    ];
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let exit = entry(&mut Host {
        env: vars.into_iter().map(|(name, value)| (name.into(), value.into())).collect::<Env>(),
        stdin: &mut &*stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
        registry: Registry::default(),
        fail_at: None,
    });
    assert!(exit == 0 || !stdout.is_empty(), "a failure says why");
    (exit, stdout)
}
