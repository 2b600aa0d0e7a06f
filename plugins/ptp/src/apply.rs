// SPDX-License-Identifier: Apache-2.0
//! Makes a plan true, in the reference's order.

use cnibox_netlink::{Addr, Error, Link, LinkChange, unless};
use cnibox_spec::Attachment;
use cnibox_sys::{Failure, Mark, OrSay, Place, Stage, Sys, Txn, Veth};
use ipnetwork::IpNetwork;

use crate::plan::Peer;

/// Lets the host forward packets of the addresses' families.
pub(crate) fn forwarding(sys: &mut Sys<'_>, addresses: &[IpNetwork]) -> Result<(), Failure> {
    sys.forwarding_enable(addresses).or_say(|error| format!("Could not enable IP forwarding: {error}"))
}

/// Makes the pair, marks the host's end and brings it up.
pub(crate) fn veth(tx: &mut Txn<'_, '_>, attachment: &Attachment, mtu: Option<u32>) -> Result<Veth, Failure> {
    let veth = tx.veth_add(&attachment.ifname, mtu, None)?;
    let change = LinkChange::new(veth.host.index).alias(&Mark::of(attachment).alias(Stage::Ready));
    tx.shared(|sys| {
        sys.veth_host_up(&veth, change).or_say(|error| {
            format!("failed to make veth pair: failed to set {:?} up: {error}", veth.host.name)
        })
    })?;
    Ok(veth)
}

/// Leads the container's packets to the gateway, also those to its own subnet.
pub(crate) fn pod_routes(sys: &mut Sys<'_>, pod: &Link, peers: &[Peer]) -> Result<(), Failure> {
    let rtnl = sys.rtnl(Place::Pod)?;
    for peer in peers {
        let connected = peer.connected(pod.index);
        // A subnet of one address has none.
        unless(rtnl.route_del(&connected), Error::is_not_found)
            .or_say(|error| format!("failed to delete route {}: {error}", connected.dst))?;
        for route in peer.pod_routes(pod.index) {
            rtnl.route_add_exclusive(&route)
                .or_say(|error| format!("failed to add route {}: {error}", route.dst))?;
        }
    }
    Ok(())
}

/// Gives the host's end the gateway addresses and the routes to the container.
pub(crate) fn host_end(sys: &mut Sys<'_>, host: &Link, peers: &[Peer]) -> Result<(), Failure> {
    let rtnl = sys.host()?;
    for peer in peers {
        let gateway = IpNetwork::from(peer.gateway);
        let refused = |error: &Error| format!("failed to add IP addr ({gateway}) to veth: {error}");
        rtnl.addr_add(&Addr::new(host.index, gateway)).or_say(refused)?;
        let added = rtnl.route_add_exclusive(&peer.host_route(host.index));
        unless(added, Error::is_exists).or_say(|error| format!("failed to add route on host: {error}"))?;
    }
    Ok(())
}
