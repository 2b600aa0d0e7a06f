// SPDX-License-Identifier: Apache-2.0
//! The configuration: its shape on the wire, and what remains of it once it has been checked.

use cnibox_harness::{Input, MacShape};
use cnibox_netlink::Mac;
use cnibox_spec::Verb;
use cnibox_sys::Failure;
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether the device has several queues.
    pub(crate) multi_queue: bool,
    /// MTU in bytes; `None` is the kernel's.
    pub(crate) mtu: Option<u32>,
    /// The interface's MAC.
    pub(crate) mac: Option<Mac>,
    /// The user that may open the device; `None` is everyone with the capability.
    pub(crate) owner: Option<u32>,
    /// The group that may open the device.
    pub(crate) group: Option<u32>,
    /// The SELinux context of the device.
    pub(crate) selinux_context: Option<String>,
    /// Whether this is the plugin's own call of itself for a device with a context.
    pub(crate) labelled: bool,
    /// The bridge in the container whose port the device becomes.
    pub(crate) bridge: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    #[serde(rename = "multiQueue")]
    multi_queue: bool,
    mtu: i64,
    mac: String,
    owner: Option<u32>,
    group: Option<u32>,
    #[serde(rename = "selinuxContext")]
    selinux_context: String,
    #[serde(rename = "cnibox.labelled")]
    labelled: bool,
    bridge: String,
    #[serde(rename = "runtimeConfig")]
    runtime: MacShape,
    #[serde(rename = "args")]
    _args: NoArgs,
}

/// Only what it is not is an error.
#[derive(Default, Deserialize)]
#[serde(rename = "struct {}")]
struct NoArgs {}

impl Config {
    /// Checks the configuration. DEL needs nothing but the IPAM plugin's name, and stumbles over nothing else.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to load netconf")?;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok(Self {
            mac: match input.verb {
                Verb::Add => input.requested_mac(&shape.runtime.mac, &shape.mac)?,
                Verb::Del | Verb::Check | Verb::Status | Verb::Gc => None,
            },
            multi_queue: shape.multi_queue,
            mtu: match u32::try_from(shape.mtu) {
                Err(_) if input.verb == Verb::Add => {
                    return Err(Failure::invalid_config(format!("invalid MTU {}", shape.mtu)));
                }
                mtu => mtu.ok().filter(|mtu| *mtu > 0),
            },
            owner: shape.owner,
            group: shape.group,
            selinux_context: given(shape.selinux_context),
            labelled: shape.labelled,
            bridge: given(shape.bridge),
        })
    }
}
