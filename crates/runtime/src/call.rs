// SPDX-License-Identifier: Apache-2.0
//! One call of one plugin: its configuration, its environment, its answer (`buildOneConfig` in `libcni/api.go` and
//! `pkg/invoke` of the CNI library).

use cnibox_spec::{
    Attachment, CniVersion, Code, Json, LiveAttachment, PrevResultError, parse_result, print_result,
};
use cnibox_sys::{Env, Failure};

use crate::network::exact;
use crate::{Network, PluginConf};

/// Where runtimes look for plugins unless they are told otherwise.
pub const PLUGINS_DIR: &str = "/opt/cni/bin";

/// What a call says of one attachment: libcni's `RuntimeConf`.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeConf {
    /// Whose call it is.
    pub attachment: Attachment,
    /// `CNI_NETNS`.
    pub netns: String,
    /// The pairs of `CNI_ARGS`.
    pub args: Vec<Vec<String>>,
    /// The values of capabilities: an object, or null when nothing was said.
    pub capabilities: Json,
}

impl RuntimeConf {
    /// The value of `CNI_ARGS`.
    #[must_use]
    pub fn args_text(&self) -> String {
        self.args.iter().map(|pair| pair.join("=")).collect::<Vec<_>>().join(";")
    }

    /// Takes from what an earlier call said what this one does not say itself.
    pub(crate) fn completed_from(&self, earlier: &Self) -> Self {
        let mut conf = self.clone();
        if conf.args.is_empty() {
            conf.args.clone_from(&earlier.args);
        }
        if conf.capabilities == Json::Null {
            conf.capabilities.clone_from(&earlier.capabilities);
        }
        conf
    }
}

/// The configuration for ADD, DEL and CHECK. `prev` is null when there is no result yet.
pub(crate) fn config(network: &Network, plugin: &PluginConf, conf: &RuntimeConf, prev: &Json) -> Json {
    let mut json = plain_config(network, plugin);
    if *prev != Json::Null {
        put(&mut json, "prevResult", prev.clone());
    }
    let wanted = |name: &String| Some((name.clone(), exact(&conf.capabilities, name)?.clone()));
    let runtime: Vec<_> = plugin.capabilities.iter().filter_map(wanted).collect();
    if !runtime.is_empty() {
        put(&mut json, "runtimeConfig", Json::Object(runtime));
    }
    json
}

/// The configuration for STATUS, and for GC without a list of attachments.
pub(crate) fn plain_config(network: &Network, plugin: &PluginConf) -> Json {
    let mut json = plugin.json.clone();
    put(&mut json, "name", Json::String(network.name.clone()));
    put(&mut json, "cniVersion", Json::String(network.version.clone()));
    json
}

/// The configuration for GC with the attachments that live, under the specification's key and the one that its text
/// once had.
pub(crate) fn gc_config(network: &Network, plugin: &PluginConf, live: &[LiveAttachment]) -> Json {
    let text = |text: &str| Json::String(text.to_owned());
    let object = |live: &LiveAttachment| {
        let members = [("containerID", &live.container_id), ("ifname", &live.ifname)];
        Json::Object(members.map(|(key, value)| (key.to_owned(), text(value))).into())
    };
    let list = Json::Array(live.iter().map(object).collect());
    let mut json = plain_config(network, plugin);
    put(&mut json, "cni.dev/valid-attachments", list.clone());
    put(&mut json, "cni.dev/attachments", list);
    json
}

/// The environment of a plugin: the caller's, with the variables of the protocol. GC and STATUS have no attachment.
pub(crate) fn environment(env: &Env, conf: Option<&RuntimeConf>) -> Env {
    let text = |read: fn(&RuntimeConf) -> String| conf.map(read).unwrap_or_default();
    env.clone()
        .with("CNI_CONTAINERID", text(|conf| conf.attachment.container.to_string()))
        .with("CNI_NETNS", text(|conf| conf.netns.clone()))
        .with("CNI_IFNAME", text(|conf| conf.attachment.ifname.to_string()))
        .with("CNI_ARGS", text(RuntimeConf::args_text))
}

