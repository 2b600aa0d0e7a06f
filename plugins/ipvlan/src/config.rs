// SPDX-License-Identifier: Apache-2.0
//! The configuration: its shape on the wire, and what remains of it once it has been checked.

use cnibox_harness::Input;
use cnibox_netlink::{IpVlanMode, Link};
use cnibox_spec::{CniResult, Verb};
use cnibox_sys::{Failure, Place};
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The parent's name; `None` is the default route's link.
    pub(crate) master: Option<String>,
    /// Where the parent is.
    pub(crate) place: Place,
    /// At which layer packets are switched.
    pub(crate) mode: IpVlanMode,
    /// MTU in bytes; 0 or less for the parent's.
    mtu: i64,
    /// An earlier plugin's result, whose addresses are used in place of an IPAM plugin's.
    pub(crate) chained: Option<CniResult>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    master: String,
    mode: String,
    mtu: i64,
    #[serde(rename = "linkInContainer")]
    in_container: bool,
}

impl Config {
    /// Checks the configuration. DEL needs nothing but the IPAM plugin's name, and stumbles over nothing else; only ADD
    /// has an earlier plugin's prevResult.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to load netconf")?;
        let mode = match mode_named(&shape.mode) {
            Err(unknown) if matches!(input.verb, Verb::Add | Verb::Check) => return Err(unknown),
            mode => mode.unwrap_or(IpVlanMode::L2),
        };
        let earlier = if input.verb == Verb::Add { input.prev_result()? } else { None };
        let mut master = Some(shape.master).filter(|master| !master.is_empty());
        if let (None, Some(result)) = (&master, &earlier) {
            master = Some(chained_master(result)?);
        }
        Ok(Self {
            master,
            place: if shape.in_container { Place::Pod } else { Place::Host },
            mode,
            mtu: shape.mtu,
            chained: earlier.filter(|result| input.conf.ipam().is_none() && !result.ips.is_empty()),
        })
    }

    /// The MTU to give to an interface on `parent`; `None` when it is the parent's.
    pub(crate) fn mtu_on(&self, parent: &Link) -> Option<u32> {
        u32::try_from(self.mtu).ok().filter(|mtu| *mtu > 0 && *mtu != parent.mtu)
    }
}

fn chained_master(result: &CniResult) -> Result<String, Failure> {
    match result.interfaces.as_slice() {
        [only] if !only.name.is_empty() => Ok(only.name.clone()),
        _ => {
            let text = "chained master failure. PrevResult lacks a single named interface";
            Err(Failure::invalid_config(text))
        }
    }
}

fn mode_named(name: &str) -> Result<IpVlanMode, Failure> {
    let name = if name.is_empty() { "l2" } else { name };
    name.parse().map_err(|_| Failure::invalid_config(format!("unknown ipvlan mode: {name:?}")))
}
