// SPDX-License-Identifier: Apache-2.0
//! The configuration: limits of both directions, from the network's configuration or else from the runtime.

use cnibox_harness::Input;
use cnibox_netlink::Tbf;
use cnibox_spec::{CniResult, Json, Verb};
use cnibox_sys::Failure;
use serde::Deserialize;

use crate::plan;

/// A checked configuration. DEL and GC need nothing of it and get an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// What the container may receive.
    pub(crate) ingress: Option<Tbf>,
    /// What the container may send.
    pub(crate) egress: Option<Tbf>,
    /// The result of the plugin before.
    pub(crate) prev_result: Option<CniResult>,
}

/// In the network's configuration the four keys stand at the top.
#[derive(Debug, Default, Deserialize)]
#[serde(rename = "PluginConf", default)]
struct Shape {
    #[serde(rename = "BandwidthEntry::ingressRate")]
    ingress_rate: u64,
    #[serde(rename = "BandwidthEntry::ingressBurst")]
    ingress_burst: u64,
    #[serde(rename = "BandwidthEntry::egressRate")]
    egress_rate: u64,
    #[serde(rename = "BandwidthEntry::egressBurst")]
    egress_burst: u64,
    #[serde(rename = "runtimeConfig")]
    runtime: RuntimeShape,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename = "struct { Bandwidth *main.BandwidthEntry \"json:\\\"bandwidth,omitempty\\\"\" }", default)]
struct RuntimeShape {
    bandwidth: EntryShape,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename = "main.BandwidthEntry", default)]
struct EntryShape {
    #[serde(rename = "ingressRate")]
    ingress_rate: u64,
    #[serde(rename = "ingressBurst")]
    ingress_burst: u64,
    #[serde(rename = "egressRate")]
    egress_rate: u64,
    #[serde(rename = "egressBurst")]
    egress_burst: u64,
}

impl Shape {
    /// A single key at the top of `json`, even a 0 or a null, hides the runtime's whole object.
    fn entry(self, json: &Json) -> EntryShape {
        if !KEYS.iter().any(|key| json.mentions(key)) {
            return self.runtime.bandwidth;
        }
        let Self { ingress_rate, ingress_burst, egress_rate, egress_burst, .. } = self;
        EntryShape { ingress_rate, ingress_burst, egress_rate, egress_burst }
    }
}

impl Config {
    /// Checks the configuration.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        match input.verb {
            // What ADD has refused, DEL must not refuse again: the plugins before this one have to be undone.
            Verb::Del | Verb::Gc => Ok(Self::default()),
            Verb::Status => Self::parse(input.decode(UNDECODABLE)?, &input.conf.json),
            Verb::Add | Verb::Check => {
                let config = Self::parse(input.decode(UNDECODABLE)?, &input.conf.json)?;
                Ok(Self { prev_result: input.prev_result()?, ..config })
            }
        }
    }

    fn parse(shape: Shape, json: &Json) -> Result<Self, Failure> {
        let entry = shape.entry(json);
        let ingress = limit(entry.ingress_rate, entry.ingress_burst)?;
        let egress = limit(entry.egress_rate, entry.egress_burst)?;
        Ok(Self { ingress, egress, prev_result: None })
    }

    /// Whether nothing is to be limited.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

/// The filter for one direction, in bits per second and bits that may be sent at once; `None` for no limit.
fn limit(rate: u64, burst: u64) -> Result<Option<Tbf>, Failure> {
    match (rate, burst) {
        (0, 0) => Ok(None),
        (_, 0) => Err(Failure::invalid_config("if rate is set, burst must also be set")),
        (0, _) => Err(Failure::invalid_config("if burst is set, rate must also be set")),
        (_, burst) if burst / 8 >= u64::from(u32::MAX) => {
            Err(Failure::invalid_config("burst cannot be more than 4GB"))
        }
        (rate, burst) => Ok(Some(plan::tbf(rate, burst))),
    }
}

const UNDECODABLE: &str = "failed to parse network configuration";
/// Of a limit.
const KEYS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];

#[cfg(test)]
mod tests {
    use cnibox_spec::decode;

    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let json = Json::parse(text.as_bytes()).unwrap();
        let shape = decode(&json).map_err(|error| error.to_string())?;
        Config::parse(shape, &json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_at_the_top_hides_the_runtimes_limits() {
        let runtime = r#""runtimeConfig":{"bandwidth":{"ingressRate":8,"ingressBurst":16}}"#;
        let limited = load(&format!("{{{runtime}}}")).unwrap();
        assert_eq!(limited.ingress, Some(plan::tbf(8, 16)));
        for key in [r#""egressRate":0"#, r#""EgressBurst":null"#] {
            assert!(load(&format!("{{{key},{runtime}}}")).unwrap().is_unlimited(), "{key}");
        }
        assert!(load("{}").unwrap().is_unlimited());
    }

    #[test]
    fn rate_and_burst_come_together() {
        assert_eq!(load(r#"{"ingressRate":8}"#).unwrap_err(), "if rate is set, burst must also be set");
        assert_eq!(load(r#"{"egressBurst":8}"#).unwrap_err(), "if burst is set, rate must also be set");
        let huge = load(r#"{"egressRate":8,"egressBurst":34359738360}"#);
        assert_eq!(huge.unwrap_err(), "burst cannot be more than 4GB");
        assert!(load(r#"{"egressRate":8,"egressBurst":34359738352}"#).is_ok());
        assert!(load(r#"{"egressRate":-1}"#).unwrap_err().starts_with("json:"));
    }
}
