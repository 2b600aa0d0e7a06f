// SPDX-License-Identifier: Apache-2.0
//! A network's plugins, called as libcni calls them, and timed.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cnibox_testkit::Sandbox;
use serde_json::{Map, Value, json};

use crate::pod::Pod;
use crate::samples::Samples;

/// A configuration list and the directory its plugins are in.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// Where the plugins are.
    pub(crate) bin: PathBuf,
    list: Value,
    /// Put before a plugin's path.
    wrap: Vec<String>,
    /// `PATH` of the plugins; `None`: the benchmark's.
    path: Option<PathBuf>,
    /// More of the plugins' environment.
    env: Option<(&'static str, &'static str)>,
}

/// The verb and, for a chain, the plugin whose time is the sum of all plugins'.
pub(crate) const WHOLE: &str = "chain";

impl Chain {
    /// A chain as in a `.conflist`.
    pub(crate) fn new(bin: &Path, list: Value) -> Self {
        Self { bin: bin.to_owned(), list, wrap: Vec::new(), path: None, env: None }
    }

    /// The same chain, with a variable in every plugin's environment.
    pub(crate) fn with_env(self, variable: (&'static str, &'static str)) -> Self {
        Self { env: Some(variable), ..self }
    }

    /// The same chain, with every plugin started by a tracer.
    pub(crate) fn behind(&self, tracer: Vec<String>) -> Self {
        Self { wrap: tracer, ..self.clone() }
    }

    /// The same chain on a host with nftables, but without iptables. With both, the Go bridge's DEL of an nftables
    /// masquerade asks iptables to delete a rule that was never there, and fails on what iptables says about it.
    pub(crate) fn without_iptables(&self, net: &Sandbox) -> Result<Self> {
        let dir = net.dir().join("tools");
        std::fs::create_dir_all(&dir).context("create a directory of tools")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        for tool in ["nft", "strace"] {
            let mut found = std::env::split_paths(&path).map(|dir| dir.join(tool));
            let found = found.find(|file| file.exists()).with_context(|| format!("find {tool}"))?;
            if !dir.join(tool).exists() {
                std::os::unix::fs::symlink(found, dir.join(tool)).context("link a tool")?;
            }
        }
        Ok(Self { path: Some(dir), ..self.clone() })
    }

    /// ADD; answers with the last result. Notes the time of every plugin and of all together.
    pub(crate) fn add(&self, pod: &Pod, samples: &mut Samples) -> Result<Value> {
        let mut result = Value::Null;
        let mut whole = Duration::ZERO;
        for plugin in self.all() {
            let (time, answer) = self.call("ADD", plugin, &result, pod)?;
            samples.note("ADD", kind(plugin), time);
            whole += time;
            result = serde_json::from_str(&answer).with_context(|| format!("result {answer:?}"))?;
        }
        samples.note("ADD", WHOLE, whole);
        Ok(result)
    }

    /// CHECK.
    pub(crate) fn check(&self, pod: &Pod, result: &Value, samples: &mut Samples) -> Result<()> {
        self.each("CHECK", self.all().iter(), (pod, result), samples)
    }

    /// DEL, in reverse.
    pub(crate) fn del(&self, pod: &Pod, result: &Value, samples: &mut Samples) -> Result<()> {
        self.each("DEL", self.all().iter().rev(), (pod, result), samples)
    }

    fn each<'p>(
        &self,
        verb: &str,
        plugins: impl Iterator<Item = &'p Value>,
        (pod, result): (&Pod, &Value),
        samples: &mut Samples,
    ) -> Result<()> {
        let mut whole = Duration::ZERO;
        for plugin in plugins {
            let (time, _) = self.call(verb, plugin, result, pod)?;
            samples.note(verb, kind(plugin), time);
            whole += time;
        }
        samples.note(verb, WHOLE, whole);
        Ok(())
    }

    fn all(&self) -> &[Value] {
        self.list.get("plugins").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// One process: from before it is started until it has been waited for.
    fn call(&self, verb: &str, plugin: &Value, result: &Value, pod: &Pod) -> Result<(Duration, String)> {
        let conf = self.conf(plugin, result, pod).to_string();
        let mut command = self.command(kind(plugin));
        command.env("CNI_COMMAND", verb).env("CNI_CONTAINERID", &pod.id).env("CNI_NETNS", &pod.path);
        let (time, status, answer) = timed(&mut command, &conf)?;
        if status != 0 {
            bail!("{} {verb} for {} answers {answer}", self.bin.join(kind(plugin)).display(), pod.id);
        }
        Ok((time, answer))
    }

    fn command(&self, plugin: &str) -> Command {
        let path = self.bin.join(plugin);
        let mut command = match self.wrap.split_first() {
            Some((tracer, args)) => {
                let mut command = Command::new(tracer);
                command.args(args).arg(&path);
                command
            }
            None => Command::new(&path),
        };
        let path = self.path.clone().map(OsString::from).or_else(|| std::env::var_os("PATH"));
        command.env_clear().env("PATH", path.unwrap_or_default()).envs(self.env);
        command.env("CNI_PATH", &self.bin).env("CNI_IFNAME", "eth0").env("CNI_ARGS", "IgnoreUnknown=true");
        command
    }

    /// One plugin's configuration as libcni completes it.
    fn conf(&self, plugin: &Value, result: &Value, pod: &Pod) -> Value {
        let mut conf: Map<String, Value> = plugin.as_object().cloned().unwrap_or_default();
        for key in ["name", "cniVersion"] {
            conf.insert(key.to_owned(), self.list.get(key).cloned().unwrap_or_default());
        }
        if !result.is_null() {
            conf.insert("prevResult".to_owned(), result.clone());
        }
        if conf.contains_key("capabilities") {
            conf.insert("runtimeConfig".to_owned(), json!({"portMappings": pod.ports}));
        }
        Value::Object(conf)
    }
}

/// Runs a command with `input` and answers with how long it took, its exit status (-1: a signal) and what it printed.
pub(crate) fn timed(command: &mut Command, input: &str) -> Result<(Duration, i32, String)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {:?}", command.get_program()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may well exit without reading (EPIPE); its answer tells.
        let _ = stdin.write_all(input.as_bytes());
    }
    let mut answer = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut answer)?;
    }
    let status = child.wait()?;
    Ok((started.elapsed(), status.code().unwrap_or(-1), answer))
}

fn kind(plugin: &Value) -> &str {
    plugin.get("type").and_then(Value::as_str).unwrap_or_default()
}
