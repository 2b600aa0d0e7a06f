// SPDX-License-Identifier: Apache-2.0
//! The configuration: its shape on the wire, and what remains of it once it has been checked.

use cnibox_harness::Input;
use cnibox_spec::Verb;
use cnibox_sys::{Failure, Place};
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The parent's name.
    pub(crate) master: String,
    /// Where the parent is.
    pub(crate) place: Place,
    /// VLAN id.
    pub(crate) id: u16,
    /// MTU in bytes, 0 for the parent's. Checked when the parent is known.
    pub(crate) mtu: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    master: String,
    #[serde(rename = "vlanId")]
    id: i64,
    mtu: i64,
    #[serde(rename = "linkInContainer")]
    in_container: bool,
}

impl Config {
    /// Checks the configuration. DEL needs nothing but the IPAM plugin's name, and stumbles over nothing else; CHECK
    /// finds out by itself that there is no such parent or VLAN.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to load netconf")?;
        let adding = input.verb == Verb::Add;
        if adding && shape.master.is_empty() {
            let text =
                "\"master\" field is required. It specifies the host interface name to create the VLAN for";
            return Err(Failure::invalid_config(text));
        }
        let id = match u16::try_from(shape.id).ok().filter(|id| *id <= MAX_ID) {
            None if adding => {
                let text = format!("invalid VLAN ID {} (must be between 0 and 4094 inclusive)", shape.id);
                return Err(Failure::invalid_config(text));
            }
            id => id.unwrap_or_default(),
        };
        Ok(Self {
            master: shape.master,
            place: if shape.in_container { Place::Pod } else { Place::Host },
            id,
            mtu: shape.mtu,
        })
    }
}

/// 4095 is reserved (IEEE 802.1Q).
const MAX_ID: u16 = 4094;
