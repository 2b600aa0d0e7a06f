// SPDX-License-Identifier: Apache-2.0
//! CHECK and STATUS: the same plan as ADD's, compared with what is there (texts: `plugins/main/bridge/bridge.go`).

use cnibox_harness::{CheckArgs, Request};
use cnibox_netlink::{BridgeVlan, Link};
use cnibox_spec::{CniResult, Code, Interface, Verb};
use cnibox_sys::{Failure, Place, Sys, own_addresses};
use ipnetwork::IpNetwork;

use crate::config::{Config, ConfigError};
use crate::plan::{self, BridgePlan, Layer2};
use crate::spoof::SpoofCheck;

pub(crate) fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let CheckArgs { attachment, netns } = &request.args;
    let ifname = &attachment.ifname;
    sys.open_pod_named(netns)?;
    // Without IPAM plugin there is nobody to ask; the reference asks nevertheless, and fails.
    sys.ipam_forward(Verb::Check, request.conf.ipam())?;
    let result = request.conf.prev_result()?.ok_or(ConfigError::NoPrevResult)?;
    let layer2 = plan::layer2(&request.config);
    let bridge = check_bridge(sys, &layer2.bridge, listed(&result, &request.config.bridge, ""))?;
    let pod = check_pod(sys, request, listed(&result, ifname.as_str(), netns.as_str()), &layer2)?;
    let port = check_port(sys, request, &result, &bridge, &pod)?;
    check_port_settings(sys, &port, &layer2)?;
    check_rules(sys, request, &layer2)?;
    let own = own_addresses(result, ifname.as_str(), netns.as_str());
    check_layer3(sys, request, &own, &bridge)?;
    sys.check_layer3(&pod, &own)
}

/// The interface of that name and place in prevResult; the last one counts, as in the reference.
fn listed<'a>(result: &'a CniResult, name: &str, sandbox: &str) -> Option<&'a Interface> {
    let named = result.interfaces.iter().rev().filter(|interface| interface.name == name);
    named.into_iter().find(|interface| sandbox.is_empty() || interface.sandbox == sandbox)
}

fn link(sys: &mut Sys<'_>, place: Place, name: &str) -> Result<Link, Failure> {
    if name.is_empty() {
        return Err(Failure::internal("Interface name missing "));
    }
    let found = sys.rtnl(place)?.link_by_name_if_present(name)?;
    found.ok_or_else(|| Failure::internal(format!("Interface name {name} not found")))
}

fn check_bridge(sys: &mut Sys<'_>, plan: &BridgePlan, listed: Option<&Interface>) -> Result<Link, Failure> {
    let listed = listed.ok_or_else(|| Failure::internal("Interface name missing "))?;
    let Interface { name, mac, .. } = listed;
    let bridge = link(sys, Place::Host, &listed.name)?;
    if !listed.sandbox.is_empty() {
        return Err(Failure::internal(format!("Interface {} should not be in sandbox", listed.name)));
    }
    if !bridge.is_kind("bridge") {
        return Err(Failure::internal(format!(
            "Interface {} does not have link type of bridge",
            listed.name
        )));
    }
    // Any other takes its ports', which come and go.
    if plan.fixed_mac && !listed.mac.is_empty() && listed.mac != bridge.mac_text() {
        return Err(Failure::internal(format!("Bridge interface {name} Mac doesn't match: {mac}")));
    }
    let (wanted, found) = (plan.promisc, bridge.promiscuity != 0);
    if wanted != found {
        return Err(Failure::internal(format!(
            "Bridge interface {name} configured Promisc Mode {wanted} doesn't match current state: {found} "
        )));
    }
    if !bridge.is_up() {
        return Err(Failure::internal(format!("interface {} is down", bridge.name)));
    }
    Ok(bridge)
}

fn check_pod(
    sys: &mut Sys<'_>,
    request: &Request<'_, Config, CheckArgs>,
    listed: Option<&Interface>,
    layer2: &Layer2,
) -> Result<Link, Failure> {
    let wanted = request.args.netns.as_str();
    let missing =
        || Failure::internal(format!("Sandbox in prevResult  doesn't match configured netns: {wanted}"));
    let listed = listed.ok_or_else(missing)?;
    let pod = link(sys, Place::Pod, &listed.name)?;
    if !pod.is_kind("veth") {
        return Err(Failure::internal(format!("Error: Container interface {} not of type veth", pod.name)));
    }
    if !listed.mac.is_empty() && listed.mac != pod.mac_text() {
        let Interface { name, mac, .. } = listed;
        return Err(Failure::internal(format!(
            "Interface {name} Mac {mac} doesn't match container Mac: {}",
            pod.mac_text()
        )));
    }
    if layer2.up && !pod.is_up() {
        return Err(Failure::internal(format!("interface {} is down", pod.name)));
    }
    Ok(pod)
}

