// SPDX-License-Identifier: Apache-2.0
//! The configuration: what to set, from the network's configuration, `CNI_ARGS`, `runtimeConfig` and `args.cni`, the
//! later ones stronger.

use std::collections::HashSet;
use std::path::PathBuf;

use cnibox_harness::{Input, MacShape};
use cnibox_netlink::{InvalidMac, Mac};
use cnibox_spec::{CniResult, Json, Verb, decode};
use cnibox_sys::Failure;
use serde::Deserialize;

use crate::sysctls::Sysctls;

/// A checked configuration. DEL and GC need the state's directory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Where the backups are.
    pub(crate) data_dir: PathBuf,
    /// Sysctls and their values, in the configuration's order.
    pub(crate) sysctls: Sysctls,
    /// What to set on the interface.
    pub(crate) link: LinkPlan,
    /// The hardware address as it was written; results get it so.
    pub(crate) mac_text: String,
    /// The result of the plugin before; ADD and CHECK have one.
    pub(crate) prev_result: CniResult,
}

/// What to set on an interface; `None` leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkPlan {
    /// Hardware address.
    pub(crate) mac: Option<Mac>,
    /// Promiscuous mode on; it is never switched off.
    pub(crate) promisc: bool,
    /// MTU in bytes.
    pub(crate) mtu: Option<u32>,
    /// All-multicast mode.
    pub(crate) allmulti: Option<bool>,
    /// Transmit queue length in packets.
    pub(crate) txqlen: Option<u32>,
}

impl LinkPlan {
    /// Whether nothing is to be set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename = "TuningConf", default)]
struct Shape {
    #[serde(rename = "dataDir")]
    data_dir: String,
    sysctl: Sysctls,
    mac: String,
    promisc: bool,
    mtu: i64,
    #[serde(rename = "txQLen")]
    txqlen: Option<i64>,
    allmulti: Option<bool>,
    #[serde(rename = "runtimeConfig")]
    runtime: MacShape,
    args: ArgsShape,
}

#[derive(Default, Deserialize)]
#[serde(rename = "struct { A *main.IPAMArgs \"json:\\\"cni\\\"\" }", default)]
struct ArgsShape {
    cni: CniArgsShape,
}

#[derive(Default, Deserialize)]
#[serde(rename = "main.IPAMArgs", default)]
struct CniArgsShape {
    sysctl: Sysctls,
    mac: Option<String>,
    promisc: Option<bool>,
    mtu: Option<i64>,
    allmulti: Option<bool>,
    #[serde(rename = "txQLen")]
    txqlen: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "sysctlCheck", default)]
struct SysctlCheck {
    #[serde(rename = "sysctl")]
    _sysctl: SysctlKeys,
}

#[derive(Default, Deserialize)]
#[serde(rename = "map[main.sysctlKey]string")]
struct SysctlKeys(#[expect(dead_code, reason = "only its type matters")] Sysctls);

#[derive(Default, Deserialize)]
#[serde(rename = "TuningConf", default)]
struct DirShape {
    #[serde(rename = "dataDir")]
    data_dir: String,
}

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        match input.verb {
            // What ADD has refused, DEL must not refuse again: the plugins before this one have to be undone.
            Verb::Del | Verb::Gc => {
                let shape: DirShape = decode(&input.conf.json)
                    .map_err(|error| Failure::from(error).prefixed("failed to load netconf: "))?;
                Ok(Self { data_dir: data_dir(shape.data_dir), ..Self::default() })
            }
            Verb::Status => Self::parse(input.decode("failed to load netconf")?, String::new()),
            Verb::Add | Verb::Check => {
                check_sysctls(&input.conf.json)?;
                let config = Self::parse(input.decode("failed to load netconf")?, input.mac_of_args()?)?;
                Ok(Self { prev_result: input.conf.required_prev_result()?, ..config })
            }
        }
    }

    fn parse(shape: Shape, of_args: String) -> Result<Self, Failure> {
        let strongest = shape.args.cni;
        let mac = [shape.runtime.mac, of_args].into_iter().find(|mac| !mac.is_empty()).unwrap_or(shape.mac);
        let mac_text = strongest.mac.unwrap_or(mac);
        let link = LinkPlan {
            mac: parse_mac(&mac_text)?,
            promisc: strongest.promisc.unwrap_or(shape.promisc),
            mtu: parse_mtu(strongest.mtu.unwrap_or(shape.mtu))?,
            allmulti: strongest.allmulti.or(shape.allmulti),
            txqlen: strongest.txqlen.or(shape.txqlen).map(parse_queue_length).transpose()?,
        };
        let sysctls = shape.sysctl.0.into_iter().chain(strongest.sysctl.0).collect();
        Ok(Self { data_dir: data_dir(shape.data_dir), sysctls, link, mac_text, ..Self::default() })
    }
}

