// SPDX-License-Identifier: Apache-2.0
//! The configuration: its serde shape, and the checked form that plans are made from.
//!
//! Texts are the reference's. Beyond the reference, ports above 65535, protocols without ports and text that is no
//! address are refused here, before anything is changed; DEL lets them pass, since it must clean up behind any ADD.

use std::net::IpAddr;

use cnibox_harness::Input;
use cnibox_netfilter::Family;
use cnibox_netfilter::xt::{Protocol, is_chain_name};
use cnibox_spec::{CniResult, Code, Interface, IpConfig, Verb, list, parse_ip, quoted};
use cnibox_sys::{Backend, Coded, Failure};
use ipnetwork::IpNetwork;
use serde::Deserialize;
use thiserror::Error;

/// What marks packets that need masquerading (iptables backend only).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marking {
    /// Chains of our own, with this single bit.
    Bit(u32),
    /// A chain that somebody else maintains (`externalSetMarkChain`).
    Chain(String),
}

/// One entry of `runtimeConfig.portMappings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Port on the host.
    pub(crate) host_port: u16,
    /// Port in the container.
    pub(crate) container_port: u16,
    /// Protocol.
    pub(crate) protocol: Protocol,
    /// `protocol` as written: entry rules are grouped by it.
    pub(crate) protocol_text: String,
    /// `hostIP`; one that is unspecified limits the mapping to its family and nothing else.
    pub(crate) host_ip: Option<IpAddr>,
}

impl Mapping {
    /// Whether the mapping is for addresses of `family`.
    pub(crate) fn applies_to(&self, family: Family) -> bool {
        self.host_ip.is_none_or(|ip| Family::of(ip) == family)
    }

    /// The host address that packets must have been sent to.
    pub(crate) fn destination(&self) -> Option<IpAddr> {
        self.host_ip.filter(|ip| !ip.is_unspecified())
    }
}

/// The checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `backend`; `None` leaves the choice to the host.
    pub(crate) backend: Option<Backend>,
    /// Whether packets that could not find back otherwise are masqueraded.
    pub(crate) snat: bool,
    /// Whether all packets are masqueraded.
    pub(crate) masq_all: bool,
    /// How packets to be masqueraded are marked.
    pub(crate) marking: Marking,
    /// Extra match words for IPv4.
    pub(crate) conditions_v4: Vec<String>,
    /// Extra match words for IPv6.
    pub(crate) conditions_v6: Vec<String>,
    /// The ports.
    pub(crate) mappings: Vec<Mapping>,
    /// What earlier plugins made; absent for DEL.
    pub(crate) prev_result: Option<CniResult>,
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("Cannot specify externalSetMarkChain and markMasqBit")]
    MarkTwice,
    #[error("MasqMarkBit must be between 0 and 31")]
    MarkBit,
    #[error("invalid externalSetMarkChain {}", quoted(.0))]
    MarkChain(String),
    #[error("unrecognized backend {}", quoted(.0))]
    UnknownBackend(String),
    #[error("{asked} backend was requested but configuration contains {}-specific options {}", .of.name(), list(.options))]
    ForeignOptions { asked: String, of: Backend, options: Vec<&'static str> },
    #[error("Invalid container port number: {0}")]
    ContainerPort(i64),
    #[error("Invalid host port number: {0}")]
    HostPort(i64),
    #[error("invalid protocol {} for port mapping: must be tcp, udp or sctp", quoted(.0))]
    Protocol(String),
    #[error("invalid hostIP {} for port mapping", quoted(.0))]
    HostIp(String),
    /// Conditions that could leave their rule.
    #[error("invalid condition {}", quoted(.0))]
    Condition(String),
    #[error("must be called as chained plugin")]
    NotChained,
    #[error("Required prevResult missing")]
    NoPrevResult,
}

impl Coded for ConfigError {
    const CODE: Code = Code::INVALID_CONFIG;
}

#[derive(Default, Deserialize)]
#[serde(rename = "PortMapConf", default)]
struct Shape {
    backend: Option<String>,
    snat: Option<bool>,
    #[serde(rename = "conditionsV4")]
    conditions_v4: Vec<String>,
    #[serde(rename = "conditionsV6")]
    conditions_v6: Vec<String>,
    #[serde(rename = "masqAll")]
    masq_all: bool,
    #[serde(rename = "markMasqBit")]
    mark_masq_bit: Option<i64>,
    #[serde(rename = "runtimeConfig")]
    runtime_config: RuntimeShape,
    #[serde(rename = "externalSetMarkChain")]
    external_set_mark_chain: Option<String>,
}

