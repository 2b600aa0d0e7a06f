// SPDX-License-Identifier: Apache-2.0
//! Makes a plan true, in the reference's order.

use cnibox_netlink::{AddrSpec, Error, Link, LinkChange};
use cnibox_netns::sysctl;
use cnibox_sys::{Coded, Failure, Mark, Place, Stage, Sys, Txn, Veth, VethPlan};
use ipnetwork::IpNetwork;
use thiserror::Error;

use crate::plan::Peer;

/// What the kernel refused.
#[derive(Debug, Error)]
enum ApplyError {
    #[error("Could not enable IP forwarding: {0}")]
    Forwarding(#[from] sysctl::Error),
    #[error("failed to make veth pair: failed to set {0:?} up: {1}")]
    HostUp(String, #[source] Error),
    #[error("failed to delete route {0}: {1}")]
    DeleteRoute(IpNetwork, #[source] Error),
    #[error("failed to add route {0}: {1}")]
    AddRoute(IpNetwork, #[source] Error),
    #[error("failed to add IP addr ({0}) to veth: {1}")]
    HostAddress(IpNetwork, #[source] Error),
    #[error("failed to add route on host: {0}")]
    HostRoute(#[source] Error),
}

impl Coded for ApplyError {}

/// Lets the host forward packets of the addresses' families.
pub(crate) fn forwarding(sys: &mut Sys<'_>, addresses: &[IpNetwork]) -> Result<(), Failure> {
    Ok(sys.forwarding_enable(addresses).map_err(ApplyError::Forwarding)?)
}

/// Makes the pair, marks the host's end and brings it up.
pub(crate) fn veth(tx: &mut Txn<'_, '_>, plan: &VethPlan, mark: &Mark) -> Result<Veth, Failure> {
    let veth = tx.veth_add(plan)?;
    let change = LinkChange::new(veth.host.index).alias(&mark.alias(Stage::Ready));
    tx.shared(|sys| {
        let refused = |source| ApplyError::HostUp(veth.host.name.clone(), source);
        sys.veth_host_up(&veth, change).map_err(|error| Failure::from(refused(error)))
    })?;
    Ok(veth)
}

/// Leads the container's packets to the gateway, also those to its own subnet.
pub(crate) fn pod_routes(sys: &mut Sys<'_>, pod: &Link, peers: &[Peer]) -> Result<(), Failure> {
    let rtnl = sys.rtnl(Place::Pod)?;
    for peer in peers {
        let connected = peer.connected(pod.index);
        match rtnl.route_del(&connected) {
            // A subnet of one address has none.
            Err(error) if !error.is_not_found() => {
                return Err(ApplyError::DeleteRoute(connected.dst, error).into());
            }
            _ => {}
        }
        for route in peer.pod_routes(pod.index) {
            rtnl.route_add_exclusive(&route).map_err(|error| ApplyError::AddRoute(route.dst, error))?;
        }
    }
    Ok(())
}

/// Gives the host's end the gateway addresses and the routes to the container.
pub(crate) fn host_end(sys: &mut Sys<'_>, host: &Link, peers: &[Peer]) -> Result<(), Failure> {
    let rtnl = sys.host()?;
    for peer in peers {
        let gateway = IpNetwork::from(peer.gateway);
        let refused = |error| ApplyError::HostAddress(gateway, error);
        rtnl.addr_add(host.index, &AddrSpec::new(gateway)).map_err(refused)?;
        match rtnl.route_add_exclusive(&peer.host_route(host.index)) {
            Err(error) if !error.is_exists() => return Err(ApplyError::HostRoute(error).into()),
            _ => {}
        }
    }
    Ok(())
}
