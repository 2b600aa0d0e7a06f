// SPDX-License-Identifier: Apache-2.0
//! The configuration: its serde shape and the checked form. Texts are the reference's.

use std::net::IpAddr;

use cnibox_harness::Input;
use cnibox_netfilter::xt::is_chain_name;
use cnibox_spec::{CniResult, Code, Verb, quoted};
use cnibox_sys::{Coded, Env, Failure};
use serde::Deserialize;
use thiserror::Error;

use crate::firewalld;

/// Who may connect to the container (`ingressPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IngressPolicy {
    /// Everybody.
    Open,
    /// Only others on the same bridge.
    SameBridge,
    /// Nobody who comes through a bridge.
    Isolated,
}

impl IngressPolicy {
    /// The value of `ingressPolicy`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::SameBridge => "same-bridge",
            Self::Isolated => "isolated",
        }
    }

    fn parse(name: &str) -> Result<Self, ConfigError> {
        match name {
            "" | "open" => Ok(Self::Open),
            "same-bridge" => Ok(Self::SameBridge),
            "isolated" => Ok(Self::Isolated),
            _ => Err(ConfigError::IngressPolicy(name.to_owned())),
        }
    }
}

/// What keeps the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The `filter` tables of iptables.
    Iptables,
    /// The firewalld daemon.
    Firewalld,
    /// Native tables; the reference has no such backend.
    Nftables,
}

impl Backend {
    /// Every name but those of the backends leaves the choice to the host, as in the reference.
    fn parse(name: &str) -> Option<Self> {
        match name {
            "iptables" => Some(Self::Iptables),
            "firewalld" => Some(Self::Firewalld),
            "nftables" => Some(Self::Nftables),
            _ => None,
        }
    }

    /// The backend to use: the one asked for, else firewalld where it runs at this moment.
    pub(crate) fn choose(asked: Option<Self>, env: &Env) -> Self {
        match asked {
            Some(backend) => backend,
            None if firewalld::require_running(env).is_ok() => Self::Firewalld,
            None => Self::Iptables,
        }
    }

    /// Whether the addresses go into a zone of firewalld: beside native rules, too, where it runs, since no accept of
    /// another chain keeps its own from dropping.
    pub(crate) fn uses_firewalld(self, env: &Env) -> bool {
        match self {
            Self::Firewalld => true,
            Self::Nftables => firewalld::require_running(env).is_ok(),
            Self::Iptables => false,
        }
    }
}

/// The checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `backend`; `None` leaves the choice to the host.
    pub(crate) backend: Option<Backend>,
    /// `iptablesAdminChainName`.
    pub(crate) admin_chain: String,
    /// `firewalldZone`.
    pub(crate) zone: String,
    /// `ingressPolicy`.
    pub(crate) policy: IngressPolicy,
    /// What earlier plugins made.
    pub(crate) prev_result: Option<CniResult>,
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("unknown ingress policy: {}", quoted(.0))]
    IngressPolicy(String),
    #[error("invalid iptablesAdminChainName {}", quoted(.0))]
    AdminChain(String),
    #[error("missing prevResult from earlier plugin")]
    NoPrevResult,
    #[error("interface needs to be set for ingress policy {:?}, make sure to chain \"firewall\" plugin with \"bridge\"", .0.name())]
    NoInterface(IngressPolicy),
    #[error("got empty bridge name")]
    NoBridgeName,
    #[error("invalid bridge name {}", quoted(.0))]
    BridgeName(String),
}

impl Coded for ConfigError {
    const CODE: Code = Code::INVALID_CONFIG;
}

#[derive(Default, Deserialize)]
#[serde(rename = "FirewallNetConf", default)]
struct Shape {
    backend: String,
    #[serde(rename = "iptablesAdminChainName")]
    iptables_admin_chain_name: String,
    #[serde(rename = "firewalldZone")]
    firewalld_zone: String,
    #[serde(rename = "ingressPolicy")]
    ingress_policy: String,
}

impl Config {
    /// Decodes and checks the configuration for one verb.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to load netconf")?;
        Ok(shape.check(input.prev_result()?, input.verb)?)
    }

    /// All addresses of prevResult, whatever interface they are on.
    pub(crate) fn host_addresses(&self) -> Vec<IpAddr> {
        self.prev_result.iter().flat_map(|result| &result.ips).map(|ip| ip.address.ip()).collect()
    }
}

