// SPDX-License-Identifier: Apache-2.0
//! The `bridge` plugin: a veth pair between a container and a bridge on the host, with addresses, gateways,
//! masquerade, VLANs and protection against forged MACs as configured.
//!
//! Bridge, gateway addresses and forwarding are shared by all containers and stay. The pair and its rules belong to
//! one attachment; an ADD that fails takes them back.

mod apply;
mod check;
mod config;
mod detach;
mod memo;
mod plan;
mod spoof;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request};
use cnibox_netlink::Link;
use cnibox_spec::{CniResult, Interface, NetnsPath};
use cnibox_sys::{Failure, ListLink, Masquerade, Owner, Stage, Sys, Txn, Veth, ensure_printable};

pub use config::Config;
use memo::Notebook;
use plan::{Layer2, Layer3};
use spoof::SpoofCheck;

/// The plugin.
pub struct Bridge;

impl Plugin for Bridge {
    const NAME: &'static str = "bridge";
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        add(request, sys)
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        detach::del(request, sys)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        check::check(request, sys)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        check::status(request, sys)
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        detach::gc(request, sys)
    }
}

fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
    let AddArgs { container, netns, ifname } = &request.args;
    let owner = Owner::new(&request.conf.network, container, ifname);
    let layer2 = plan::layer2(&request.config, ifname);
    sys.open_pod_named(netns)?;
    detach::clear_unfinished(request, sys, &owner)?;
    let notebook = Notebook::open(&request.conf.network, container, ifname);
    let result = attach(request, sys, &layer2, &owner, &notebook);
    match &result {
        Ok(_) => notebook.finish(layer2.spoof_check),
        Err(_) => notebook.restore(),
    }
    result
}

/// The attachment, all of it or nothing.
fn attach(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
    layer2: &Layer2,
    owner: &Owner,
    notebook: &Notebook,
) -> Result<CniResult, Failure> {
    let AddArgs { container, netns, ifname } = &request.args;
    Txn::run(sys, |tx| {
        let bridge = tx.shared(|sys| apply::bridge(sys, &layer2.bridge))?;
        let veth = apply::veth(tx, layer2, notebook)?;
        let stage = notebook.stage();
        apply::attach(tx, layer2, &veth, &bridge, &owner.alias(stage))?;
        if layer2.spoof_check {
            apply::spoof_check(tx, &SpoofCheck::new(container.as_str(), ifname.as_str()), &veth)?;
        }
        let mut result = CniResult::default();
        let mut vlan_interface = None;
        if let Some(plugin) = &request.config.ipam {
            let layer3 = address(tx, request, plugin, &veth.pod)?;
            vlan_interface = layer3_host(tx, request, &layer3, &bridge)?;
            result = layer3.result;
        } else {
            if layer2.up {
                tx.shared(|sys| apply::pod_up(sys, &veth))?;
            }
            result.dns = request.config.dns.clone().unwrap_or_default();
        }
        let port =
            if layer2.up { tx.shared(|sys| apply::port_up(sys, &veth.host))? } else { veth.host.clone() };
        let bridge = tx.shared(|sys| sys.host()?.link_by_index(bridge.index).map_err(Failure::from))?;
        result.interfaces = interfaces(&bridge, &port, &veth, netns);
        result.interfaces.extend(vlan_interface);
        ensure_printable(request.conf.version, &result)?;
        if stage != Stage::Ready {
            let ready = owner.alias(Stage::Ready);
            tx.shared(|sys| Ok::<_, Failure>(sys.host()?.link_set_alias(port.index, &ready)?))?;
        }
        Ok(result)
    })
}

/// Gets addresses from the IPAM plugin and gives them to the container.
fn address(
    tx: &mut Txn<'_, '_>,
    request: &Request<'_, Config, AddArgs>,
    plugin: &str,
    pod: &Link,
) -> Result<Layer3, Failure> {
    let ipam = tx.ipam_add(plugin, &request.conf.version_text)?;
    let layer3 = plan::layer3(&request.config, &request.args.ifname, ipam)?;
    tx.shared(|sys| apply::pod(sys, &layer3, pod.index))?;
    Ok(layer3)
}

/// The host's side of the addresses: gateways and masquerade.
fn layer3_host(
    tx: &mut Txn<'_, '_>,
    request: &Request<'_, Config, AddArgs>,
    layer3: &Layer3,
    bridge: &Link,
) -> Result<Option<Interface>, Failure> {
    let vlan_interface = tx.shared(|sys| apply::gateways(sys, layer3, bridge))?;
    if let Some(choice) = layer3.masquerade {
        let AddArgs { container, ifname, .. } = &request.args;
        let addresses: Vec<_> = layer3.result.ips.iter().map(|ip| ip.address).collect();
        let masquerade = Masquerade::new(&request.conf.network, container, ifname);
        tx.masquerade_add(&masquerade, choice, &addresses)?;
    }
    Ok(vlan_interface)
}

/// Bridge, host end, container end: others count on this order.
fn interfaces(bridge: &Link, port: &Link, veth: &Veth, netns: &NetnsPath) -> Vec<Interface> {
    vec![Interface::on_host(bridge), Interface::on_host(port), Interface::in_pod(&veth.pod, netns)]
}
