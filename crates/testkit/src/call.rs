// SPDX-License-Identifier: Apache-2.0
//! One call of a plugin as a runtime makes it: a real process, the CNI environment, JSON in and out.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Container, Sandbox};

/// A call being prepared. Everything a runtime sets can be changed before [`Call::run`].
#[derive(Debug)]
pub struct Call<'a> {
    net: &'a Sandbox,
    plugin: String,
    env: Vec<(OsString, OsString)>,
    stdin: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Exit status; -1 after a signal.
    pub status: i32,
    /// Standard output, decoded; null if there was none or it is no JSON.
    pub json: Value,
    /// Standard output as it came.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Sandbox {
    /// Calls a plugin for a pod, with `CNI_IFNAME` eth0.
    pub fn cni(&self, plugin: &str, verb: &str, pod: &Container, conf: &str) -> Outcome {
        self.call(plugin, verb, conf).pod(pod).run()
    }

    /// Prepares a call without a pod.
    pub fn call(&self, plugin: &str, verb: &str, conf: &str) -> Call<'_> {
        let call = Call { net: self, plugin: plugin.to_owned(), env: Vec::new(), stdin: conf.to_owned() };
        call.env("CNI_COMMAND", verb).env("CNI_PATH", self.cni_path())
    }

    /// A directory with all plugins: `bin` in [`Sandbox::dir`], if the test made that itself; else the directory that
    /// `CNIBOX_BIN` names; else links to the binary under test.
    pub fn cni_path(&self) -> PathBuf {
        let dir = self.dir().join("bin");
        let binary = binary();
        if binary.is_dir() && !dir.exists() {
            return binary;
        }
        if std::fs::create_dir(&dir).is_ok() {
            for plugin in PLUGINS {
                symlink(&binary, dir.join(plugin)).expect("link a plugin");
            }
        }
        dir
    }
}

impl Call<'_> {
    /// Sets `CNI_CONTAINERID`, `CNI_NETNS` and `CNI_IFNAME` (eth0).
    #[must_use]
    pub fn pod(self, pod: &Container) -> Self {
        self.env("CNI_CONTAINERID", &pod.id).env("CNI_NETNS", &pod.path).env("CNI_IFNAME", "eth0")
    }

    /// Sets or changes a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// Runs the plugin in the sandbox's network. Nothing of the test's environment but `PATH` reaches it, or
    /// `CNIBOX_PATH` in place of that: hosts on which plugins find other programs than tests do.
    ///
    /// # Panics
    /// If the binary cannot be started.
    pub fn run(self) -> Outcome {
        let program = self.net.cni_path().join(&self.plugin);
        let mut command = Command::new(&program);
        command
            .arg0(&program)
            .env_clear()
            .env(
                "PATH",
                std::env::var_os("CNIBOX_PATH").or_else(|| std::env::var_os("PATH")).unwrap_or_default(),
            )
            .envs(self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child =
            self.net.netns().run(|| command.spawn()).expect("enter the sandbox").unwrap_or_else(|error| {
                panic!("start {}: {error} (build it, or set CNIBOX_BIN)", program.display())
            });
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin may well exit without reading (EPIPE).
            let _ = stdin.write_all(self.stdin.as_bytes());
        }
        Outcome::of(child.wait_with_output().expect("wait for the plugin"))
    }
}

impl Outcome {
    fn of(output: std::process::Output) -> Self {
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Self {
            status: output.status.code().unwrap_or(-1),
            json: serde_json::from_str(&stdout).unwrap_or(Value::Null),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            stdout,
        }
    }

    /// The result object (null for verbs without one).
    ///
    /// # Panics
    /// If the call failed.
    #[track_caller]
    pub fn success(self) -> Value {
        assert_eq!(self.status, 0, "the call failed: {}{}", self.stdout, self.stderr);
        self.json
    }

    /// The code and message of the error object.
    ///
    /// # Panics
    /// If the call succeeded or printed no error object.
    #[track_caller]
    pub fn failure(self) -> (u64, String) {
        assert_ne!(self.status, 0, "the call succeeded: {}", self.stdout);
        let code = self.json.get("code").and_then(Value::as_u64);
        let message = self.json.get("msg").and_then(Value::as_str);
        match (code, message) {
            (Some(code), Some(message)) => (code, message.to_owned()),
            _ => panic!("no error object: {}{}", self.stdout, self.stderr),
        }
    }
}

/// `CNIBOX_BIN`, or `cnibox` in the build directory that the test executable is in.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("CNIBOX_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("the test's own path");
    // <target>/<triple>/<profile>/deps/<test>-<hash>
    let profile = test.parent().and_then(Path::parent).expect("a build directory");
    profile.join("cnibox")
}

/// The names linked into [`Sandbox::cni_path`].
pub const PLUGINS: &[&str] = &[
    "bandwidth",
    "bridge",
    "dhcp",
    "dummy",
    "firewall",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
];
