// SPDX-License-Identifier: Apache-2.0
//! A network of several plugins, run as libcni runs it.

use std::ffi::OsString;

use serde_json::{Map, Value, json};

use crate::{Container, Outcome, Sandbox};

/// A configuration list (`.conflist`).
#[derive(Debug)]
pub struct Chain<'a> {
    net: &'a Sandbox,
    name: Value,
    version: Value,
    plugins: Vec<Map<String, Value>>,
    runtime_config: Map<String, Value>,
    args: String,
    env: Vec<(String, OsString)>,
}

/// An attachment of a pod: what libcni caches between ADD and DEL.
#[derive(Debug)]
pub struct Attachment<'a> {
    chain: &'a Chain<'a>,
    pod: &'a Container,
    ifname: String,
    /// The result of the last plugin.
    pub result: Value,
}

impl<'a> Chain<'a> {
    /// Reads a configuration list.
    ///
    /// # Panics
    /// If it is no configuration list.
    pub fn new(net: &'a Sandbox, conflist: &str) -> Self {
        let list: Value = serde_json::from_str(conflist).expect("conflist is JSON");
        let plugins = list.get("plugins").and_then(Value::as_array).expect("conflist has plugins");
        Self {
            net,
            name: list.get("name").cloned().expect("conflist has a name"),
            version: list.get("cniVersion").cloned().expect("conflist has a cniVersion"),
            plugins: plugins.iter().map(|plugin| plugin.as_object().cloned().expect("an object")).collect(),
            runtime_config: Map::new(),
            args: String::new(),
            env: Vec::new(),
        }
    }

    /// Sets a capability argument, for example `portMappings`. Plugins get those that they declare.
    #[must_use]
    pub fn capability(mut self, key: &str, value: Value) -> Self {
        self.runtime_config.insert(key.to_owned(), value);
        self
    }

    /// Sets `CNI_ARGS`.
    #[must_use]
    pub fn args(mut self, args: &str) -> Self {
        args.clone_into(&mut self.args);
        self
    }

    /// Sets a variable of every call's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// ADD: every plugin in order, each with the result of the one before.
    ///
    /// # Errors
    /// The first call that failed. As with libcni, nothing is cleaned up: call [`Chain::del`].
    pub fn add(&'a self, pod: &'a Container, ifname: &str) -> Result<Attachment<'a>, Outcome> {
        let mut result = Value::Null;
        for plugin in &self.plugins {
            let outcome = self.call("ADD", plugin, &result, (pod, ifname));
            if outcome.status != 0 {
                return Err(outcome);
            }
            result = outcome.json;
        }
        Ok(Attachment { chain: self, pod, ifname: ifname.to_owned(), result })
    }

    /// DEL in reverse order; `result` is the cached one, null if ADD failed.
    ///
    /// # Errors
    /// The first call that failed; the plugins before it in the list have not run.
    pub fn del(&self, pod: &Container, ifname: &str, result: &Value) -> Result<(), Outcome> {
        self.each(self.plugins.iter().rev(), |plugin| self.call("DEL", plugin, result, (pod, ifname)))
    }

    /// GC in order, with the attachments that are still wanted as (container, interface).
    ///
    /// # Errors
    /// The first call that failed.
    pub fn gc(&self, live: &[(&str, &str)]) -> Result<(), Outcome> {
        let live: Vec<_> =
            live.iter().map(|(id, ifname)| json!({"containerID": id, "ifname": ifname})).collect();
        self.each(self.plugins.iter(), |plugin| {
            let mut conf = self.conf(plugin, &Value::Null);
            conf.insert("cni.dev/valid-attachments".to_owned(), json!(live));
            self.net.call(kind(plugin), "GC", &Value::Object(conf).to_string()).run()
        })
    }

    /// STATUS in order.
    ///
    /// # Errors
    /// The first call that failed.
    pub fn status(&self) -> Result<(), Outcome> {
        self.each(self.plugins.iter(), |plugin| {
            let conf = Value::Object(self.conf(plugin, &Value::Null)).to_string();
            self.net.call(kind(plugin), "STATUS", &conf).run()
        })
    }

    fn each<'p>(
        &'p self,
        plugins: impl Iterator<Item = &'p Map<String, Value>>,
        call: impl Fn(&Map<String, Value>) -> Outcome,
    ) -> Result<(), Outcome> {
        for plugin in plugins {
            let outcome = call(plugin);
            if outcome.status != 0 {
                return Err(outcome);
            }
        }
        Ok(())
    }

    fn call(
        &self,
        verb: &str,
        plugin: &Map<String, Value>,
        prev: &Value,
        (pod, ifname): (&Container, &str),
    ) -> Outcome {
        let conf = Value::Object(self.conf(plugin, prev)).to_string();
        let call = self.net.call(kind(plugin), verb, &conf).pod(pod).env("CNI_IFNAME", ifname);
        let call = self.env.iter().fold(call, |call, (name, value)| call.env(name, value));
        if self.args.is_empty() { call.run() } else { call.env("CNI_ARGS", &self.args).run() }
    }

    /// One plugin's configuration, as libcni's `buildOneConfig` and `injectRuntimeConfig` complete it.
    fn conf(&self, plugin: &Map<String, Value>, prev: &Value) -> Map<String, Value> {
        let mut conf = plugin.clone();
        conf.insert("name".to_owned(), self.name.clone());
        conf.insert("cniVersion".to_owned(), self.version.clone());
        if !prev.is_null() {
            conf.insert("prevResult".to_owned(), prev.clone());
        }
        let wanted =
            |key: &str| plugin.get("capabilities").and_then(|all| all.get(key)) == Some(&Value::Bool(true));
        let runtime: Map<_, _> =
            self.runtime_config.clone().into_iter().filter(|(key, _)| wanted(key)).collect();
        if !runtime.is_empty() {
            conf.insert("runtimeConfig".to_owned(), Value::Object(runtime));
        }
        conf
    }
}

impl Attachment<'_> {
    /// CHECK in order, with the cached result.
    ///
    /// # Errors
    /// The first call that failed.
    pub fn check(&self) -> Result<(), Outcome> {
        let chain = self.chain;
        chain.each(chain.plugins.iter(), |plugin| {
            chain.call("CHECK", plugin, &self.result, (self.pod, &self.ifname))
        })
    }

    /// DEL in reverse order, with the cached result.
    ///
    /// # Errors
    /// The first call that failed.
    pub fn del(&self) -> Result<(), Outcome> {
        self.chain.del(self.pod, &self.ifname, &self.result)
    }
}

fn kind(plugin: &Map<String, Value>) -> &str {
    plugin.get("type").and_then(Value::as_str).expect("plugin has a type")
}
