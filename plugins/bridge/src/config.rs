// SPDX-License-Identifier: Apache-2.0
//! The configuration: its shape on the wire, and what remains of it once it has been checked.

use cnibox_harness::{Input, MacShape};
use cnibox_netlink::{InvalidMac, Mac};
use cnibox_spec::{IfName, Verb};
use cnibox_sys::{Backend, Failure};
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The bridge's name.
    pub(crate) bridge: String,
    /// Whether the bridge gets gateway addresses. Without an IPAM plugin the attachment has none.
    pub(crate) gateway: bool,
    /// Whether the container gets a default route by them.
    pub(crate) default_gateway: bool,
    /// Whether a conflicting bridge address is replaced.
    pub(crate) force_address: bool,
    /// Whether to masquerade, and where if the configuration says so.
    pub(crate) masquerade: Option<Option<Backend>>,
    /// MTU in bytes.
    pub(crate) mtu: Option<u32>,
    /// Hairpin mode of the port.
    pub(crate) hairpin: bool,
    /// Promiscuous mode of the bridge.
    pub(crate) promisc: bool,
    /// Access VLAN.
    pub(crate) vlan: Option<u16>,
    /// Trunk VLANs, ascending; an empty list still turns VLAN filtering on.
    pub(crate) trunk: Option<Vec<u16>>,
    /// Whether the port stays in its default VLAN.
    pub(crate) preserve_default_vlan: bool,
    /// Whether only the container's own MAC may send.
    pub(crate) spoof_check: bool,
    /// Whether IPv6 addresses go through duplicate address detection.
    pub(crate) dad: bool,
    /// Whether the container's interface stays down.
    pub(crate) leave_down: bool,
    /// Whether the port cannot talk to other isolated ports.
    pub(crate) isolated: bool,
    /// The container's MAC.
    pub(crate) mac: Option<Mac>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    bridge: Option<String>,
    #[serde(rename = "isGateway")]
    gateway: bool,
    #[serde(rename = "isDefaultGateway")]
    default_gateway: bool,
    #[serde(rename = "forceAddress")]
    force_address: bool,
    #[serde(rename = "ipMasq")]
    masquerade: bool,
    #[serde(rename = "ipMasqBackend")]
    masquerade_backend: Option<String>,
    mtu: i64,
    #[serde(rename = "hairpinMode")]
    hairpin: bool,
    #[serde(rename = "promiscMode")]
    promisc: bool,
    vlan: i64,
    #[serde(rename = "vlanTrunk")]
    trunk: Option<TrunkList>,
    #[serde(rename = "preserveDefaultVlan")]
    preserve_default_vlan: bool,
    macspoofchk: bool,
    enabledad: bool,
    #[serde(rename = "disableContainerInterface")]
    leave_down: bool,
    #[serde(rename = "portIsolation")]
    isolated: bool,
    args: ArgsShape,
    #[serde(rename = "runtimeConfig")]
    runtime: MacShape,
}

#[derive(Default, Deserialize)]
#[serde(rename = "struct { Cni main.BridgeArgs \"json:\\\"cni,omitempty\\\"\" }", default)]
struct ArgsShape {
    cni: BridgeArgs,
}

#[derive(Default, Deserialize)]
#[serde(rename = "main.BridgeArgs", default)]
struct BridgeArgs {
    mac: String,
}

#[derive(Deserialize)]
#[serde(rename = "[]*main.VlanTrunk")]
struct TrunkList(Vec<TrunkShape>);

#[derive(Default, Deserialize)]
#[serde(rename = "main.VlanTrunk", default)]
struct TrunkShape {
    #[serde(rename = "minID")]
    min: Option<i64>,
    #[serde(rename = "maxID")]
    max: Option<i64>,
    id: Option<i64>,
}

