// SPDX-License-Identifier: Apache-2.0
//! The configuration.

use cnibox_harness::Input;
use cnibox_spec::{CniResult, Verb};
use cnibox_sys::Failure;
use serde::Deserialize;

/// A checked configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The VRF's name.
    pub(crate) name: String,
    /// Its routing table; without one, a free one is taken.
    pub(crate) table: Option<u32>,
    /// The result of the plugin before, which only ADD and CHECK read.
    pub(crate) prev_result: Option<CniResult>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "VRFNetConf", default)]
struct Shape {
    vrfname: String,
    table: u32,
}

impl Config {
    /// Checks the configuration.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to load netconf")?;
        if input.verb == Verb::Gc {
            return Ok(Self::default());
        }
        let config = Self::parse(shape)?;
        Ok(Self { prev_result: input.prev_result()?, ..config })
    }

    fn parse(shape: Shape) -> Result<Self, Failure> {
        let Shape { vrfname: name, table } = shape;
        if name.is_empty() {
            let text = "configuration is expected to have a valid vrf name";
            return Err(Failure::invalid_config(text));
        }
        Ok(Self { name, table: (table != 0).then_some(table), prev_result: None })
    }

    /// The result of the plugin before, which must be there.
    pub(crate) fn previous(&self) -> Result<&CniResult, Failure> {
        let missing = || Failure::invalid_config("missing prevResult from earlier plugin");
        self.prev_result.as_ref().ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use cnibox_spec::{Json, decode};

    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let shape = decode(&Json::parse(text.as_bytes()).unwrap()).map_err(|error| error.to_string())?;
        Config::parse(shape).map_err(|error| error.to_string())
    }

    #[test]
    fn a_vrf_has_a_name_and_perhaps_a_table() {
        assert_eq!(load(r#"{"vrfname":"blue","table":0}"#).unwrap().table, None);
        assert_eq!(load(r#"{"vrfname":"blue","table":4294967295}"#).unwrap().table, Some(u32::MAX));
        assert_eq!(load("{}").unwrap_err(), "configuration is expected to have a valid vrf name");
        assert_eq!(
            load(r#"{"vrfname":"blue","table":4294967296}"#).unwrap_err(),
            "json: cannot unmarshal number 4294967296 into Go struct field VRFNetConf.table of type uint32"
        );
    }
}
