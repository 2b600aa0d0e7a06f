// SPDX-License-Identifier: Apache-2.0
//! One call of one plugin: its configuration, its environment, its answer (`buildOneConfig` in `libcni/api.go` and
//! `pkg/invoke` of the CNI library).

use std::io::Write;

use anyhow::{Context, Result};
use cnibox_spec::{CniVersion, Json, LiveAttachment as Live, Verb, parse_result, print_result};
use cnibox_sys::{DelegateError, Env, Host, Registry, Sys};

use super::attachment::Attachment;
use super::conflist::{Network, PluginConf};

/// The configuration for ADD, DEL and CHECK. `prev` is null when there is no result yet.
pub(crate) fn config(network: &Network, plugin: &PluginConf, attachment: &Attachment, prev: &Json) -> Json {
    let mut json = plain_config(network, plugin);
    if *prev != Json::Null {
        put(&mut json, "prevResult", prev.clone());
    }
    let wanted = |name: &String| Some((name.clone(), value_of(&attachment.capabilities, name)?));
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
pub(crate) fn gc_config(network: &Network, plugin: &PluginConf, live: &[Live]) -> Json {
    let text = |text: &str| Json::String(text.to_owned());
    let object = |live: &Live| {
        let members = [("containerID", &live.container_id), ("ifname", &live.ifname)];
        Json::Object(members.map(|(key, value)| (key.to_owned(), text(value))).into())
    };
    let list = Json::Array(live.iter().map(object).collect());
    let mut json = plain_config(network, plugin);
    put(&mut json, "cni.dev/valid-attachments", list.clone());
    put(&mut json, "cni.dev/attachments", list);
    json
}

/// Executes `plugin` with `verb` and answers with its stdout. `env` is the caller's; its `CNI_PATH` is searched.
///
/// # Errors
/// When the plugin is not found or cannot be run; what it answered when it failed.
pub(crate) fn execute(
    verb: Verb,
    plugin: &PluginConf,
    config: &Json,
    env: Env,
    notes: &mut dyn Write,
) -> Result<Vec<u8>> {
    let stdin = serde_json::to_vec(config)?;
    let mut host = Host {
        env,
        stdin: &mut std::io::empty(),
        stdout: &mut std::io::sink(),
        stderr: notes,
        // Empty: every plugin is a process, as under any other runtime.
        registry: Registry::default(),
        fail_at: None,
    };
    let answer: Result<Vec<u8>, DelegateError> = Sys::new(&mut host, &stdin).delegate(verb, &plugin.kind);
    Ok(answer?)
}

/// The environment of a plugin: the caller's, with the variables of the protocol. GC and STATUS have no attachment.
pub(crate) fn environment(env: &Env, attachment: &Attachment) -> Env {
    env.clone()
        .with("CNI_CONTAINERID", &attachment.container)
        .with("CNI_NETNS", &attachment.netns)
        .with("CNI_IFNAME", &attachment.ifname)
        .with("CNI_ARGS", attachment.args_text())
}

/// Reads what ADD printed. A result without a version has the network's.
///
/// # Errors
/// When it is no result.
pub(crate) fn result(network: &Network, stdout: &[u8]) -> Result<Json> {
    let mut json = Json::parse(stdout).context("failed to unmarshal raw result")?;
    if json == Json::Null {
        json = Json::Object(Vec::new());
    }
    if version_of(&json).is_empty() {
        let version = CniVersion::parse(&network.version)?;
        put(&mut json, "cniVersion", Json::String(version.to_string()));
    }
    let version = CniVersion::parse(version_of(&json))?;
    let parsed = parse_result(version.as_str(), &json)?;
    // The oldest versions cannot say "no addresses"; then the plugin's own words serve.
    print_result(version, &parsed).map_or(Ok(json), |text| Ok(Json::parse(text.as_bytes())?))
}

/// A remembered result in the network's version, which may have changed since.
///
/// # Errors
/// When it is no result, or cannot be said in that version.
pub(crate) fn in_version_of(network: &Network, result: &Json) -> Result<Json> {
    let found = version_of(result);
    if *result == Json::Null || found == network.version {
        return Ok(result.clone());
    }
    let context = || format!("failed to convert cached result to config version \"{}\"", network.version);
    let parsed = parse_result(found, result).with_context(context)?;
    let text = print_result(CniVersion::parse(&network.version)?, &parsed).with_context(context)?;
    Ok(Json::parse(text.as_bytes())?)
}

fn version_of(result: &Json) -> &str {
    result.member("cniVersion").and_then(Json::as_str).unwrap_or_default()
}

fn value_of(capabilities: &Json, name: &str) -> Option<Json> {
    let Json::Object(members) = capabilities else { return None };
    members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

/// Sets a member as the last one, where it wins over every other spelling.
fn put(json: &mut Json, key: &str, value: Json) {
    json.remove(key);
    json.set(key, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::conflist;

    fn network(conf: &str) -> Network {
        conflist::remembered(conf.as_bytes(), std::path::Path::new("/nonexistent")).unwrap()
    }

    fn text(json: &Json) -> String {
        serde_json::to_string(json).unwrap()
    }

    #[test]
    fn a_plugin_gets_only_the_capabilities_that_it_asks_for() {
        let network = network(
            r#"{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"p","name":"own","x":1,
                "capabilities":{"mac":true,"ips":false,"absent":true}}]}"#,
        );
        let attachment = Attachment {
            capabilities: Json::parse(br#"{"mac":"aa","ips":["b"],"more":1}"#).unwrap(),
            ..Attachment::default()
        };
        let prev = Json::parse(br#"{"cniVersion":"1.0.0"}"#).unwrap();
        assert_eq!(
            text(&config(&network, &network.plugins[0], &attachment, &prev)),
            r#"{"type":"p","x":1,"capabilities":{"mac":true,"ips":false,"absent":true},"name":"n","cniVersion":"1.0.0","prevResult":{"cniVersion":"1.0.0"},"runtimeConfig":{"mac":"aa"}}"#
        );
    }

    #[test]
    fn gc_lists_what_lives_under_both_keys() {
        let network = network(r#"{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"p"}]}"#);
        let live = [Live { container_id: "c".into(), ifname: "eth0".into() }];
        assert_eq!(
            text(&gc_config(&network, &network.plugins[0], &live)),
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
}