impl Shape {
    fn check(self, prev_result: Option<CniResult>, verb: Verb) -> Result<Config, ConfigError> {
        let admin_chain = match self.iptables_admin_chain_name.as_str() {
            "" => DEFAULT_ADMIN_CHAIN.to_owned(),
            name if is_chain_name(name) => name.to_owned(),
            // Nothing can have been added to such a chain.
            _ if matches!(verb, Verb::Del | Verb::Gc) => DEFAULT_ADMIN_CHAIN.to_owned(),
            name => return Err(ConfigError::AdminChain(name.to_owned())),
        };
        let zone = if self.firewalld_zone.is_empty() { DEFAULT_ZONE.to_owned() } else { self.firewalld_zone };
        let policy = match IngressPolicy::parse(&self.ingress_policy) {
            // CHECK does not look at the policy's rules.
            Err(_) if verb == Verb::Check => IngressPolicy::Open,
            policy => policy?,
        };
        let backend = Backend::parse(&self.backend);
        Ok(Config { backend, admin_chain, zone, policy, prev_result })
    }
}

const DEFAULT_ADMIN_CHAIN: &str = "CNI-ADMIN";
const DEFAULT_ZONE: &str = "trusted";

#[cfg(test)]
mod tests {
    use cnibox_spec::{Json, decode};

    use super::*;

    fn load(text: &str) -> Result<Config, Failure> {
        Ok(decode::<Shape>(&Json::parse(text.as_bytes()).unwrap())?.check(None, Verb::Add)?)
    }

    #[test]
    fn unknown_backends_leave_the_choice_to_the_host() {
        assert_eq!(load(r#"{"backend":"nonsense"}"#).unwrap().backend, None);
        assert_eq!(load(r#"{"backend":"iptables"}"#).unwrap().backend, Some(Backend::Iptables));
        assert_eq!(load(r#"{"backend":"firewalld"}"#).unwrap().backend, Some(Backend::Firewalld));
    }

    #[test]
    fn without_a_bus_only_who_asks_for_firewalld_gets_it() {
        let env = Env::default().with("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus");
        assert_eq!(Backend::choose(None, &env), Backend::Iptables);
        for asked in [Backend::Iptables, Backend::Firewalld] {
            assert_eq!(Backend::choose(Some(asked), &env), asked);
        }
    }

    #[test]
    fn the_zone_is_trusted_unless_named() {
        assert_eq!(load("{}").unwrap().zone, "trusted");
        assert_eq!(load(r#"{"firewalldZone":""}"#).unwrap().zone, "trusted");
        assert_eq!(load(r#"{"firewalldZone":"public"}"#).unwrap().zone, "public");
    }

    #[test]
    fn wrong_configurations_get_the_references_texts() {
        let cases = [
            (r#"{"ingressPolicy":"foo"}"#, r#"unknown ingress policy: "foo""#),
            (
                r#"{"backend":1}"#,
                "json: cannot unmarshal number into Go struct field FirewallNetConf.backend of type string",
            ),
            (
                r#"{"firewalldZone":[]}"#,
                "json: cannot unmarshal array into Go struct field FirewallNetConf.firewalldZone of type string",
            ),
            (r#"{"iptablesAdminChainName":"a b"}"#, r#"invalid iptablesAdminChainName "a b""#),
        ];
        for (text, message) in cases {
            assert_eq!(load(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn the_admin_chain_is_no_target() {
        for name in ["ACCEPT", "DROP", "QUEUE", "RETURN", "MASQUERADE", "REJECT", "TTL", "ULOG", "standard"] {
            let conf = format!(r#"{{"iptablesAdminChainName":"{name}"}}"#);
            let wrong = load(&conf).unwrap_err();
            assert_eq!(wrong.to_string(), format!(r#"invalid iptablesAdminChainName "{name}""#));
            assert_eq!(wrong.object().code, Code::INVALID_CONFIG);
        }
        // A match, and what only looks like a target.
        for name in ["set", "ACCEPT-ALL", "accept"] {
            assert_eq!(load(&format!(r#"{{"iptablesAdminChainName":"{name}"}}"#)).unwrap().admin_chain, name);
        }
    }

    #[test]
    fn the_admin_chain_is_taken_verbatim() {
        assert_eq!(load("{}").unwrap().admin_chain, "CNI-ADMIN");
        assert_eq!(load(r#"{"iptablesAdminChainName":"NOMAD-ADMIN"}"#).unwrap().admin_chain, "NOMAD-ADMIN");
    }
}