/// A structure without a name in Go.
#[derive(Default, Deserialize)]
#[serde(rename = "struct { PortMaps []main.PortMapEntry \"json:\\\"portMappings,omitempty\\\"\" }", default)]
struct RuntimeShape {
    #[serde(rename = "portMappings")]
    port_mappings: Entries,
}

#[derive(Default, Deserialize)]
#[serde(rename = "[]main.PortMapEntry")]
struct Entries(Vec<EntryShape>);

#[derive(Clone, Default, Deserialize)]
#[serde(rename = "main.PortMapEntry", default)]
struct EntryShape {
    #[serde(rename = "hostPort")]
    host_port: i64,
    #[serde(rename = "containerPort")]
    container_port: i64,
    protocol: String,
    #[serde(rename = "hostIP")]
    host_ip: String,
}

impl Config {
    /// Decodes and checks the configuration for one verb, in the reference's order.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to parse network configuration")?;
        // For DEL it tells whose rules are the attachment's.
        let prev_result = input.prev_result()?;
        let lenient = !matches!(input.verb, Verb::Add | Verb::Check);
        Ok(shape.check(prev_result, lenient)?)
    }

    /// Refuses what `backend` cannot do. With an explicit backend this has been asked before.
    pub(crate) fn fits(&self, backend: Backend) -> Result<(), ConfigError> {
        let chain = matches!(self.marking, Marking::Chain(_));
        refuse_foreign(chain, [&self.conditions_v4, &self.conditions_v6], backend.name())?;
        let refused = self.mappings.iter().find(|mapping| !has_ports(mapping.protocol, backend));
        refused.map_or(Ok(()), |mapping| Err(ConfigError::Protocol(mapping.protocol_text.clone())))
    }

    /// The words for one family.
    pub(crate) fn conditions(&self, family: Family) -> &[String] {
        match family {
            Family::Ipv4 => &self.conditions_v4,
            Family::Ipv6 => &self.conditions_v6,
        }
    }
}

impl Shape {
    fn check(self, prev_result: Option<CniResult>, lenient: bool) -> Result<Config, ConfigError> {
        let chain = self.external_set_mark_chain.is_some();
        let snat = self.snat.unwrap_or(true);
        let marks = snat && !lenient && !self.runtime_config.port_mappings.0.is_empty();
        let marking = marking(self.mark_masq_bit, self.external_set_mark_chain, marks)?;
        let backend = match &self.backend {
            None => None,
            Some(name) => {
                refuse_foreign(chain, [&self.conditions_v4, &self.conditions_v6], name)?;
                Some(known_backend(name)?)
            }
        };
        let mappings = mappings(&self.runtime_config.port_mappings.0, lenient)?;
        // Nothing is written with them any more, and DEL must work where ADD was refused.
        if !lenient {
            for words in [&self.conditions_v4, &self.conditions_v6] {
                refuse_escapes(words)?;
            }
        }
        let config = Config {
            backend,
            snat,
            masq_all: self.masq_all,
            marking,
            conditions_v4: self.conditions_v4,
            conditions_v6: self.conditions_v6,
            mappings,
            prev_result,
        };
        if let (Some(backend), false) = (backend, lenient) {
            config.fits(backend)?;
        }
        Ok(config)
    }
}

/// A chain's name that is none is refused where it `marks` packets, and forgotten elsewhere.
fn marking(bit: Option<i64>, chain: Option<String>, marks: bool) -> Result<Marking, ConfigError> {
    match (bit, chain) {
        (Some(_), Some(_)) => Err(ConfigError::MarkTwice),
        (None, Some(chain)) if is_chain_name(&chain) => Ok(Marking::Chain(chain)),
        (None, Some(chain)) if marks => Err(ConfigError::MarkChain(chain)),
        (None, Some(_)) => Ok(Marking::Chain(String::new())),
        (bit, None) => match u32::try_from(bit.unwrap_or(DEFAULT_MARK_BIT)) {
            Ok(bit) if bit < 32 => Ok(Marking::Bit(1 << bit)),
            Ok(_) | Err(_) => Err(ConfigError::MarkBit),
        },
    }
}

fn known_backend(name: &str) -> Result<Backend, ConfigError> {
    Backend::named(name).ok_or_else(|| ConfigError::UnknownBackend(name.to_owned()))
}

