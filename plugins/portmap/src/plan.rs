// SPDX-License-Identifier: Apache-2.0
//! What must be there for one attachment, as data.

use std::net::{IpAddr, Ipv4Addr};

use cnibox_netfilter::conntrack::Flow;
use cnibox_netfilter::xt::Protocol;
use cnibox_netfilter::{Batch, Family};
use cnibox_sys::Backend;

use crate::config::{Config, Mapping, container_addresses};
use crate::owner::Owner;
use crate::{iptables, nftables};

/// The port mappings of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    /// Whose they are.
    pub(crate) owner: Owner,
    /// The rules, IPv4 first; no family without an address of the container.
    pub(crate) rules: Rules,
    /// The IPv4 address to which packets with a source in 127.0.0.0/8 must find their way.
    pub(crate) localnet: Option<IpAddr>,
    /// Connection tracking entries that would win over the rules.
    pub(crate) flows: Vec<Flow>,
}

/// The rules of either backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// In iptables' tables.
    Iptables(Vec<iptables::Layout>),
    /// In native tables.
    Nftables(Vec<nftables::Layout>),
}

impl Desired {
    /// The mappings of `config` to the container's addresses on `ifname`.
    pub(crate) fn new(config: &Config, backend: Backend, owner: Owner, ifname: &str) -> Self {
        let addresses =
            config.prev_result.as_ref().map(|result| container_addresses(result, ifname)).unwrap_or_default();
        let rules = match backend {
            Backend::Iptables => Rules::Iptables(
                addresses.iter().map(|address| iptables::Layout::new(config, &owner, *address)).collect(),
            ),
            Backend::Nftables => Rules::Nftables(
                addresses.iter().map(|address| nftables::Layout::new(config, &owner, *address)).collect(),
            ),
        };
        let families: Vec<_> = addresses.iter().map(|address| Family::of(address.ip())).collect();
        let localnet = addresses.iter().map(ipnetwork::IpNetwork::ip).find(|ip| ip.is_ipv4() && config.snat);
        Self { owner, rules, localnet, flows: udp_flows(&config.mappings, &families) }
    }

    /// The backend whose rules they are.
    pub(crate) const fn backend(&self) -> Backend {
        match self.rules {
            Rules::Iptables(_) => Backend::Iptables,
            Rules::Nftables(_) => Backend::Nftables,
        }
    }

    /// The changes that install the rules.
    pub(crate) fn install(&self) -> Batch {
        let mut batch = Batch::new();
        match &self.rules {
            Rules::Iptables(layouts) => layouts.iter().for_each(|layout| layout.install(&mut batch)),
            Rules::Nftables(layouts) => layouts.iter().for_each(|layout| layout.install(&mut batch)),
        }
        batch
    }
}

/// Rules in iptables' form like those of any container, to ask the kernel about.
pub(crate) fn sample(config: &Config) -> Batch {
    let mapping = Mapping {
        host_port: 1,
        container_port: 1,
        protocol: Protocol::Tcp,
        protocol_text: Protocol::Tcp.name().to_owned(),
        host_ip: None,
    };
    let config = Config { mappings: vec![mapping], ..config.clone() };
    let owner = Owner { network: String::new(), container: String::new() };
    let mut batch = Batch::new();
    iptables::Layout::new(&config, &owner, IpAddr::V4(Ipv4Addr::LOCALHOST).into()).install(&mut batch);
    batch
}

/// Known UDP flows keep going where they went, whatever the rules say now.
pub(crate) fn udp_flows(mappings: &[Mapping], families: &[Family]) -> Vec<Flow> {
    let flow = |mapping: &Mapping, family: Family| Flow {
        family,
        protocol: Protocol::Udp,
        port: mapping.host_port,
        address: mapping.destination(),
        answered_by: None,
    };
    let udp = mappings.iter().filter(|mapping| mapping.protocol == Protocol::Udp);
    udp.flat_map(|mapping| {
        families
            .iter()
            .filter(|family| mapping.applies_to(**family))
            .map(move |family| flow(mapping, *family))
    })
    .collect()
}
