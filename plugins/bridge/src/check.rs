// SPDX-License-Identifier: Apache-2.0
//! CHECK and STATUS: the same plan as ADD's, compared with what is there (texts: `plugins/main/bridge/bridge.go`).

use cnibox_harness::{CheckArgs, Request};
use cnibox_netlink::{BridgeVlan, Link};
use cnibox_spec::{CniResult, Code, Interface, Verb};
use cnibox_sys::{CheckWording, Failure, Place, Sys, own_addresses};
use ipnetwork::IpNetwork;

use crate::config::Config;
use crate::plan::{self, PortPlan};
use crate::spoof::SpoofCheck;

pub(crate) fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { conf, config, args: CheckArgs { attachment, netns } } = request;
    let ifname = &attachment.ifname;
    sys.open_pod_named(netns)?;
    // Without IPAM plugin there is nobody to ask; the reference asks nevertheless, and fails.
    sys.ipam_forward(Verb::Check, conf.ipam())?;
    let result = conf.required_prev_result()?;
    let bridge = check_bridge(sys, config, listed(&result, &config.bridge, ""))?;
    let pod = check_pod(sys, request, listed(&result, ifname.as_str(), netns.as_str()))?;
    let port = check_port(sys, request, &result, &bridge, &pod)?;
    check_port_settings(sys, &port, &plan::port(config))?;
    if config.spoof_check && !SpoofCheck::of(attachment).is_installed(sys)? {
        return Err(Failure::internal(format!("spoof check of {ifname} not found in table bridge nat")));
    }
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

fn check_bridge(sys: &mut Sys<'_>, config: &Config, listed: Option<&Interface>) -> Result<Link, Failure> {
    let listed = listed.ok_or_else(|| Failure::internal("Interface name missing "))?;
    let Interface { name, mac, .. } = listed;
    let bridge = link(sys, Place::Host, name)?;
    if !listed.sandbox.is_empty() {
        return Err(Failure::internal(format!("Interface {name} should not be in sandbox")));
    }
    if !bridge.is_kind("bridge") {
        return Err(Failure::internal(format!("Interface {name} does not have link type of bridge")));
    }
    // Any other takes its ports', which come and go.
    if plan::keeps_mac(config) && !mac.is_empty() && *mac != bridge.mac_text() {
        return Err(Failure::internal(format!("Bridge interface {name} Mac doesn't match: {mac}")));
    }
    let (wanted, found) = (config.promisc, bridge.promiscuity != 0);
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
) -> Result<Link, Failure> {
    let wanted = request.args.netns.as_str();
    let missing =
        || Failure::internal(format!("Sandbox in prevResult  doesn't match configured netns: {wanted}"));
    let listed = listed.ok_or_else(missing)?;
    let pod = link(sys, Place::Pod, &listed.name)?;
    CheckWording::of_kind("veth", "veth").compare(listed, &pod)?;
    if !request.config.leave_down && !pod.is_up() {
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

fn check_port_settings(sys: &mut Sys<'_>, port: &Link, plan: &PortPlan) -> Result<(), Failure> {
    let drift =
        |what: String| Failure::internal(format!("bridge port {} is not as configured: {what}", port.name));
    let wanted = plan.flags;
    if let Some(found) = port.bridge_port.filter(|found| *found != wanted) {
        return Err(drift(format!("{found:?}, configured {wanted:?}")));
    }
    if plan.vlans.is_empty() {
        return Ok(());
    }
    let vlans = sys.host()?.bridge_vlans(port.index)?;
    let absent = |wanted: &&BridgeVlan| !vlans.iter().any(|found| found.id == wanted.id);
    match plan.vlans.iter().find(absent) {
        Some(missing) => Err(drift(format!("not in VLAN {}", missing.id))),
        None => Ok(()),
    }
}

/// Gateway addresses and masquerade.
fn check_layer3(
    sys: &mut Sys<'_>,
    request: &Request<'_, Config, CheckArgs>,
    own: &CniResult,
    bridge: &Link,
) -> Result<(), Failure> {
    let Request { conf, config, args } = request;
    if conf.ipam().is_none() || own.ips.is_empty() {
        return Ok(());
    }
    let gateways = plan::gateways(config, &plan::completed(config, own.clone()));
    let device = match config.vlan {
        Some(vlan) if !gateways.is_empty() => link(sys, Place::Host, &format!("{}.{vlan}", bridge.name))?,
        _ => bridge.clone(),
    };
    if !gateways.is_empty() {
        let present = sys.host()?.addrs(device.index, None)?;
        let absent = |gateway: &IpNetwork| !present.iter().any(|addr| addr.net == *gateway);
        if let Some(address) = plan::lasting(&gateways).find(absent) {
            return Err(Failure::internal(format!("gateway address {address} not found on {}", device.name)));
        }
    }
    match config.masquerade {
        Some(choice) => sys.check_masquerade(&args.attachment, choice, &own.ips),
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
