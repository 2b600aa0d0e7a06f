// SPDX-License-Identifier: Apache-2.0
//! The configuration.

use std::net::IpAddr;

use cnibox_harness::Input;
use cnibox_spec::{CniResult, Verb, parse_ip};
use cnibox_sys::Failure;
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The table that all addresses share and that somebody else fills; without one, each address gets its own.
    pub(crate) table: Option<u32>,
    /// Gateways of the tables, at most one of each family; the addresses' own otherwise.
    pub(crate) gateways: Vec<IpAddr>,
    /// Whether the main table keeps the subnets' routes, with the address as preferred source.
    pub(crate) source_hints: bool,
    /// The result of the plugin before.
    pub(crate) prev_result: Option<CniResult>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "PluginConf", default)]
struct Shape {
    table: Option<i64>,
    gateways: Vec<String>,
    #[serde(rename = "addSourceHints")]
    source_hints: bool,
}

impl Config {
    /// Checks the configuration. DEL uses the table, and prevResult where it can be read.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to parse network configuration")?;
        match input.verb {
            Verb::Add | Verb::Check => {
                let config = Self::parse(shape)?;
                Ok(Self { prev_result: input.conf.prev_result()?, ..config })
            }
            Verb::Status => Self::parse(shape),
            Verb::Del => {
                // What ADD has refused, DEL must not refuse again: the plugins before this one have to be undone.
                let table = shape.table.and_then(|table| u32::try_from(table).ok());
                let prev_result = input.conf.prev_result().unwrap_or_default();
                Ok(Self { table, prev_result, ..Self::default() })
            }
            Verb::Gc => Ok(Self::default()),
        }
    }

    fn parse(shape: Shape) -> Result<Self, Failure> {
        let Shape { table, gateways, source_hints } = shape;
        let number = |table: i64| {
            u32::try_from(table)
                .map_err(|_| Failure::invalid_config(format!("invalid routing table {table}")))
        };
        Ok(Self {
            table: table.map(number).transpose()?,
            gateways: parse_gateways(&gateways)?,
            source_hints,
            prev_result: None,
        })
    }
}

fn parse_gateways(texts: &[String]) -> Result<Vec<IpAddr>, Failure> {
    if texts.len() > 2 {
        let text = "gateways list cannot contain more than 2 entries (one IPv4, one IPv6)";
        return Err(Failure::invalid_config(text));
    }
    let parse = |text: &String| {
        parse_ip(text)
            .map_err(|_| Failure::invalid_config(format!("invalid static gateway IP address: {text}")))
    };
    let gateways = texts.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    match *gateways.as_slice() {
        [first, second] if first.is_ipv4() == second.is_ipv4() => {
            let family = if first.is_ipv4() { "IPv4" } else { "IPv6" };
            Err(Failure::invalid_config(format!(
                "gateways list contains multiple {family} addresses: {first} and {second}"
            )))
        }
        _ => Ok(gateways),
    }
}

#[cfg(test)]
mod tests {
    use cnibox_spec::{Json, decode};

    use super::*;

    fn load(text: &str) -> Result<Config, Failure> {
        Config::parse(decode(&Json::parse(text.as_bytes()).unwrap())?)
    }

    fn error(text: &str) -> String {
        load(text).unwrap_err().to_string()
    }

    #[test]
    fn there_is_one_gateway_of_each_family() {
        let both = load(r#"{"gateways":["10.0.0.1","fd00::1"],"table":7}"#).unwrap();
        assert_eq!((both.gateways.len(), both.table), (2, Some(7)));
        assert_eq!(
            error(r#"{"gateways":["10.0.0.1","10.0.0.2"]}"#),
            "gateways list contains multiple IPv4 addresses: 10.0.0.1 and 10.0.0.2"
        );
        assert_eq!(error(r#"{"gateways":["x"]}"#), "invalid static gateway IP address: x");
        assert_eq!(
            error(r#"{"gateways":["10.0.0.1","10.0.0.2","10.0.0.3"]}"#),
            "gateways list cannot contain more than 2 entries (one IPv4, one IPv6)"
        );
    }

    #[test]
    fn tables_are_numbers_that_the_kernel_has() {
        assert_eq!(error(r#"{"table":-1}"#), "invalid routing table -1");
        assert!(error(r#"{"table":"x"}"#).starts_with("json:"));
    }
}
