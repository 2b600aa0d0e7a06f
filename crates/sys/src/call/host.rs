// SPDX-License-Identifier: Apache-2.0
//! What surrounds one plugin call: environment, standard streams, and the plugins that live in this executable.

use std::io::{Read, Write};

use crate::call::Env;

/// Exit status of a plugin call: 0 or 1.
pub type Exit = u8;

/// A plugin's entry point.
pub type Entry = fn(&mut Host<'_>) -> Exit;

/// The surroundings of one plugin call; nothing below reads them from the process.
pub struct Host<'a> {
    /// Environment variables.
    pub env: Env,
    /// The network configuration.
    pub stdin: &'a mut dyn Read,
    /// The result or the error, one JSON document.
    pub stdout: &'a mut dyn Write,
    /// Notes for people.
    pub stderr: &'a mut dyn Write,
    /// The plugins that can be called without starting a process.
    pub registry: Registry,
    /// For tests: the transaction step, counted from 1, that fails instead of running.
    pub fail_at: Option<usize>,
}

/// A plugin of this executable.
#[derive(Clone, Copy)]
pub struct Builtin {
    /// What it is called, as in `argv[0]`.
    pub name: &'static str,
    /// Where it begins.
    pub entry: Entry,
    /// Whether other plugins may call it. One that calls others could call itself with the same configuration again and
    /// again.
    pub is_delegate: bool,
    /// Whether it asks the network for what it answers, by the interface that it is called for.
    pub asks_network: bool,
}

/// The plugins of this executable.
#[derive(Clone, Copy, Default)]
pub struct Registry(pub &'static [Builtin]);

impl Registry {
    /// The plugin called `name`.
    #[must_use]
    pub fn find(self, name: &str) -> Option<Builtin> {
        self.0.iter().find(|plugin| plugin.name == name).copied()
    }
}
