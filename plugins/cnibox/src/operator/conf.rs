// SPDX-License-Identifier: Apache-2.0
//! Which container, which interface, with which arguments: read from the command line and the environment as cnitool
//! reads them (`cnitool/cnitool.go`).

use std::path::{Component, PathBuf};

use anyhow::{Context, Result, bail};
use cnibox_runtime::RuntimeConf;
use cnibox_spec::{Attachment, ContainerId, IfName, Json, NetworkName, quoted, sha512_prefix};
use cnibox_sys::Env;

/// The attachment of the namespace at `netns` to `network`, with `CNI_IFNAME`, `CNI_ARGS` and `CAP_ARGS` from `env`.
///
/// # Errors
/// For a name or variable that is malformed.
pub(super) fn read(network: &str, netns: &str, env: &Env) -> Result<RuntimeConf> {
    let netns = absolute(netns)?;
    let ifname = match env.var("CNI_IFNAME") {
        name if name.is_empty() => IfName::new("eth0")?,
        name => IfName::new(&name).context("CNI_IFNAME")?,
    };
    let container = ContainerId::new(&format!("cnitool-{}", sha512_prefix(&[&netns], 20)))?;
    Ok(RuntimeConf {
        attachment: Attachment { network: NetworkName::new(network)?, container, ifname },
        netns,
        args: pairs(&env.var("CNI_ARGS"))?,
        capabilities: capabilities(&env.var("CAP_ARGS"))?,
    })
}

fn pairs(value: &str) -> Result<Vec<Vec<String>>> {
    let mut pairs = Vec::new();
    for pair in value.split(';').filter(|_| !value.is_empty()) {
        let parts: Vec<String> = pair.split('=').map(str::to_owned).collect();
        if parts.len() != 2 || parts.iter().any(String::is_empty) {
            bail!("invalid CNI_ARGS pair {}", quoted(pair));
        }
        pairs.push(parts);
    }
    Ok(pairs)
}

fn capabilities(value: &str) -> Result<Json> {
    if value.is_empty() {
        return Ok(Json::Null);
    }
    let json = Json::parse(value.as_bytes()).context("CAP_ARGS")?;
    if !matches!(json, Json::Null | Json::Object(_)) {
        bail!("CAP_ARGS: not a JSON object");
    }
    Ok(json)
}

/// The absolute path without `.` and `..`, by its text alone as Go's `filepath.Abs`: the container's ID depends on it.
fn absolute(path: &str) -> Result<String> {
    let path = std::path::absolute(if path.is_empty() { "." } else { path })?;
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::Normal(name) => clean.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let text = clean.to_str().map(str::to_owned);
    text.with_context(|| format!("{} is not UTF-8", clean.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &[(&str, &str)]) -> Env {
        vars.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn the_container_id_is_cnitools() {
        // printf %s /run/netns/pod | sha512sum | cut -c1-20
        let expected = "cnitool-9539caf00070aeae0bd6";
        for path in ["/run/netns/pod", "/run//netns/./x/../pod/", "/../run/netns/pod"] {
            let conf = read("n", path, &env(&[])).unwrap();
            assert_eq!(conf.netns, "/run/netns/pod");
            assert_eq!(conf.attachment, Attachment::new("n", expected, "eth0").unwrap());
        }
    }

    #[test]
    fn variables_are_read_as_cnitool_reads_them() {
        let vars = [("CNI_IFNAME", "net1"), ("CNI_ARGS", "A=1;B={\"x\":2}"), ("CAP_ARGS", r#"{"mac":"x"}"#)];
        let conf = read("n", "/n", &env(&vars)).unwrap();
        assert_eq!(conf.attachment.ifname.as_str(), "net1");
        assert_eq!(conf.args_text(), "A=1;B={\"x\":2}");
        assert_eq!(conf.capabilities.member("mac"), Some(&Json::String("x".into())));
    }

    #[test]
    fn malformed_variables_are_named() {
        let error = |vars| format!("{:#}", read("n", "/n", &env(&[vars])).unwrap_err());
        assert_eq!(error(("CNI_ARGS", "A=1;")), r#"invalid CNI_ARGS pair """#);
        assert_eq!(error(("CNI_ARGS", "A=1=2")), r#"invalid CNI_ARGS pair "A=1=2""#);
        assert_eq!(error(("CAP_ARGS", "[]")), "CAP_ARGS: not a JSON object");
        assert_eq!(error(("CAP_ARGS", "{")), "CAP_ARGS: unexpected end of JSON input");
        assert_eq!(
            error(("CNI_IFNAME", "a/b")),
            "CNI_IFNAME: interface name contains / or : or whitespace characters"
        );
    }
}
