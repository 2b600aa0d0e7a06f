// SPDX-License-Identifier: Apache-2.0
//! Makes a plan true, in the reference's order.

use std::time::{Duration, Instant};

use cnibox_netlink::{
    Addr, BridgePort, Error, Family, Link, LinkChange, Mac, Monitor, Multicast, OperState, VethSpec, Waited,
    unless,
};
use cnibox_netns::sysctl;
use cnibox_spec::{CniResult, Interface};
use cnibox_sys::{Failure, OrSay, Place, Sys, Txn, Undo, Veth, host_interface, random_name};
use ipnetwork::IpNetwork;

use crate::config::Config;
use crate::plan::{self, PortPlan};
use crate::spoof::SpoofCheck;

/// Makes sure of the bridge and answers with it as it is before the new port.
pub(crate) fn bridge(sys: &mut Sys<'_>, config: &Config) -> Result<Link, Failure> {
    let name = config.bridge.as_str();
    let refused = |what: String| format!("failed to create bridge {name:?}: {what}");
    let rtnl = sys.host()?;
    let link = match rtnl.link_by_name_if_present(name)? {
        Some(link) => link,
        None => {
            let mac = plan::keeps_mac(config).then(Mac::random);
            let added = rtnl.link_add_bridge(name, config.mtu, mac, plan::filters_vlans(config));
            unless(added, Error::is_exists)
                .or_say(|error| refused(format!("could not add {name:?}: {error}")))?;
            rtnl.link_by_name(name).or_say(|error| refused(format!("could not lookup {name:?}: {error}")))?
        }
    };
    if !link.is_kind("bridge") {
        return Err(Failure::internal(refused(format!("{name:?} already exists but is not a bridge"))));
    }
    if config.promisc && !link.is_promisc() {
        rtnl.link_set(LinkChange::new(link.index).promisc(true))
            .or_say(|error| refused(format!("could not set promiscuous mode on {name:?}: {error}")))?;
    }
    // "we want to own the routes for this interface"; as in the reference nobody minds a failure.
    if link.ipv6.is_some_and(|conf| conf.accept_ra != 0) {
        let _ = sysctl::write(&sysctl::conf("ipv6", name, "accept_ra"), "0");
    }
    if !link.is_up() {
        sys.host()?.link_set_up(link.index).or_say(|error| refused(error.to_string()))?;
    }
    Ok(link)
}

/// Attaches the pair's host end to the bridge and marks it with `alias`.
pub(crate) fn attach(
    tx: &mut Txn<'_, '_>,
    plan: &PortPlan,
    veth: &Veth,
    bridge: &Link,
    alias: &str,
) -> Result<(), Failure> {
    let change = LinkChange::new(veth.host.index).master(bridge.index).alias(alias);
    tx.shared(|sys| {
        let up = sys.veth_host_up(veth, change);
        up.or_say(|error| {
            format!("failed to connect {:?} to bridge {}: {error}", veth.host.name, bridge.name)
        })
    })?;
    tx.shared(|sys| port(sys, &veth.host, plan))
}

/// Flags and VLANs of a new bridge port. The kernel's own flags are the ones that are off.
fn port(sys: &mut Sys<'_>, link: &Link, plan: &PortPlan) -> Result<(), Failure> {
    let rtnl = sys.host()?;
    if plan.flags != BridgePort::default() {
        rtnl.bridge_port_set(link.index, plan.flags)
            .or_say(|error| format!("failed to setup hairpin mode for {}: {error}", link.name))?;
    }
    if plan.leave_default_vlan {
        let refused =
            |error: &Error| format!("failed to remove default vlan on interface {:?}: {error}", link.name);
        for vlan in rtnl.bridge_vlans(link.index).or_say(refused)? {
            rtnl.bridge_vlan_del(link.index, vlan).or_say(refused)?;
        }
    }
    for vlan in &plan.vlans {
        rtnl.bridge_vlan_add(link.index, *vlan)
            .or_say(|error| format!("failed to setup vlan tag on interface {:?}: {error}", link.name))?;
    }
    Ok(())
}

/// Lets nothing but the container's own MAC in by its port.
pub(crate) fn spoof_check(tx: &mut Txn<'_, '_>, check: &SpoofCheck, veth: &Veth) -> Result<(), Failure> {
    let mac = veth.pod.mac.ok_or_else(|| {
        Failure::internal(format!(
            "failed to setup spoof-check: interface {:?} has no MAC address",
            veth.pod.name
        ))
    })?;
    // The rules say nothing of their network: GC goes by the note.
    tx.note(vec![SpoofCheck::NOTE.to_owned()])?;
    tx.step(Undo::Rules(check.remove()), |sys| {
        let installed = sys.engine()?.apply(&check.install(&veth.host.name, mac));
        installed.or_say(|error| format!("failed to setup spoof-check: {error}"))
    })
}

/// Addresses, routes and up state inside the container.
pub(crate) fn pod(sys: &mut Sys<'_>, config: &Config, result: &CniResult, pod: &Link) -> Result<(), Failure> {
    let ifname = &pod.name;
    let dad = if config.dad { "1" } else { "0" };
    sys.inside(Place::Pod, || {
        // As in the reference nobody minds a failure here: IPv6 may be missing altogether.
        if config.dad {
            let _ = sysctl::write(&sysctl::conf("ipv6", ifname, "enhanced_dad"), "1");
        }
        let _ = sysctl::write(&sysctl::conf("ipv6", ifname, "accept_dad"), dad);
    })?;
    let _ = sys.rtnl(Place::Pod)?.link_set(LinkChange::new(pod.index).arp_notify());
    sys.interface_configure(pod, result)
}