/// Reads what ADD printed. A result without a version has the network's.
pub(crate) fn result(network: &Network, stdout: &[u8]) -> Result<Json, Failure> {
    let mut json = parse(stdout)?;
    if json == Json::Null {
        json = Json::Object(Vec::new());
    }
    if version_of(&json).is_empty() {
        let version = version(&network.version)?;
        put(&mut json, "cniVersion", Json::String(version.to_string()));
    }
    let version = version(version_of(&json))?;
    let parsed = parse_result(version.as_str(), &json)?;
    // The oldest versions cannot say "no addresses"; then the plugin's own words serve.
    print_result(version, &parsed).map_or(Ok(json), |text| parse(text.as_bytes()))
}

/// A remembered result in the network's version, which may have changed since.
pub(crate) fn in_version_of(network: &Network, result: &Json) -> Result<Json, Failure> {
    let found = version_of(result);
    if *result == Json::Null || found == network.version {
        return Ok(result.clone());
    }
    let parsed = parse_result(found, result)?;
    parse(print_result(version(&network.version)?, &parsed)?.as_bytes())
}

fn parse(result: &[u8]) -> Result<Json, Failure> {
    let failed = |error| Failure::new(Code::INTERNAL, format!("failed to unmarshal raw result: {error}"));
    Json::parse(result).map_err(failed)
}

fn version(text: &str) -> Result<CniVersion, PrevResultError> {
    Ok(CniVersion::parse(text)?)
}

fn version_of(result: &Json) -> &str {
    result.member("cniVersion").and_then(Json::as_str).unwrap_or_default()
}

/// Sets a member as the last one, where it wins over every other spelling.
fn put(json: &mut Json, key: &str, value: Json) {
    json.remove(key);
    json.set(key, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Networks;

    fn network(conf: &str) -> Network {
        Networks::new("/nonexistent").remembered(conf.as_bytes()).unwrap()
    }

    fn conf() -> RuntimeConf {
        RuntimeConf {
            attachment: Attachment::new("n", "c", "eth0").unwrap(),
            netns: "/n".into(),
            args: Vec::new(),
            capabilities: Json::parse(br#"{"mac":"aa","ips":["b"],"more":1}"#).unwrap(),
        }
    }

    #[test]
    fn a_plugin_gets_only_the_capabilities_that_it_asks_for() {
        let network = network(
            r#"{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"p","name":"own","x":1,
                "capabilities":{"mac":true,"ips":false,"absent":true}}]}"#,
        );
        let prev = Json::parse(br#"{"cniVersion":"1.0.0"}"#).unwrap();
        assert_eq!(
            config(&network, &network.plugins[0], &conf(), &prev).to_string(),
            r#"{"type":"p","x":1,"capabilities":{"mac":true,"ips":false,"absent":true},"name":"n","cniVersion":"1.0.0","prevResult":{"cniVersion":"1.0.0"},"runtimeConfig":{"mac":"aa"}}"#
        );
    }

    #[test]
    fn gc_lists_what_lives_under_both_keys() {
        let network = network(r#"{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"p"}]}"#);
        let live = [LiveAttachment { container_id: "c".into(), ifname: "eth0".into() }];
        assert_eq!(
            gc_config(&network, &network.plugins[0], &live).to_string(),
            r#"{"type":"p","name":"n","cniVersion":"1.1.0","cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}],"cni.dev/attachments":[{"containerID":"c","ifname":"eth0"}]}"#
        );
    }

    #[test]
    fn a_result_without_version_has_the_networks() {
        let network = network(r#"{"name":"n","cniVersion":"0.4.0","plugins":[{"type":"p"}]}"#);
        for stdout in ["null", "{}", r#"{"cniVersion":""}"#] {
            assert_eq!(version_of(&result(&network, stdout.as_bytes()).unwrap()), "0.4.0", "{stdout}");
        }
        let other = result(&network, br#"{"cniVersion":"1.0.0"}"#).unwrap();
        assert_eq!(version_of(&other), "1.0.0");
        assert_eq!(version_of(&in_version_of(&network, &other).unwrap()), "0.4.0");
        assert!(result(&network, br#"{"cniVersion":"9.0.0"}"#).is_err());
        assert!(result(&network, b"nonsense").is_err());
    }
    #[test]
    fn what_is_said_now_wins_over_what_was_said_earlier() {
        let earlier = RuntimeConf { args: vec![vec!["A".into(), "old".into()]], ..conf() };
        let args = vec![vec!["A".into(), "new".into()], vec!["B".into(), "{}".into()]];
        let said = RuntimeConf { args, capabilities: Json::Null, ..conf() }.completed_from(&earlier);
        assert_eq!((said.args_text().as_str(), said.capabilities), ("A=new;B={}", earlier.capabilities));
    }
}
