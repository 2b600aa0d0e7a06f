// SPDX-License-Identifier: Apache-2.0
//! The configuration, the same for the plugin and for the daemon, which gets the document from the plugin.

use cnibox_harness::Input;
use cnibox_spec::{Json, decode};
use cnibox_sys::Failure;
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename = "IPAMConfig", default)]
pub struct Config {
    /// Read for nothing but being a text.
    #[serde(rename = "type")]
    pub(crate) plugin: String,
    /// Where the daemon listens.
    #[serde(rename = "daemonSocketPath")]
    pub(crate) socket: String,
    /// Options that are sent to the server, in order.
    pub(crate) provide: Vec<Provide>,
    /// Options that the server is asked for, in order.
    pub(crate) request: Vec<RequestShape>,
    /// Metric of the routes; 0 for none.
    pub(crate) priority: i64,
    /// Whether name servers and search list of the lease go into the result.
    #[serde(rename = "useDNS")]
    pub(crate) use_dns: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    name: String,
    ipam: Option<Config>,
}

/// An entry of `provide`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename = "ProvideOption", default)]
pub(crate) struct Provide {
    pub(crate) option: OptionName,
    pub(crate) value: String,
    #[serde(rename = "fromArg")]
    pub(crate) from_arg: String,
}

/// An entry of `request`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename = "RequestOption", default)]
pub(crate) struct RequestShape {
    #[serde(rename = "skipDefault")]
    pub(crate) skip_default: bool,
    pub(crate) option: OptionName,
}

/// An option's name or number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename = "main.DHCPOption")]
pub(crate) struct OptionName(pub(crate) String);

impl Config {
    /// The plugin's.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        // The plugin of the reference reads nothing but the path of the socket.
        let shape: Shape = input.decode("error obtaining socketPath: error parsing socket path conf")?;
        Self::checked(shape.ipam).map_err(Failure::invalid_config)
    }

    /// The daemon's, with the network's name.
    ///
    /// # Errors
    /// What is wrong with it, in the daemon's words.
    pub(crate) fn parse(stdin: &[u8]) -> Result<(String, Self), String> {
        let failed = |error: &dyn std::fmt::Display| format!("error parsing netconf: {error}");
        let json = Json::parse(stdin).map_err(|error| failed(&error))?;
        let shape: Shape = decode(&json).map_err(|error| failed(&error))?;
        Ok((shape.name, Self::checked(shape.ipam).map_err(|error| failed(&error))?))
    }

    fn checked(ipam: Option<Self>) -> Result<Self, &'static str> {
        let mut config = ipam.ok_or("IPAM config missing 'ipam' key")?;
        if config.socket.is_empty() {
            DEFAULT_SOCKET.clone_into(&mut config.socket);
        }
        Ok(config)
    }
}

/// Where the daemon listens if nothing else is said.
pub(crate) const DEFAULT_SOCKET: &str = "/run/cni/dhcp.sock";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(String, Config), String> {
        Config::parse(text.as_bytes())
    }

    #[test]
    fn everything_has_a_default() {
        let (name, config) = parsed(r#"{"name":"n","ipam":{"type":"dhcp"}}"#).unwrap();
        assert_eq!(name, "n");
        assert_eq!(
            config,
            Config { plugin: "dhcp".into(), socket: DEFAULT_SOCKET.into(), ..Config::default() }
        );
    }

    #[test]
    fn everything_can_be_set() {
        let text = r#"{"name":"n","ipam":{"type":"dhcp","daemonSocketPath":"/s","priority":7,"useDNS":true,
            "provide":[{"option":"12","value":"v","fromArg":"A"}],"request":[{"option":"26"},{"skipDefault":true}]}}"#;
        let (_, config) = parsed(text).unwrap();
        let name = |text: &str| OptionName(text.into());
        let provide = Provide { option: name("12"), value: "v".into(), from_arg: "A".into() };
        let asked = |option: &str, skip_default| RequestShape { skip_default, option: name(option) };
        let want = Config {
            plugin: "dhcp".into(),
            socket: "/s".into(),
            provide: vec![provide],
            request: vec![asked("26", false), asked("", true)],
            priority: 7,
            use_dns: true,
        };
        assert_eq!(config, want);
    }

    #[test]
    fn a_network_without_ipam_is_an_error_and_no_crash() {
        let error = parsed(r#"{"name":"n"}"#).unwrap_err();
        assert_eq!(error, "error parsing netconf: IPAM config missing 'ipam' key");
        let error = parsed(r#"{"name":"n","ipam":{"provide":[{"option":12}]}}"#).unwrap_err();
        let want = "error parsing netconf: json: cannot unmarshal number into Go struct field \
                    ProvideOption.ipam.provide.option of type main.DHCPOption";
        assert_eq!(error, want);
    }
}
