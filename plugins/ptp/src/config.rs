// SPDX-License-Identifier: Apache-2.0
//! The configuration: its shape on the wire, and what remains of it once it has been checked.

use cnibox_harness::Input;
use cnibox_spec::Verb;
use cnibox_sys::{Backend, Failure};
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether to masquerade, and where if the configuration says so.
    pub(crate) masquerade: Option<Option<Backend>>,
    /// MTU of both ends in bytes; `None` is the kernel's.
    pub(crate) mtu: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    #[serde(rename = "ipMasq")]
    masquerade: bool,
    #[serde(rename = "ipMasqBackend")]
    masquerade_backend: Option<String>,
    mtu: i64,
}

impl Config {
    /// Checks the configuration. An unknown backend stops ADD; DEL cleans every backend anyway.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to load netconf")?;
        let is_needed = shape.masquerade && input.verb == Verb::Add;
        let choice = Backend::of_masquerade(shape.masquerade_backend.as_deref(), is_needed)?;
        Ok(Self {
            masquerade: shape.masquerade.then_some(choice),
            mtu: u32::try_from(shape.mtu).ok().filter(|mtu| *mtu > 0),
        })
    }
}
