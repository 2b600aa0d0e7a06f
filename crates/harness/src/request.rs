// SPDX-License-Identifier: Apache-2.0
//! The network configuration as far as it is every plugin's.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use cnibox_netlink::{InvalidMac, Mac};
use cnibox_spec::{
    ArgsError, CniResult, CniVersion, DecodeError, Dns, Json, LiveAttachment, NetworkName, Verb, decode,
    decode_embedding, parse_result,
};
use cnibox_sys::{Env, Failure};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// A network configuration whose name and version have been accepted.
#[derive(Clone, Debug)]
pub struct NetConf {
    /// The document.
    pub json: Json,
    /// `name`.
    pub network: NetworkName,
    /// `cniVersion`.
    pub version: CniVersion,
    /// `cniVersion` as written; absent is empty.
    pub version_text: String,
    /// Decoded once, when somebody asks.
    common: OnceCell<Common>,
}

impl NetConf {
    pub(crate) fn new(json: Json, network: NetworkName, version: CniVersion, version_text: String) -> Self {
        Self { json, network, version, version_text, common: OnceCell::new() }
    }

    /// `prevResult`, converted to the current version; `None` when absent or `null`.
    ///
    /// # Errors
    /// It cannot be read under the configuration's version.
    pub fn prev_result(&self) -> Result<Option<CniResult>, Failure> {
        let result = self.json.member("prevResult").map(|json| parse_result(&self.version_text, json));
        result.transpose().map_err(|error| Failure::from(error).prefixed("could not parse prevResult: "))
    }

    /// [`NetConf::prev_result`] where there must be one.
    ///
    /// # Errors
    /// Those of [`NetConf::prev_result`], or it is missing.
    pub fn required_prev_result(&self) -> Result<CniResult, Failure> {
        self.prev_result()?.ok_or_else(|| Failure::invalid_config("Required prevResult missing"))
    }

    /// The IPAM plugin's name, if there is to be one.
    #[must_use]
    pub fn ipam(&self) -> Option<&str> {
        Some(self.required_ipam()).filter(|plugin| !plugin.is_empty())
    }

    /// The IPAM plugin's name; an empty one makes the call fail with the reference's text.
    #[must_use]
    pub fn required_ipam(&self) -> &str {
        &self.common().ipam.plugin
    }

    /// The configured DNS; `None` when nothing of it is set. An empty list counts as set, an absent one does not.
    #[must_use]
    pub fn dns(&self) -> Option<Dns> {
        let member = |key| self.json.member("dns")?.member(key);
        let has_list = ["nameservers", "search", "options"].into_iter().any(|key| member(key).is_some());
        let dns = &self.common().dns;
        (has_list || *dns != Dns::default()).then(|| dns.clone())
    }

    /// What takes the place of the IPAM plugin's DNS in plugins that always replace it: the network's own, and nothing
    /// where it has none. `None` leaves it as it is, which only those get who ask for it.
    #[must_use]
    pub fn dns_instead(&self) -> Option<Dns> {
        let is_left = self.common().ipam.use_dns == Json::Bool(true);
        self.dns().or_else(|| (!is_left).then(Dns::default))
    }

    /// A document that no plugin takes has nothing.
    fn common(&self) -> &Common {
        self.common.get_or_init(|| decode(&self.json).unwrap_or_default())
    }

    /// The list of living attachments; `None` when the runtime sent none, which is not an empty list. libcni also
    /// writes it under the key of older specification texts.
    pub(crate) fn valid_attachments(&self) -> Result<Option<Vec<LiveAttachment>>, DecodeError> {
        #[derive(Default, Deserialize)]
        #[serde(rename = "NetConf", default)]
        struct Shape {
            #[serde(rename = "cni.dev/valid-attachments")]
            valid: Option<Vec<LiveAttachment>>,
            #[serde(rename = "cni.dev/attachments")]
            older: Option<Vec<LiveAttachment>>,
        }
        decode(&self.json).map(|Shape { valid, older }| valid.or(older))
    }
}

/// Fields of every configuration. Most of them are only checked for their types here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename = "PluginConf", default)]
struct Common {
    #[serde(rename = "type")]
    _plugin: String,
    #[serde(rename = "capabilities")]
    _capabilities: Option<Capabilities>,
    ipam: Ipam,
    dns: Dns,
    #[serde(rename = "prevResult")]
    _prev_result: Option<RawResult>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "map[string]bool")]
struct Capabilities(#[expect(dead_code, reason = "only its type matters")] BTreeMap<String, bool>);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename = "types.IPAM", default)]
struct Ipam {
    #[serde(rename = "type")]
    plugin: String,
    /// An option of our `dhcp`: the names of the lease are wanted. Other plugins may mean anything by it.
    #[serde(rename = "useDNS")]
    use_dns: Json,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "map[string]interface {}")]
struct RawResult(#[expect(dead_code, reason = "only its type matters")] BTreeMap<String, IgnoredAny>);

/// `runtimeConfig`, as far as it is about the container's MAC.
#[derive(Default, Deserialize)]
#[serde(rename = "struct { Mac string \"json:\\\"mac,omitempty\\\"\" }", default)]
pub struct MacShape {
    /// The MAC; empty when not set.
    pub mac: String,
}

/// What a plugin makes its configuration from.
pub struct Input<'a> {
    /// The network configuration.
    pub conf: &'a NetConf,
    /// The verb that it is for.
    pub verb: Verb,
    pub(crate) env: &'a Env,
}

