// SPDX-License-Identifier: Apache-2.0
//! What must be, computed from configuration, arguments and the IPAM plugin's answer. Pure.

use std::net::IpAddr;

use cnibox_harness::{AddArgs, Request};
use cnibox_netlink::RouteSpec;
use cnibox_spec::{CniResult, IpConfig, subnet};
use cnibox_sys::{Failure, Veth, host_interface, pod_interface};
use ipnetwork::IpNetwork;

use crate::config::Config;

/// One address of the container and its next hop, the host's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The container's address with its subnet's prefix length.
    pub(crate) address: IpNetwork,
    /// The host's address on the pair.
    pub(crate) gateway: IpAddr,
}

/// The addresses with their gateways.
pub(crate) fn peers(ipam: &CniResult) -> Result<Vec<Peer>, Failure> {
    let peer = |IpConfig { address, gateway, .. }: &IpConfig| match *gateway {
        Some(gateway) => Ok(Peer { address: *address, gateway }),
        None => Err(Failure::internal(format!(
            "IPAM plugin returned no gateway for {address}, which the host's end of the pair is to have"
        ))),
    };
    ipam.ips.iter().map(peer).collect()
}

/// The result, host's end first.
pub(crate) fn result(request: &Request<'_, Config, AddArgs>, ipam: CniResult, veth: &Veth) -> CniResult {
    let mut result = ipam;
    result.interfaces = vec![host_interface(&veth.host), pod_interface(&veth.pod, &request.args.netns)];
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(POD_INDEX));
    if let Some(dns) = request.conf.dns() {
        result.dns = dns;
    }
    result
}

impl Peer {
    /// The route that the kernel gives the container with the address: it would look for the subnet on the pair.
    pub(crate) fn connected(&self, oif: u32) -> RouteSpec {
        RouteSpec { oif: Some(oif), ..RouteSpec::new(subnet(self.address)) }
    }

    /// The container's routes: the gateway is on the pair, everything else of the subnet behind it.
    pub(crate) fn pod_routes(&self, oif: u32) -> [RouteSpec; 2] {
        let src = Some(self.address.ip());
        let to_gateway = RouteSpec {
            oif: Some(oif),
            scope: Some(SCOPE_LINK),
            src,
            ..RouteSpec::new(IpNetwork::from(self.gateway))
        };
        let to_subnet =
            RouteSpec { oif: Some(oif), gw: Some(self.gateway), src, ..RouteSpec::new(subnet(self.address)) };
        [to_gateway, to_subnet]
    }

    /// The host's route to the container.
    pub(crate) fn host_route(&self, oif: u32) -> RouteSpec {
        RouteSpec {
            oif: Some(oif),
            scope: Some(SCOPE_HOST),
            ..RouteSpec::new(IpNetwork::from(self.address.ip()))
        }
    }
}

/// The container's place in the result's interfaces, behind the host's end.
const POD_INDEX: i64 = 1;
/// `RT_SCOPE_LINK` of `linux/rtnetlink.h`.
const SCOPE_LINK: u8 = 253;
/// `RT_SCOPE_HOST`.
const SCOPE_HOST: u8 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer { address: "10.1.2.3/24".parse().unwrap(), gateway: "10.1.2.1".parse().unwrap() }
    }

    #[test]
    fn the_subnet_is_behind_the_gateway_and_the_gateway_on_the_pair() {
        let [to_gateway, to_subnet] = peer().pod_routes(7);
        assert_eq!(
            (to_gateway.dst.to_string(), to_gateway.scope, to_gateway.gw),
            ("10.1.2.1/32".into(), Some(253), None)
        );
        assert_eq!((to_subnet.dst.to_string(), to_subnet.gw), ("10.1.2.0/24".into(), Some(peer().gateway)));
        assert_eq!([to_gateway.src, to_subnet.src], [Some(peer().address.ip()); 2]);
        assert_eq!(peer().host_route(7).dst.to_string(), "10.1.2.3/32");
        assert_eq!(peer().connected(7).dst.to_string(), "10.1.2.0/24");
    }

    #[test]
    fn an_address_without_gateway_is_refused() {
        let ip = IpConfig { interface: None, address: peer().address, gateway: None };
        let ipam = CniResult { ips: vec![ip], ..CniResult::default() };
        let msg = peers(&ipam).unwrap_err().to_string();
        assert!(msg.starts_with("IPAM plugin returned no gateway for 10.1.2.3/24,"), "{msg}");
    }
}
