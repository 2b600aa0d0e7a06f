// SPDX-License-Identifier: Apache-2.0
//! Makes a plan true, in the reference's order.

use std::time::{Duration, Instant};

use cnibox_netlink::{
    AddrSpec, BridgePort, Error, Family, Link, LinkChange, Mac, Monitor, Multicast, OperState, VethSpec,
    Waited,
};
use cnibox_netns::sysctl;
use cnibox_spec::Interface;
use cnibox_sys::{Coded, Failure, Place, Sys, Txn, Undo, Veth, host_interface, random_name};
use ipnetwork::IpNetwork;
use thiserror::Error;

use crate::plan::{self, BridgePlan, Layer2, Layer3, PortPlan};
use crate::spoof::SpoofCheck;

/// What the kernel refused.
#[derive(Debug, Error)]
pub(crate) enum ApplyError {
    #[error("failed to create bridge {0:?}: could not add {0:?}: {1}")]
    AddBridge(String, #[source] Error),
    #[error("failed to create bridge {0:?}: could not set promiscuous mode on {0:?}: {1}")]
    Promisc(String, #[source] Error),
    #[error("failed to create bridge {0:?}: could not lookup {0:?}: {1}")]
    LookupBridge(String, #[source] Error),
    #[error("failed to create bridge {0:?}: {0:?} already exists but is not a bridge")]
    NotABridge(String),
    #[error("failed to create bridge {0:?}: {1}")]
    BridgeUp(String, #[source] Error),
    #[error("failed to connect {veth:?} to bridge {bridge}: {source}")]
    Attach { veth: String, bridge: String, source: Error },
    #[error("failed to setup hairpin mode for {0}: {1}")]
    PortFlags(String, #[source] Error),
    #[error("failed to remove default vlan on interface {0:?}: {1}")]
    DefaultVlan(String, #[source] Error),
    #[error("failed to setup vlan tag on interface {0:?}: {1}")]
    Vlan(String, #[source] Error),
    #[error("failed to setup spoof-check: {0}")]
    SpoofCheck(#[source] cnibox_netfilter::Error),
    #[error("failed to setup spoof-check: interface {0:?} has no MAC address")]
    NoMac(String),
    #[error("failed to create vlan interface: failed to create vlan gateway {0:?}: {1}")]
    VlanGateway(String, #[source] Error),
    #[error("{0}: could not get list of IP addresses: {1}")]
    ListAddresses(&'static str, #[source] Error),
    #[error("{what}: {device:?} already has an IP address different from {address}")]
    Conflict { what: &'static str, device: String, address: IpNetwork },
    #[error("{what}: could not remove IP address from {device:?}: {source}")]
    RemoveAddress { what: &'static str, device: String, source: Error },
    #[error("{what}: could not add IP address {address} to {device:?}: {source}")]
    AddAddress { what: &'static str, device: String, address: IpNetwork, source: Error },
    #[error("{0}: could not set bridge's mac: {1}")]
    PinMac(&'static str, #[source] Error),
    #[error("failed to enable forwarding: {0}")]
    Forwarding(#[source] sysctl::Error),
    #[error("failed to set {0:?} up: {1}")]
    PodUp(String, #[source] Error),
    #[error("bridge port in error state: {0}")]
    PortState(OperState),
}

impl Coded for ApplyError {}

/// Makes sure of the bridge and answers with it as it is before the new port.
pub(crate) fn bridge(sys: &mut Sys<'_>, plan: &BridgePlan) -> Result<Link, Failure> {
    let name = plan.name.as_str();
    let own = || name.to_owned();
    let rtnl = sys.host()?;
    let found = rtnl.link_by_name_if_present(name)?;
    if found.is_none() {
        let filtering = plan.vlan_filtering.then_some(true);
        match rtnl.link_add_bridge(name, plan.mtu, plan.fixed_mac.then(Mac::random), filtering) {
            Err(error) if !error.is_exists() => return Err(ApplyError::AddBridge(own(), error).into()),
            _ => {}
        }
    }
    let link = match found {
        Some(link) => link,
        None => rtnl.link_by_name(name).map_err(|error| ApplyError::LookupBridge(own(), error))?,
    };
    if !link.is_kind("bridge") {
        return Err(ApplyError::NotABridge(own()).into());
    }
    if plan.promisc && !link.is_promisc() {
        rtnl.link_set(LinkChange::new(link.index).promisc(true))
            .map_err(|error| ApplyError::Promisc(own(), error))?;
    }
    // "we want to own the routes for this interface"; as in the reference nobody minds a failure.
    if link.ipv6.is_some_and(|conf| conf.accept_ra != 0) {
        let _ = sysctl::write(&sysctl::conf("ipv6", name, "accept_ra"), "0");
    }
    if !link.is_up() {
        sys.host()?.link_set_up(link.index).map_err(|error| ApplyError::BridgeUp(own(), error))?;
    }
    Ok(link)
}

/// Attaches the pair's host end to the bridge and marks it with `alias`.
pub(crate) fn attach(
    tx: &mut Txn<'_, '_>,
    plan: &Layer2,
    veth: &Veth,
    bridge: &Link,
    alias: &str,
) -> Result<(), Failure> {
    let change = LinkChange::new(veth.host.index).master(bridge.index).alias(alias);
    tx.shared(|sys| {
        let refused =
            |source| ApplyError::Attach { veth: veth.host.name.clone(), bridge: bridge.name.clone(), source };
        sys.veth_host_up(veth, change).map_err(|error| Failure::from(refused(error)))
    })?;
    tx.shared(|sys| port(sys, &veth.host, &plan.port))
}

/// Flags and VLANs of a new bridge port. The kernel's own flags are the ones that are off.
fn port(sys: &mut Sys<'_>, link: &Link, plan: &PortPlan) -> Result<(), Failure> {
    let rtnl = sys.host()?;
    if plan.flags != BridgePort::default() {
        rtnl.bridge_port_set(link.index, plan.flags)
            .map_err(|error| ApplyError::PortFlags(link.name.clone(), error))?;
    }
    if plan.leave_default_vlan {
        let refused = |error| ApplyError::DefaultVlan(link.name.clone(), error);
        for vlan in rtnl.bridge_vlans(link.index).map_err(refused)? {
            rtnl.bridge_vlan_del(link.index, vlan).map_err(refused)?;
        }
    }
    for vlan in &plan.vlans {
        rtnl.bridge_vlan_add(link.index, *vlan)
            .map_err(|error| ApplyError::Vlan(link.name.clone(), error))?;
    }
    Ok(())
}

/// Lets nothing but the container's own MAC in by its port.
pub(crate) fn spoof_check(tx: &mut Txn<'_, '_>, check: &SpoofCheck, veth: &Veth) -> Result<(), Failure> {
    let mac = veth.pod.mac.ok_or_else(|| ApplyError::NoMac(veth.pod.name.clone()))?;
    // The rules say nothing of their network: GC goes by the note.
    tx.note(vec![SpoofCheck::NOTE.to_owned()])?;
    tx.step(Undo::Rules(check.remove()), |sys| {
        sys.engine()?
            .apply(&check.install(&veth.host.name, mac))
            .map_err(|error| Failure::from(ApplyError::SpoofCheck(error)))
    })
}

/// Addresses, routes and up state inside the container.
pub(crate) fn pod(sys: &mut Sys<'_>, plan: &Layer3, index: u32) -> Result<(), Failure> {
    let ifname = plan.interface.ifname.as_str();
    let dad = if plan.dad { "1" } else { "0" };
    sys.inside(Place::Pod, || {
        // As in the reference nobody minds a failure here: IPv6 may be missing altogether.
        if plan.dad {
            let _ = sysctl::write(&sysctl::conf("ipv6", ifname, "enhanced_dad"), "1");
        }
        let _ = sysctl::write(&sysctl::conf("ipv6", ifname, "accept_dad"), dad);
    })?;
    let _ = sys.rtnl(Place::Pod)?.link_set(LinkChange::new(index).arp_notify());
    sys.interface_configure(index, &plan.interface)
}

/// Gateway addresses on the bridge, or on its VLAN's gateway interface, which is then answered.
pub(crate) fn gateways(
    sys: &mut Sys<'_>,
    plan: &Layer3,
    bridge: &Link,
) -> Result<Option<Interface>, Failure> {
    if plan.gateways.is_empty() {
        return Ok(None);
    }
    let (device, what) = match plan.gateway_vlan {
        None => (bridge.clone(), "failed to set bridge addr"),
        Some(vlan) => {
            let device = vlan_gateway(sys, bridge, vlan, plan.preserve_default_vlan)?;
            (device, "failed to set vlan interface for bridge with addr")
        }
    };
    for gateway in &plan.gateways {
        address(sys, &device, *gateway, plan.force_address, what)?;
    }
    sys.forwarding_enable(&plan.gateways).map_err(ApplyError::Forwarding)?;
    Ok(plan.gateway_vlan.map(|_| host_interface(&device)))
}

/// The interface with a VLAN's gateway addresses: the free end of a pair whose other end is in the bridge.
fn vlan_gateway(
    sys: &mut Sys<'_>,
    bridge: &Link,
    vlan: u16,
    preserve_default_vlan: bool,
) -> Result<Link, Failure> {
    let name = format!("{}.{vlan}", bridge.name);
    let refused = |error| ApplyError::VlanGateway(name.clone(), error);
    let rtnl = sys.host()?;
    if let Some(link) = rtnl.link_by_name_if_present(&name).map_err(refused)? {
        return Ok(link);
    }
    let peer = random_name();
    let spec = VethSpec { name: &name, mac: None, peer_name: &peer, peer_netns: None, mtu: Some(bridge.mtu) };
    match rtnl.link_add_veth(&spec) {
        // Another ADD of the same network was faster.
        Err(error) if error.is_exists() => return Ok(rtnl.link_by_name(&name).map_err(refused)?),
        made => made.map_err(refused)?,
    }
    let peer = rtnl.link_by_name(&peer).map_err(refused)?;
    rtnl.link_set(LinkChange::new(peer.index).up().master(bridge.index)).map_err(refused)?;
    let _ = sysctl::write(&sysctl::conf("ipv6", &peer.name, "accept_ra"), "0");
    port(sys, &peer, &plan::gateway_port(vlan, preserve_default_vlan))?;
    let rtnl = sys.host()?;
    let link = rtnl.link_by_name(&name).map_err(refused)?;
    rtnl.link_set_up(link.index).map_err(refused)?;
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
    let rtnl = sys.host()?;
    let listed = rtnl.addrs(device.index, Some(Family::of(wanted.ip())));
    for present in listed.map_err(|error| ApplyError::ListAddresses(what, error))? {
        if present.net == wanted {
            return Ok(());
        }
        if !plan::conflicts(present.net, wanted) {
            continue;
        }
        if !force {
            return Err(ApplyError::Conflict { what, device: device.name.clone(), address: wanted }.into());
        }
        match rtnl.addr_del(device.index, present.net) {
            Err(source) if !source.is_addr_not_found() => {
                return Err(ApplyError::RemoveAddress { what, device: device.name.clone(), source }.into());
            }
            _ => {}
        }
    }
    match rtnl.addr_add(device.index, &AddrSpec::new(wanted)) {
        // Another ADD of the same network was faster, and pins what it has seen.
        Err(error) if error.is_exists() => return Ok(()),
        Err(source) => {
            return Err(ApplyError::AddAddress {
                what,
                device: device.name.clone(),
                address: wanted,
                source,
            }
            .into());
        }
        Ok(()) => {}
    }
    let mac = match device.mac.filter(|mac| *mac != UNSET) {
        Some(mac) => Some(mac),
        // A bridge that has lost all its ports has none until the next one comes.
        None => rtnl.link_by_index(device.index)?.mac,
    };
    if let Some(mac) = mac {
        rtnl.link_set(LinkChange::new(device.index).mac(mac))
            .map_err(|error| ApplyError::PinMac(what, error))?;
    }
    Ok(())
}

/// Brings up the container's interface of an attachment without addresses.
pub(crate) fn pod_up(sys: &mut Sys<'_>, veth: &Veth) -> Result<(), Failure> {
    let up = sys.rtnl(Place::Pod)?.link_set_up(veth.pod.index);
    Ok(up.map_err(|error| ApplyError::PodUp(veth.pod.name.clone(), error))?)
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
        Waited::TimedOut(link) => Err(ApplyError::PortState(link.operstate).into()),
    }
}

/// What a bridge without ports has.
const UNSET: Mac = Mac([0; 6]);
/// The sum of the reference's pauses.
const PORT_TIMEOUT: Duration = Duration::from_millis(2550);
