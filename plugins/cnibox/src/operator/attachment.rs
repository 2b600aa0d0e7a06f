// SPDX-License-Identifier: Apache-2.0
//! Which container, which interface, with which arguments: read from the command line and the environment as cnitool
//! reads them (`cnitool/cnitool.go`).

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use cnibox_spec::{IfName, Json, quoted, sha512_prefix};
use cnibox_sys::Env;

use super::cache::{Entry, Key};

/// One container's interface on a network.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attachment {
    /// `CNI_CONTAINERID`.
    pub(crate) container: String,
    /// `CNI_NETNS`.
    pub(crate) netns: String,
    /// `CNI_IFNAME`.
    pub(crate) ifname: String,
    /// The pairs of `CNI_ARGS`.
    pub(crate) args: Vec<Vec<String>>,
    /// The values of capabilities: an object, or null when nothing was said.
    pub(crate) capabilities: Json,
}

impl Attachment {
    /// The attachment of the namespace at `netns`, with `CNI_IFNAME`, `CNI_ARGS` and `CAP_ARGS` from `env`.
    ///
    /// # Errors
    /// For a variable that is malformed.
    pub(crate) fn read(netns: &str, env: &Env) -> Result<Self> {
        let netns = absolute(netns)?;
        let ifname = match env.var("CNI_IFNAME") {
            name if name.is_empty() => "eth0".to_owned(),
            name => IfName::new(&name).context("CNI_IFNAME")?.to_string(),
        };
        Ok(Self {
            container: format!("cnitool-{}", sha512_prefix(&[&netns], 20)),
            netns,
            ifname,
            args: pairs(&env.var("CNI_ARGS"))?,
            capabilities: capabilities(&env.var("CAP_ARGS"))?,
        })
    }

    /// Takes from a remembered attachment what this call did not say itself.
    pub(crate) fn complete_from(&mut self, entry: &Entry) {
        if self.args.is_empty() {
            self.args.clone_from(&entry.args);
        }
        if self.capabilities == Json::Null {
            self.capabilities.clone_from(&entry.capabilities);
        }
    }

    /// Its place in the cache, as an attachment to `network`.
    pub(crate) fn key<'a>(&'a self, network: &'a str) -> Key<'a> {
        Key { network, container: &self.container, ifname: &self.ifname }
    }

    /// The value of `CNI_ARGS`.
    pub(crate) fn args_text(&self) -> String {
        self.args.iter().map(|pair| pair.join("=")).collect::<Vec<_>>().join(";")
    }
}

impl From<Entry> for Attachment {
    fn from(entry: Entry) -> Self {
        let Entry { container, netns, ifname, args, capabilities, .. } = entry;
        Self { container, netns, ifname, args, capabilities }
    }
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
    Ok(text(&clean)?.to_owned())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
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
            let attachment = Attachment::read(path, &env(&[])).unwrap();
            assert_eq!(attachment.netns, "/run/netns/pod");
            assert_eq!(attachment.container, expected);
            assert_eq!(attachment.ifname, "eth0");
        }
    }

    #[test]
    fn variables_are_read_as_cnitool_reads_them() {
        let vars = [("CNI_IFNAME", "net1"), ("CNI_ARGS", "A=1;B={\"x\":2}"), ("CAP_ARGS", r#"{"mac":"x"}"#)];
        let attachment = Attachment::read("/n", &env(&vars)).unwrap();
        assert_eq!(attachment.ifname, "net1");
        assert_eq!(attachment.args_text(), "A=1;B={\"x\":2}");
        assert_eq!(attachment.capabilities.member("mac"), Some(&Json::String("x".into())));
    }

    #[test]
    fn malformed_variables_are_named() {
        let error = |vars| format!("{:#}", Attachment::read("/n", &env(&[vars])).unwrap_err());
        assert_eq!(error(("CNI_ARGS", "A=1;")), r#"invalid CNI_ARGS pair """#);
        assert_eq!(error(("CNI_ARGS", "A=1=2")), r#"invalid CNI_ARGS pair "A=1=2""#);
        assert_eq!(error(("CAP_ARGS", "[]")), "CAP_ARGS: not a JSON object");
        assert_eq!(error(("CAP_ARGS", "{")), "CAP_ARGS: unexpected end of JSON input");
        assert_eq!(
            error(("CNI_IFNAME", "a/b")),
            "CNI_IFNAME: interface name contains / or : or whitespace characters"
        );
    }

    #[test]
    fn what_was_said_now_wins_over_what_is_remembered() {
        let entry = Entry {
            args: vec![vec!["A".into(), "old".into()]],
            capabilities: Json::parse(br#"{"mac":"old"}"#).unwrap(),
            ..Entry::default()
        };
        let mut said = Attachment::read("/n", &env(&[("CNI_ARGS", "A=new")])).unwrap();
        said.complete_from(&entry);
        assert_eq!(said.args_text(), "A=new");
        assert_eq!(said.capabilities, entry.capabilities);
    }
}