/// The reference takes every name but `iptables` for nftables here; what is unknown is refused afterwards.
fn refuse_foreign(chain: bool, conditions: [&Vec<String>; 2], asked: &str) -> Result<(), ConfigError> {
    let of = known_backend(asked).map_or(Backend::Iptables, Backend::other);
    let [v4, v6] = conditions.map(|words| conditions_backend(words));
    let present = [
        ("externalSetMarkChain", chain.then_some(Backend::Iptables)),
        ("conditionsV4", v4),
        ("conditionsV6", v6),
    ];
    let options: Vec<_> =
        present.into_iter().filter(|(_, backend)| *backend == Some(of)).map(|(name, _)| name).collect();
    if options.is_empty() {
        return Ok(());
    }
    Err(ConfigError::ForeignOptions { asked: asked.to_owned(), of, options })
}

/// Which backend's language conditions are in: no nft condition begins like an option of iptables.
fn conditions_backend(words: &[String]) -> Option<Backend> {
    let first = words.first().filter(|word| !word.is_empty())?;
    Some(if first.starts_with(['-', '!']) { Backend::Iptables } else { Backend::Nftables })
}

fn mappings(entries: &[EntryShape], lenient: bool) -> Result<Vec<Mapping>, ConfigError> {
    for entry in entries {
        if entry.container_port <= 0 {
            return Err(ConfigError::ContainerPort(entry.container_port));
        }
        if entry.host_port <= 0 {
            return Err(ConfigError::HostPort(entry.host_port));
        }
    }
    let checked = entries.iter().map(mapping);
    if lenient { Ok(checked.flatten().collect()) } else { checked.collect() }
}

fn mapping(entry: &EntryShape) -> Result<Mapping, ConfigError> {
    let container_port = u16::try_from(entry.container_port);
    let host_port = u16::try_from(entry.host_port);
    let host_ip = match entry.host_ip.as_str() {
        "" => None,
        text => Some(parse_ip(text).map_err(|_| ConfigError::HostIp(text.to_owned()))?),
    };
    Ok(Mapping {
        container_port: container_port.map_err(|_| ConfigError::ContainerPort(entry.container_port))?,
        host_port: host_port.map_err(|_| ConfigError::HostPort(entry.host_port))?,
        protocol: protocol(&entry.protocol)?,
        protocol_text: entry.protocol.clone(),
        host_ip,
    })
}

/// A name in any case or a number, as the iptables tool takes them.
fn protocol(text: &str) -> Result<Protocol, ConfigError> {
    let with_ports = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp, Protocol::Dccp, Protocol::UdpLite];
    let names = |protocol: &Protocol| {
        protocol.name().eq_ignore_ascii_case(text) || protocol.number().to_string() == text
    };
    with_ports.into_iter().find(names).ok_or_else(|| ConfigError::Protocol(text.to_owned()))
}

/// iptables has no `--dport` for udplite.
fn has_ports(protocol: Protocol, backend: Backend) -> bool {
    protocol != Protocol::UdpLite || backend == Backend::Nftables
}

/// Words must not end the line of a rule file; those of nft, which are not quoted, not the statement either.
fn refuse_escapes(words: &[String]) -> Result<(), ConfigError> {
    let native = conditions_backend(words) != Some(Backend::Iptables);
    let escapes = |c: char| c.is_control() || (native && matches!(c, ';' | '#'));
    let refused = words.iter().find(|word| word.chars().any(escapes));
    refused.map_or(Ok(()), |word| Err(ConfigError::Condition(word.clone())))
}

/// The container's first address of each family: on `CNI_IFNAME` inside a sandbox, or on no interface in particular.
pub(crate) fn container_addresses(result: &CniResult, ifname: &str) -> Vec<IpNetwork> {
    let is_ours = |interface: &Interface| interface.name == ifname && !interface.sandbox.is_empty();
    let usable = |ip: &&IpConfig| result.interface_of(ip).is_none_or(is_ours);
    let first = |v4: bool| {
        result.ips.iter().filter(usable).map(|ip| ip.address).find(|address| address.is_ipv4() == v4)
    };
    [first(true), first(false)].into_iter().flatten().collect()
}

/// Kubernetes uses bits 14 and 15, Calico 20 to 31 (reference: `DefaultMarkBit`).
const DEFAULT_MARK_BIT: i64 = 13;

#[cfg(test)]
mod tests;