/// A reading of its own, ahead of all others. A name that is there twice nobody can mean.
fn check_sysctls(json: &Json) -> Result<(), Failure> {
    decode::<SysctlCheck>(json)?;
    let Some(Json::Object(members)) = json.member("sysctl") else { return Ok(()) };
    let mut names = HashSet::new();
    if members.iter().all(|(name, _)| names.insert(name)) {
        return Ok(());
    }
    Err(Failure::invalid_config("duplicated sysctl keys are not allowed"))
}

fn data_dir(configured: String) -> PathBuf {
    PathBuf::from(if configured.is_empty() { DEFAULT_DATA_DIR.to_owned() } else { configured })
}

fn parse_mac(text: &str) -> Result<Option<Mac>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let refused =
        |error: InvalidMac| Failure::invalid_config(format!("invalid args {text} for MAC addr: {error}"));
    text.parse().map(Some).map_err(refused)
}

fn parse_mtu(mtu: i64) -> Result<Option<u32>, Failure> {
    let value = u32::try_from(mtu).map_err(|_| Failure::invalid_config(format!("invalid MTU {mtu}")))?;
    Ok((value != 0).then_some(value))
}

fn parse_queue_length(packets: i64) -> Result<u32, Failure> {
    let refused = |_| Failure::invalid_config(format!("invalid transmit queue length {packets}"));
    u32::try_from(packets).map_err(refused)
}

const DEFAULT_DATA_DIR: &str = "/run/cni/tuning";

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, of_args: &str) -> Result<Config, String> {
        let shape = decode(&Json::parse(text.as_bytes()).unwrap()).map_err(|error| error.to_string())?;
        Config::parse(shape, of_args.to_owned()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_mac_comes_from_the_strongest_source() {
        let mut text = r#"{"mac":"02:00:00:00:00:01"}"#.to_owned();
        let mac = |text: &str, of_args| load(text, of_args).unwrap().mac_text;
        assert_eq!(mac(&text, ""), "02:00:00:00:00:01");
        assert_eq!(mac(&text, "02:00:00:00:00:02"), "02:00:00:00:00:02");
        text.insert_str(1, r#""runtimeConfig":{"mac":"02:00:00:00:00:03"},"#);
        assert_eq!(mac(&text, "02:00:00:00:00:02"), "02:00:00:00:00:03");
        text.insert_str(1, r#""args":{"cni":{"mac":"02:00:00:00:00:04"}},"#);
        assert_eq!(mac(&text, "02:00:00:00:00:02"), "02:00:00:00:00:04");
        assert_eq!(
            load(r#"{"mac":"zz"}"#, "").unwrap_err(),
            "invalid args zz for MAC addr: address zz: invalid MAC address"
        );
    }

    #[test]
    fn arguments_are_stronger_than_the_configuration_and_need_no_sysctl_in_it() {
        let config = load(
            r#"{"promisc":true,"mtu":1400,"txQLen":7,"args":{"cni":{"promisc":false,"mtu":1300,"txQLen":0,
                "allmulti":false,"sysctl":{"net.a":"1"}}}}"#,
            "",
        );
        let config = config.unwrap();
        let wanted =
            LinkPlan { mtu: Some(1300), txqlen: Some(0), allmulti: Some(false), ..LinkPlan::default() };
        assert_eq!(config.link, wanted);
        assert_eq!(config.sysctls.0, [("net.a".to_owned(), "1".to_owned())]);
        assert_eq!(config.data_dir, PathBuf::from("/run/cni/tuning"));
    }

    #[test]
    fn an_empty_configuration_leaves_the_interface_alone() {
        assert!(load("{}", "").unwrap().link.is_empty());
        assert!(!load(r#"{"txQLen":0}"#, "").unwrap().link.is_empty());
    }

    #[test]
    fn duplicates_and_wrong_types_are_errors() {
        let checked =
            |text: &str| check_sysctls(&Json::parse(text.as_bytes()).unwrap()).map_err(|e| e.to_string());
        let twice = checked(r#"{"sysctl":{"net.a":"1","net.b":"2","net.a":"3"}}"#);
        assert_eq!(twice.unwrap_err(), "duplicated sysctl keys are not allowed");
        assert_eq!(
            checked(r#"{"sysctl":"x"}"#).unwrap_err(),
            "json: cannot unmarshal string into Go struct field sysctlCheck.sysctl of type map[main.sysctlKey]string"
        );
        assert_eq!(
            load(r#"{"sysctl":{"net.a":1}}"#, "").unwrap_err(),
            "json: cannot unmarshal number into Go struct field TuningConf.sysctl of type string"
        );
        assert_eq!(load(r#"{"mtu":-1}"#, "").unwrap_err(), "invalid MTU -1");
    }
}
