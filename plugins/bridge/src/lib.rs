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
mod plan;
mod spoof;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netlink::Link;
use cnibox_spec::{CniResult, Interface, check_expressible};
use cnibox_sys::{Failure, Mark, Masquerade, Stage, Sys, Txn, Veth, host_interface, pod_interface};

pub use config::Config;
use spoof::SpoofCheck;

/// The plugin.
pub struct Bridge;

impl Plugin for Bridge {
    const NAME: &'static str = "bridge";
    const ROLE: Role = Role::Interface;
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

/// The attachment, all of it or nothing.
fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
    let Request { config, args: AddArgs { attachment, netns }, .. } = request;
    sys.open_pod_named(netns)?;
    Txn::run(sys, |tx| {
        let bridge = tx.shared(|sys| apply::bridge(sys, config))?;
        let veth = tx.veth_add(&attachment.ifname, config.mtu, config.mac)?;
        let alias = Mark::of(attachment).alias(Stage::Ready);
        let attach = |tx: &mut Txn<'_, '_>| apply::attach(tx, &plan::port(config), &veth, &bridge, &alias);
        let ipam = request.conf.ipam();
        // Else it is attached while the masquerade, which takes longest, is written.
        let is_attached_first = ipam.is_none_or(|plugin| tx.sys().asks_network(plugin));
        if is_attached_first {
            attach(tx)?;
        }
        // Before the spoof check, whose names another attachment has, too, that lives in another namespace: an IPAM plugin
        // that knows of it refuses this one.
        let ipam = ipam.map(|plugin| tx.ipam_add(plugin, &request.conf.version_text)).transpose()?;
        if config.spoof_check {
            apply::spoof_check(tx, &SpoofCheck::of(attachment), &veth)?;
        }
        let (result, port, vlan_interface) = match ipam {
            Some(ipam) => {
                let result = plan::completed(config, ipam);
                let addresses: Vec<_> = result.ips.iter().map(|ip| ip.address).collect();
                let masquerade = Masquerade::of(attachment);
                let (port, vlan_interface) =
                    tx.masquerade_add_beside(&masquerade, config.masquerade, &addresses, |tx| {
                        if !is_attached_first {
                            attach(tx)?;
                        }
                        configure(tx, config, &result, &veth, &bridge)
                    })?;
                (result, port, vlan_interface)
            }
            None => {
                let port = if config.leave_down { veth.host.clone() } else { bring_up(tx, &veth)? };
                (CniResult::default(), port, None)
            }
        };
        let bridge = tx.shared(|sys| sys.host()?.link_by_index(bridge.index).map_err(Failure::from))?;
        // Others count on this order.
        let mut interfaces =
            vec![host_interface(&bridge), host_interface(&port), pod_interface(&veth.pod, netns)];
        interfaces.extend(vlan_interface);
        let mut result = CniResult { interfaces, ..result };
        if let Some(dns) = request.conf.dns() {
            result.dns = dns;
        }
        check_expressible(request.conf.version, &result)?;
        Ok(result)
    })
}

/// Gives the container its addresses, and the host its gateways. Answers with the host's end and the VLAN's gateway
/// interface.
fn configure(
    tx: &mut Txn<'_, '_>,
    config: &Config,
    result: &CniResult,
    veth: &Veth,
    bridge: &Link,
) -> Result<(Link, Option<Interface>), Failure> {
    tx.shared(|sys| apply::pod(sys, config, result, &veth.pod))?;
    let gateways = plan::gateways(config, result);
    let vlan_interface = tx.shared(|sys| apply::gateways(sys, config, &gateways, bridge))?;
    let port = tx.shared(|sys| apply::port_up(sys, &veth.host))?;
    let ips = &result.ips;
    if !ips.is_empty() {
        let has_ipv6 = ips.iter().any(|ip| ip.address.is_ipv6());
        tx.shared(|sys| sys.announce_again(&veth.pod, has_ipv6))?;
    }
    Ok((port, vlan_interface))
}

/// Brings up an attachment without addresses; answers with the host's end.
fn bring_up(tx: &mut Txn<'_, '_>, veth: &Veth) -> Result<Link, Failure> {
    tx.shared(|sys| apply::pod_up(sys, veth))?;
    tx.shared(|sys| apply::port_up(sys, &veth.host))
}