/// The host end: the listed veth that is the container's peer and in the bridge.
fn check_port(
    sys: &mut Sys<'_>,
    request: &Request<'_, Config, CheckArgs>,
    result: &CniResult,
    bridge: &Link,
    pod: &Link,
) -> Result<Link, Failure> {
    let others = result.interfaces.iter().filter(|interface| {
        interface.name != bridge.name && interface.name != pod.name && interface.sandbox.is_empty()
    });
    for listed in others {
        let port = link(sys, Place::Host, &listed.name)?;
        let is_peer = pod.peer_index == Some(port.index) && port.peer_index == Some(pod.index);
        if !port.is_kind("veth") || !is_peer || port.master != Some(bridge.index) {
            continue;
        }
        if !listed.mac.is_empty() && listed.mac != port.mac_text() {
            return Err(Failure::internal(format!(
                "Interface {} Mac doesn't match: {} not found",
                listed.name, listed.mac
            )));
        }
        return Ok(port);
    }
    Err(Failure::internal(format!("CNI veth created for bridge {} was not found", request.config.bridge)))
}

fn check_port_settings(sys: &mut Sys<'_>, port: &Link, layer2: &Layer2) -> Result<(), Failure> {
    let drift =
        |what: String| Failure::internal(format!("bridge port {} is not as configured: {what}", port.name));
    let wanted = layer2.port.flags;
    if let Some(found) = port.bridge_port.filter(|found| *found != wanted) {
        return Err(drift(format!("{found:?}, configured {wanted:?}")));
    }
    if layer2.port.vlans.is_empty() {
        return Ok(());
    }
    let vlans = sys.host()?.bridge_vlans(port.index)?;
    let absent = |wanted: &&BridgeVlan| !vlans.iter().any(|found| found.id == wanted.id);
    match layer2.port.vlans.iter().find(absent) {
        Some(missing) => Err(drift(format!("not in VLAN {}", missing.id))),
        None => Ok(()),
    }
}

fn check_rules(
    sys: &mut Sys<'_>,
    request: &Request<'_, Config, CheckArgs>,
    layer2: &Layer2,
) -> Result<(), Failure> {
    let attachment = &request.args.attachment;
    let spoof = SpoofCheck::of(attachment);
    if layer2.spoof_check && !spoof.is_installed(sys)? {
        return Err(Failure::internal(format!(
            "spoof check of {} not found in table bridge nat",
            attachment.ifname
        )));
    }
    Ok(())
}

/// Gateway addresses and masquerade.
fn check_layer3(
    sys: &mut Sys<'_>,
    request: &Request<'_, Config, CheckArgs>,
    own: &CniResult,
    bridge: &Link,
) -> Result<(), Failure> {
    if request.conf.ipam().is_none() || own.ips.is_empty() {
        return Ok(());
    }
    let layer3 = plan::layer3(&request.config, own.clone());
    let device = match layer3.gateway_vlan {
        Some(vlan) if !layer3.gateways.is_empty() => {
            link(sys, Place::Host, &format!("{}.{vlan}", bridge.name))?
        }
        _ => bridge.clone(),
    };
    if !layer3.gateways.is_empty() {
        let present = sys.host()?.addrs(device.index, None)?;
        let absent = |gateway: &IpNetwork| !present.iter().any(|addr| addr.net == *gateway);
        if let Some(address) = layer3.lasting_gateways().find(absent) {
            return Err(Failure::internal(format!("gateway address {address} not found on {}", device.name)));
        }
    }
    match layer3.masquerade {
        Some(choice) => sys.check_masquerade(&request.args.attachment, choice, &own.ips),
        None => Ok(()),
    }
}

/// Whether ADD could work.
pub(crate) fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    sys.require_kind("veth")?;
    sys.require_kind("bridge")?;
    let name = &request.config.bridge;
    let found = sys.host()?.link_by_name_if_present(name)?;
    if found.is_some_and(|link| !link.is_kind("bridge")) {
        let text = format!("{name:?} already exists but is not a bridge");
        return Err(Failure::new(Code::PLUGIN_NOT_AVAILABLE, text));
    }
    if let Some(choice) = request.config.masquerade {
        sys.require_masquerade(choice)?;
    }
    sys.ipam_forward(Verb::Status, request.conf.ipam())
}
