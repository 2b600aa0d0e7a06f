// SPDX-License-Identifier: Apache-2.0
//! The shapes of 0.3.0 and later: lists of interfaces, addresses and routes.
//!
//! Both are read into the result that plugins work with, since unknown keys are ignored. Before 1.0 they are printed in the
//! reference's field order, from 1.0 on alphabetically (the reference takes a trip through a map there).

use ipnetwork::IpNetwork;
use serde::Serialize;

use super::pretty;
use crate::{CniResult, CniVersion, Dns, Interface, IpConfig, Route};

/// `Result` of `pkg/types/040` and `pkg/types/100`, as printed.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<PrintedIp<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    routes: &'a [Route],
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<&'a Dns>,
}

#[derive(Serialize)]
struct PrintedIp<'a> {
    /// The address's family, `4` or `6`, of which only the versions before 1.0 speak.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    #[serde(flatten)]
    ip: &'a IpConfig,
}

/// Prints a result for 0.3.0 or a later version.
pub(super) fn print(version: CniVersion, result: &CniResult) -> String {
    let family = |ip: &IpConfig| if is_v4(&ip.address) { "4" } else { "6" };
    let is_modern = version >= CniVersion::V1_0_0;
    let mut printed = Printed {
        cni_version: version.as_str(),
        interfaces: result.interfaces.clone(),
        ips: result
            .ips
            .iter()
            .map(|ip| PrintedIp { version: (!is_modern).then(|| family(ip)), ip })
            .collect(),
        routes: &result.routes,
        dns: (!is_modern || !result.dns.is_empty()).then_some(&result.dns),
    };
    if is_modern {
        // A map of `serde_json` is sorted, as long as nobody asks for its feature `preserve_order`.
        return pretty(&serde_json::to_value(&printed).unwrap_or_default());
    }
    for interface in &mut printed.interfaces {
        let Interface { name, mac, sandbox, .. } = std::mem::take(interface);
        *interface = Interface { name, mac, sandbox, ..Interface::default() };
    }
    pretty(&printed)
}

/// Whether Go's `To4` would say so: an IPv4 address, also an IPv4-mapped one.
pub(super) fn is_v4(network: &IpNetwork) -> bool {
    network.ip().to_canonical().is_ipv4()
}
