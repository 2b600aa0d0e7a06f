// SPDX-License-Identifier: Apache-2.0
//! One call of a plugin in the test's own process, where its steps can be made to fail.

use std::fs::{self, File};
use std::path::Path;

use cnibox_sys::{Entry, Env, Exit, Host, Registry};
use serde_json::Value;

use crate::{Container, Sandbox};

/// A plugin that is called in this process, in the sandbox of the calling thread and without delegates.
#[derive(Debug, Clone, Copy)]
pub struct InProcess(pub Entry);

impl InProcess {
    /// Calls the plugin for `eth0` of a pod; step `fail_at` fails. What it answers, and how it would have exited.
    pub fn call(self, verb: &str, pod: &Container, conf: &Value, fail_at: Option<usize>) -> (Exit, Value) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let env = Env::default()
            .with("CNI_COMMAND", verb)
            .with("CNI_CONTAINERID", &pod.id)
            .with("CNI_NETNS", &pod.path)
            .with("CNI_IFNAME", "eth0")
            .with("CNI_PATH", "/nonexistent");
        let text = conf.to_string();
        let mut host = Host {
            env,
            stdin: &mut text.as_bytes(),
            stdout: &mut stdout,
            stderr: &mut stderr,
            registry: Registry::default(),
            fail_at,
        };
        let exit = self.0(&mut host);
        await_unlocked();
        (exit, serde_json::from_slice(&stdout).unwrap_or_default())
    }

    /// The result of a call (null for verbs without one).
    ///
    /// # Panics
    /// If the call failed.
    #[track_caller]
    pub fn success(self, verb: &str, pod: &Container, conf: &Value) -> Value {
        let (exit, document) = self.call(verb, pod, conf, None);
        assert_eq!(exit, 0, "{verb}: {document}");
        document
    }

    /// The message of a call's error object.
    ///
    /// # Panics
    /// If the call succeeded or printed no error object.
    #[track_caller]
    pub fn failure(self, verb: &str, pod: &Container, conf: &Value) -> String {
        let (exit, document) = self.call(verb, pod, conf, None);
        assert_eq!(exit, 1, "{verb} succeeded: {document}");
        document["msg"].as_str().expect("an error's message").to_owned()
    }
}

/// Waits until nobody holds a record of the ledger any more, after a call in this process. Programs that other tests start
/// meanwhile have this process's locks until they are executed; whoever asks next would take that for a call that runs.
///
/// # Panics
/// If a record cannot be locked.
pub fn await_unlocked() {
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for record in entries(Path::new("/run/cnibox/attachments")).flat_map(|shelf| entries(&shelf)) {
        if let Ok(record) = File::open(record) {
            record.lock_shared().expect("a record of the ledger");
        }
    }
}

impl Sandbox {
    /// A pod with `eth0`, the other end `host0` on the host, both up; then these `ip` commands in the pod.
    ///
    /// # Panics
    /// If a command fails.
    pub fn connected(&self, commands: &[&str]) -> Container {
        let pod = self.container();
        self.run("ip", &["link", "add", "host0", "type", "veth", "peer", "name", "eth0", "netns", &pod.id]);
        // Link-local addresses come some time after the carrier and would be taken for the plugin's.
        self.run("ip", &["link", "set", "host0", "addrgenmode", "none", "up"]);
        for command in ["link set lo up", "link set eth0 addrgenmode none up"].iter().chain(commands) {
            self.run_in(&pod, "ip", &command.split(' ').collect::<Vec<_>>());
        }
        pod
    }
}
