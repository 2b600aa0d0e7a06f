// SPDX-License-Identifier: Apache-2.0
//! The configuration: its shape on the wire, and what remains of it once it has been checked.

use cnibox_harness::{Input, MacShape};
use cnibox_netlink::{Mac, MacVlanMode};
use cnibox_spec::Verb;
use cnibox_sys::{Failure, Place};
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The parent's name; `None` is the default route's link.
    pub(crate) master: Option<String>,
    /// Where the parent is.
    pub(crate) place: Place,
    /// How the interface sees its siblings.
    pub(crate) mode: MacVlanMode,
    /// MTU in bytes, 0 for the parent's. Checked when the parent is known.
    pub(crate) mtu: i64,
    /// The interface's MAC.
    pub(crate) mac: Option<Mac>,
    /// Length of the queue for broadcasts, in packets.
    pub(crate) bcqueuelen: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    master: String,
    mode: String,
    mtu: i64,
    mac: String,
    #[serde(rename = "linkInContainer")]
    in_container: bool,
    bcqueuelen: u32,
    #[serde(rename = "runtimeConfig")]
    runtime: MacShape,
}

impl Config {
    /// Checks the configuration. DEL needs nothing but the IPAM plugin's name, and stumbles over nothing else.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let failed =
            if input.verb == Verb::Del { "failed to load netConf" } else { "failed to load netconf" };
        let shape: Shape = input.decode(failed)?;
        let used = matches!(input.verb, Verb::Add | Verb::Check);
        let mode = match mode_named(&shape.mode) {
            Err(unknown) if used => return Err(unknown),
            mode => mode.unwrap_or(MacVlanMode::Bridge),
        };
        Ok(Self {
            mac: if used { input.requested_mac(&shape.runtime.mac, &shape.mac)? } else { None },
            master: Some(shape.master).filter(|master| !master.is_empty()),
            place: if shape.in_container { Place::Pod } else { Place::Host },
            mode,
            mtu: shape.mtu,
            bcqueuelen: Some(shape.bcqueuelen).filter(|length| *length != 0),
        })
    }
}

fn mode_named(name: &str) -> Result<MacVlanMode, Failure> {
    let name = if name.is_empty() { "bridge" } else { name };
    let known = name.parse().ok().filter(|mode| *mode != MacVlanMode::Source);
    known.ok_or_else(|| Failure::invalid_config(format!("unknown macvlan mode: {name:?}")))
}