impl Input<'_> {
    /// Decodes the document into the plugin's own shape, after the fields that every configuration may have
    /// (`NetConf` of `pkg/types`). `failed` is what the reference says in front of what is wrong.
    ///
    /// # Errors
    /// A value of the wrong type.
    pub fn decode<T: DeserializeOwned>(&self, failed: &str) -> Result<T, Failure> {
        let decoded = decode_embedding::<T, Common>(&self.conf.json, "NetConf");
        decoded.map_err(|error| Failure::from(error).prefixed(&format!("{failed}: ")))
    }

    /// [`NetConf::prev_result`] for the plugins whose reference reads it with the configuration, and says twice what failed.
    /// DEL works whatever an earlier plugin has said, and uses what can be read of it; STATUS and GC have none.
    ///
    /// # Errors
    /// Those of [`NetConf::prev_result`], for ADD and CHECK.
    pub fn prev_result(&self) -> Result<Option<CniResult>, Failure> {
        let twice = |failure: Failure| failure.prefixed("could not parse prevResult: ");
        match self.verb {
            Verb::Add | Verb::Check => self.conf.prev_result().map_err(twice),
            Verb::Del => Ok(self.conf.prev_result().unwrap_or_default()),
            Verb::Status | Verb::Gc => Ok(None),
        }
    }

    /// `CNI_ARGS`. Only the plugins that have keys of their own there may look at it.
    #[must_use]
    pub fn args(&self) -> Cow<'_, str> {
        self.env.var("CNI_ARGS")
    }

    /// The value of `MAC` in `CNI_ARGS`; empty when it is not there.
    ///
    /// # Errors
    /// Those of [`cnibox_spec::load_args`].
    pub fn mac_of_args(&self) -> Result<String, ArgsError> {
        let mut mac = String::new();
        self.load_args(|key, value| {
            (key == "MAC").then(|| {
                value.clone_into(&mut mac);
                Ok(())
            })
        })?;
        Ok(mac)
    }

    /// The first of these that is not empty: `runtimeConfig.mac`, `MAC` in `CNI_ARGS`, `mac`.
    ///
    /// # Errors
    /// Those of [`Input::mac_of_args`]; it is no MAC.
    pub fn requested_mac(&self, runtime: &str, configured: &str) -> Result<Option<Mac>, Failure> {
        let of_args = self.mac_of_args()?;
        let refused = |error: InvalidMac| {
            Failure::invalid_config(format!("invalid args {} for MAC addr: {error}", error.text))
        };
        let wanted = [runtime, &of_args, configured].into_iter().find(|mac| !mac.is_empty());
        wanted.map(|text| text.parse().map_err(refused)).transpose()
    }

    /// Checks only the fields that every configuration may have, for plugins without fields of their own. `failed` as in
    /// [`Input::decode`].
    ///
    /// # Errors
    /// A value of the wrong type.
    pub fn check_common(&self, failed: &str) -> Result<(), Failure> {
        let decoded = decode::<Common>(&self.conf.json).map(drop);
        decoded.map_err(|error| Failure::from(error).prefixed(&format!("{failed}: ")))
    }

    /// Hands the pairs of `CNI_ARGS` to `known`; see [`cnibox_spec::load_args`].
    ///
    /// # Errors
    /// Those of [`cnibox_spec::load_args`].
    pub fn load_args(
        &self,
        known: impl FnMut(&str, &str) -> Option<Result<(), String>>,
    ) -> Result<(), ArgsError> {
        cnibox_spec::load_args(&self.args(), known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(fields: &str) -> NetConf {
        let json = Json::parse(format!("{{{fields}}}").as_bytes()).unwrap();
        NetConf::new(json, NetworkName::new("net").unwrap(), CniVersion::V1_1_0, "1.1.0".to_owned())
    }

    #[test]
    fn an_ipam_plugin_has_a_name() {
        assert_eq!(conf(r#""IPAM":{"Type":"static"}"#).ipam(), Some("static"));
        for none in ["", r#""ipam":null"#, r#""ipam":{"type":""}"#, r#""ipam":{"type":null}"#] {
            assert_eq!((conf(none).ipam(), conf(none).required_ipam()), (None, ""), "{none}");
        }
    }

    #[test]
    fn an_empty_list_is_a_dns_and_an_absent_one_is_none() {
        for none in ["", r#""dns":null"#, r#""dns":{"domain":"","search":null}"#] {
            assert_eq!(conf(none).dns(), None, "{none}");
            assert_eq!(conf(none).dns_instead(), Some(Dns::default()), "{none}");
        }
        assert_eq!(conf(r#""dns":{"search":[]}"#).dns(), Some(Dns::default()));
        let domain = Dns { domain: "example".to_owned(), ..Dns::default() };
        assert_eq!(conf(r#""dns":{"domain":"example"},"dns":null"#).dns(), Some(domain));
    }

    #[test]
    fn the_leases_dns_stays_where_it_is_asked_for_and_the_network_has_none() {
        let asked =
            |dns: &str| conf(&format!(r#""ipam":{{"type":"dhcp","useDNS":true}}{dns}"#)).dns_instead();
        assert_eq!(asked(""), None);
        let domain = Dns { domain: "example".to_owned(), ..Dns::default() };
        assert_eq!(asked(r#","dns":{"domain":"example"}"#), Some(domain));
    }
}
