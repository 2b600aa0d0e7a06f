// SPDX-License-Identifier: Apache-2.0
//! The shape of 0.1.0 and 0.2.0: at most one address per family, routes below their family.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::lists::is_v4;
use crate::ip::{cidr, net_addr};
use crate::{CniResult, CniVersion, Dns, IpConfig, Route};

/// `Result` of `pkg/types/020`.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename = "Result", default)]
pub(super) struct Result {
    #[serde(rename = "cniVersion")]
    cni_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<Family>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<Family>,
    dns: Dns,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "ipConfig")]
struct Family {
    #[serde(with = "cidr")]
    ip: IpNetwork,
    #[serde(default, deserialize_with = "net_addr", skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<PlainRoute>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "route")]
struct PlainRoute {
    #[serde(with = "cidr")]
    dst: IpNetwork,
    #[serde(default, deserialize_with = "net_addr", skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
}

impl Result {
    /// Keeps the first address of each family and the routes of a family that has one.
    pub(super) fn new(version: CniVersion, result: &CniResult) -> Self {
        let family = |v4: bool| {
            let ip = result.ips.iter().find(|ip| is_v4(&ip.address) == v4)?;
            let routes = result.routes.iter().filter(|route| is_v4(&route.dst) == v4);
            Some(Family {
                ip: ip.address,
                gateway: ip.gateway,
                routes: routes.map(|route| PlainRoute { dst: route.dst, gw: route.gw }).collect(),
            })
        };
        let (ip4, ip6) = (family(true), family(false));
        Self { cni_version: version.as_str().to_owned(), ip4, ip6, dns: result.dns.clone() }
    }
}

impl From<Result> for CniResult {
    fn from(from: Result) -> Self {
        let mut result = Self { dns: from.dns, ..Self::default() };
        for Family { ip, gateway, routes } in [from.ip4, from.ip6].into_iter().flatten() {
            result.ips.push(IpConfig { interface: None, address: ip, gateway });
            result.routes.extend(routes.into_iter().map(|route| Route::new(route.dst, route.gw)));
        }
        result
    }
}