/// Gateway addresses on the bridge, or on its VLAN's gateway interface, which is then answered.
pub(crate) fn gateways(
    sys: &mut Sys<'_>,
    config: &Config,
    gateways: &[IpNetwork],
    bridge: &Link,
) -> Result<Option<Interface>, Failure> {
    if gateways.is_empty() {
        return Ok(None);
    }
    let (device, what) = match config.vlan {
        None => (bridge.clone(), "failed to set bridge addr"),
        Some(vlan) => {
            let device = vlan_gateway(sys, bridge, vlan, config)?;
            (device, "failed to set vlan interface for bridge with addr")
        }
    };
    for gateway in gateways {
        address(sys, &device, *gateway, config.force_address, what)?;
    }
    sys.forwarding_enable(gateways).or_say(|error| format!("failed to enable forwarding: {error}"))?;
    Ok(config.vlan.map(|_| host_interface(&device)))
}

/// The interface with a VLAN's gateway addresses: the free end of a pair whose other end is in the bridge.
fn vlan_gateway(sys: &mut Sys<'_>, bridge: &Link, vlan: u16, config: &Config) -> Result<Link, Failure> {
    let name = format!("{}.{vlan}", bridge.name);
    let refused = |error: &Error| {
        format!("failed to create vlan interface: failed to create vlan gateway {name:?}: {error}")
    };
    let rtnl = sys.host()?;
    if let Some(link) = rtnl.link_by_name_if_present(&name).or_say(refused)? {
        return Ok(link);
    }
    let peer = random_name();
    let spec = VethSpec { name: &name, mac: None, peer_name: &peer, peer_netns: None, mtu: Some(bridge.mtu) };
    match rtnl.link_add_veth(&spec) {
        // Another ADD of the same network was faster.
        Err(error) if error.is_exists() => return rtnl.link_by_name(&name).or_say(refused),
        made => made.or_say(refused)?,
    }
    let peer = rtnl.link_by_name(&peer).or_say(refused)?;
    rtnl.link_set(LinkChange::new(peer.index).up().master(bridge.index)).or_say(refused)?;
    let _ = sysctl::write(&sysctl::conf("ipv6", &peer.name, "accept_ra"), "0");
    port(sys, &peer, &plan::gateway_port(vlan, config))?;
    let rtnl = sys.host()?;
    let link = rtnl.link_by_name(&name).or_say(refused)?;
    rtnl.link_set_up(link.index).or_say(refused)?;
    Ok(link)
}

/// Makes sure of a gateway address. A new one pins the device's MAC: otherwise a bridge that others made takes the lowest
/// of its ports', and the containers' neighbour entries break whenever ports come and go.
fn address(
    sys: &mut Sys<'_>,
    device: &Link,
    wanted: IpNetwork,
    force: bool,
    what: &'static str,
) -> Result<(), Failure> {
    let (rtnl, name) = (sys.host()?, &device.name);
    let listed = rtnl.addrs(device.index, Some(Family::of(wanted.ip())));
    for present in listed.or_say(|error| format!("{what}: could not get list of IP addresses: {error}"))? {
        if present.net == wanted {
            return Ok(());
        }
        if !plan::conflicts(present.net, wanted) {
            continue;
        }
        if !force {
            return Err(Failure::internal(format!(
                "{what}: {name:?} already has an IP address different from {wanted}"
            )));
        }
        unless(rtnl.addr_del(device.index, present.net), Error::is_addr_not_found)
            .or_say(|error| format!("{what}: could not remove IP address from {name:?}: {error}"))?;
    }
    match rtnl.addr_add(&Addr::new(device.index, wanted)) {
        // Another ADD of the same network was faster, and pins what it has seen.
        Err(error) if error.is_exists() => return Ok(()),
        added => {
            added.or_say(|error| format!("{what}: could not add IP address {wanted} to {name:?}: {error}"))?
        }
    }
    let mac = match device.mac.filter(|mac| *mac != UNSET) {
        Some(mac) => Some(mac),
        // A bridge that has lost all its ports has none until the next one comes.
        None => rtnl.link_by_index(device.index)?.mac,
    };
    if let Some(mac) = mac {
        rtnl.link_set(LinkChange::new(device.index).mac(mac))
            .or_say(|error| format!("{what}: could not set bridge's mac: {error}"))?;
    }
    Ok(())
}

/// Brings up the container's interface of an attachment without addresses.
pub(crate) fn pod_up(sys: &mut Sys<'_>, veth: &Veth) -> Result<(), Failure> {
    let up = sys.rtnl(Place::Pod)?.link_set_up(veth.pod.index);
    up.or_say(|error| format!("failed to set {:?} up: {error}", veth.pod.name))
}

/// Waits until the bridge port carries packets. The look before the subscription is the usual case: the kernel has
/// already seen the carrier.
pub(crate) fn port_up(sys: &mut Sys<'_>, port: &Link) -> Result<Link, Failure> {
    let rtnl = sys.host()?;
    let is_up = |link: &Link| link.operstate == OperState::Up;
    let link = rtnl.link_by_index(port.index)?;
    if is_up(&link) {
        return Ok(link);
    }
    match Monitor::of(Multicast::Link)?.wait_link(rtnl, port.index, Instant::now() + PORT_TIMEOUT, is_up)? {
        Waited::Reached(link) => Ok(link),
        Waited::TimedOut(link) => {
            Err(Failure::internal(format!("bridge port in error state: {}", link.operstate)))
        }
    }
}

/// What a bridge without ports has.
const UNSET: Mac = Mac([0; 6]);
/// The sum of the reference's pauses.
const PORT_TIMEOUT: Duration = Duration::from_millis(2550);