impl Config {
    /// Checks the configuration. What only ADD uses is checked only there: DEL must not stumble over it.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to load netconf")?;
        let layer3 = input.conf.ipam().is_some();
        let vlan = u16::try_from(shape.vlan).ok().filter(|vlan| *vlan <= MAX_VLAN);
        let vlan = vlan.ok_or_else(|| {
            Failure::invalid_config(format!("invalid VLAN ID {} (must be between 0 and 4094)", shape.vlan))
        })?;
        let trunk = shape.trunk.as_ref().map(|TrunkList(entries)| trunk_vlans(entries)).transpose()?;
        let of_args = input.mac_of_args()?;
        // Each of them is stronger than the next.
        let macs = [&shape.runtime.mac, &shape.args.cni.mac, &of_args];
        let mac = macs.into_iter().find(|mac| !mac.is_empty());
        let bridge = shape.bridge.clone().unwrap_or_else(|| DEFAULT_BRIDGE.to_owned());
        let no_mac =
            |error: InvalidMac| Failure::invalid_config(format!("failed to make veth pair: {error}"));
        let adding = input.verb == Verb::Add;
        if adding {
            check_combinations(&shape, layer3)?;
            check_bridge_name(&bridge)?;
        }
        Ok(Self {
            bridge,
            gateway: (shape.gateway || shape.default_gateway) && layer3,
            default_gateway: shape.default_gateway,
            force_address: shape.force_address,
            masquerade: (shape.masquerade && layer3)
                .then(|| Backend::of_masquerade(shape.masquerade_backend.as_deref(), adding))
                .transpose()?,
            mtu: u32::try_from(shape.mtu).ok().filter(|mtu| *mtu > 0),
            hairpin: shape.hairpin,
            promisc: shape.promisc,
            vlan: (vlan != 0).then_some(vlan),
            trunk,
            preserve_default_vlan: shape.preserve_default_vlan,
            spoof_check: shape.macspoofchk,
            dad: shape.enabledad,
            leave_down: shape.leave_down,
            isolated: shape.isolated,
            mac: mac.filter(|_| adding).map(|mac| mac.parse()).transpose().map_err(no_mac)?,
        })
    }
}

/// What the kernel says to such a name, said before it is asked.
fn check_bridge_name(name: &str) -> Result<(), Failure> {
    let reason = match IfName::new(name) {
        Ok(_) => return Ok(()),
        Err(_) if name.is_empty() => "LinkAttrs.Name cannot be empty",
        Err(_) if name.len() > IfName::LIMIT => "numerical result out of range",
        Err(_) => "invalid argument",
    };
    let msg = format!("failed to create bridge {name:?}: could not add {name:?}: {reason}");
    Err(Failure::invalid_config(msg))
}

fn check_combinations(shape: &Shape, layer3: bool) -> Result<(), Failure> {
    if layer3 && shape.leave_down {
        let msg = "cannot use IPAM when DisableContainerInterface flag is set";
        return Err(Failure::invalid_config(msg));
    }
    if shape.hairpin && shape.promisc {
        let msg = "cannot set hairpin mode and promiscuous mode at the same time";
        return Err(Failure::invalid_config(msg));
    }
    Ok(())
}

/// The VLANs of a trunk, ascending, each once.
fn trunk_vlans(entries: &[TrunkShape]) -> Result<Vec<u16>, Failure> {
    let mut vlans = Vec::new();
    for entry in entries {
        match (entry.min, entry.max) {
            (None, None) => {}
            (Some(min), Some(max)) => {
                let min = trunk_vlan(min, "incorrect trunk minID parameter")?;
                let max = trunk_vlan(max, "incorrect trunk maxID parameter")?;
                if max < min {
                    return Err(Failure::invalid_config("minID is greater than maxID in trunk parameter"));
                }
                vlans.extend(min..=max);
            }
            (min, _) => {
                let missing = if min.is_none() { "minID" } else { "maxID" };
                let msg =
                    format!("minID and maxID should be configured simultaneously, {missing} is missing");
                return Err(Failure::invalid_config(msg));
            }
        }
        if let Some(id) = entry.id {
            vlans.push(trunk_vlan(id, "incorrect trunk id parameter")?);
        }
    }
    vlans.sort_unstable();
    vlans.dedup();
    Ok(vlans)
}

fn trunk_vlan(id: i64, text: &'static str) -> Result<u16, Failure> {
    let id = u16::try_from(id).ok().filter(|id| (1..=MAX_VLAN).contains(id));
    id.ok_or_else(|| Failure::invalid_config(text))
}

const DEFAULT_BRIDGE: &str = "cni0";
/// 4095 is reserved (IEEE 802.1Q).
const MAX_VLAN: u16 = 4094;

#[cfg(test)]
mod tests;
