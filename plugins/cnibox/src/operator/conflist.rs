// SPDX-License-Identifier: Apache-2.0
//! Network configurations on disk, found and read as libcni does (`libcni/conf.go`): `.conflist` files first, in the
//! order of their names, then `.conf` and `.json` files with one plugin each. Must never run anything.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use cnibox_spec::{CniVersion, Json, VersionNumber, decode, quoted};
use serde::Deserialize;

/// A network: its plugins in the order in which ADD runs them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Network {
    /// `name`.
    pub(crate) name: String,
    /// `cniVersion`, or the highest known one of `cniVersions`; may be empty, which means 0.1.0.
    pub(crate) version: String,
    /// `disableCheck`: CHECK does nothing and succeeds.
    pub(crate) disable_check: bool,
    /// `disableGC`: GC does nothing and succeeds.
    pub(crate) disable_gc: bool,
    /// The chain, never empty once [`find`] or [`remembered`] has answered.
    pub(crate) plugins: Vec<PluginConf>,
    /// The list as it was written, for the cache.
    pub(crate) bytes: Vec<u8>,
    inlined_only: bool,
}

/// One plugin of a network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PluginConf {
    /// `type`: the executable's name.
    pub(crate) kind: String,
    /// `name`, usually absent within a list.
    pub(crate) name: String,
    /// The capabilities that are switched on.
    pub(crate) capabilities: Vec<String>,
    /// The configuration as it was written.
    pub(crate) json: Json,
}

impl Network {
    /// Whether the network's version is at least `version`.
    ///
    /// # Errors
    /// When `cniVersion` is no version.
    pub(crate) fn speaks(&self, version: CniVersion) -> Result<bool> {
        Ok(VersionNumber::parse(&self.version)? >= VersionNumber::of(version))
    }
}

/// Finds the network called `name` in the directory `dir`.
///
/// # Errors
/// When there is none, or when a file that sorts before it cannot be read: a broken file is never skipped.
pub(crate) fn find(dir: &Path, name: &str) -> Result<Network> {
    let lists = files(dir, &[".conflist"])?;
    for file in &lists {
        let network = read_list(file).with_context(|| file.display().to_string())?;
        if network.name == name {
            return Ok(network);
        }
    }
    let singles = files(dir, &[".conf", ".json"])?;
    for file in &singles {
        let plugin = read_plugin(file)?;
        if plugin.name == name {
            return list_of_one(&plugin);
        }
    }
    if lists.is_empty() && singles.is_empty() {
        bail!("no net configurations found in {}", dir.display());
    }
    bail!("no net configuration with name {} in {}", quoted(name), dir.display())
}

/// The network that `bytes`, written by an earlier ADD, describe; plugins in the network's own folder below `dir` are
/// read anew.
///
/// # Errors
/// When the bytes are no network.
pub(crate) fn remembered(bytes: &[u8], dir: &Path) -> Result<Network> {
    with_folder(parse(bytes)?, dir)
}

/// Every network in the directory `dir`, or why it cannot be read, by file.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn all(dir: &Path) -> Result<Vec<(PathBuf, Result<Network>)>> {
    let lists = files(dir, &[".conflist"])?.into_iter().map(|file| (read_list(&file), file));
    let singles = files(dir, &[".conf", ".json"])?
        .into_iter()
        .map(|file| (read_plugin(&file).and_then(|plugin| list_of_one(&plugin)), file));
    Ok(lists.chain(singles).map(|(network, file)| (file, network)).collect())
}

fn read_list(file: &Path) -> Result<Network> {
    let bytes = fs::read(file).context("read")?;
    with_folder(parse(&bytes)?, file.parent().unwrap_or(Path::new("")))
}

/// Adds the plugins of the folder that has the network's name, unless the list forbids it.
fn with_folder(mut network: Network, dir: &Path) -> Result<Network> {
    if !network.inlined_only {
        for file in files(&dir.join(&network.name), &[".conf"])? {
            network.plugins.push(read_plugin(&file)?);
        }
    }
    if network.plugins.is_empty() {
        bail!("no plugin configs found");
    }
    Ok(network)
}

fn read_plugin(file: &Path) -> Result<PluginConf> {
    let parsed = fs::read(file)
        .context("read")
        .and_then(|bytes| plugin(Json::parse(&bytes).context("error parsing configuration")?));
    parsed.with_context(|| file.display().to_string())
}

/// A file with one plugin as a list; in the cache it stands as libcni writes it.
fn list_of_one(plugin: &PluginConf) -> Result<Network> {
    let version = exact(&plugin.json, "cniVersion").and_then(Json::as_str).unwrap_or_default();
    let list = Json::Object(vec![
        ("cniVersion".to_owned(), Json::String(version.to_owned())),
        ("name".to_owned(), Json::String(plugin.name.clone())),
        ("plugins".to_owned(), Json::Array(vec![plugin.json.clone()])),
    ]);
    parse(&serde_json::to_vec(&list)?)
}

fn parse(bytes: &[u8]) -> Result<Network> {
    parse_list(bytes).context("error parsing configuration list")
}

fn parse_list(bytes: &[u8]) -> Result<Network> {
    let json = Json::parse(bytes)?;
    let Some(name) = exact(&json, "name") else { bail!("no name") };
    let name = name.as_str().ok_or_else(|| anyhow!("invalid name type {}", go_type(name)))?;
    let network = Network {
        name: name.to_owned(),
        version: version(&json)?,
        disable_check: flag(&json, "disableCheck")?,
        disable_gc: flag(&json, "disableGC")?,
        inlined_only: flag(&json, "loadOnlyInlinedPlugins")?,
        plugins: Vec::new(),
        bytes: bytes.to_vec(),
    };
    let plugins = inlined(&json, network.inlined_only)?;
    Ok(Network { plugins, ..network })
}

/// `cniVersion`, or the highest of it and `cniVersions` that is not newer than ours.
fn version(json: &Json) -> Result<String> {
    let single = match exact(json, "cniVersion") {
        None => String::new(),
        Some(Json::String(version)) => version.clone(),
        Some(other) => bail!("invalid cniVersion type {}", go_type(other)),
    };
    let mut offered = match exact(json, "cniVersions") {
        None => return Ok(single),
        Some(Json::Array(versions)) => versions.iter().enumerate().map(offer).collect::<Result<Vec<_>>>()?,
        Some(other) => bail!("invalid type for cniVersions: {}", go_type(other)),
    };
    if !single.is_empty() {
        let number = VersionNumber::parse(&single).with_context(|| format!("invalid cniVersion {single}"))?;
        offered.push((number, single.clone()));
    }
    offered.retain(|(number, _)| *number <= VersionNumber::of(CniVersion::CURRENT));
    let highest = offered.into_iter().max_by(|(a, _), (b, _)| a.cmp(b));
    Ok(highest.map_or(single, |(_, text)| text))
}

fn offer((index, version): (usize, &Json)) -> Result<(VersionNumber, String)> {
    let Json::String(text) = version else {
        bail!("invalid type for cniVersions index {index}: {}", go_type(version));
    };
    let number = VersionNumber::parse(text)
        .with_context(|| format!("invalid cniVersions entry {text} at index {index}"))?;
    Ok((number, text.clone()))
}

/// A boolean, also written as text.
fn flag(json: &Json, key: &str) -> Result<bool> {
    match exact(json, key) {
        None => Ok(false),
        Some(Json::Bool(flag)) => Ok(*flag),
        Some(Json::String(text)) => match text.to_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => bail!("invalid value {} for {key}", quoted(other)),
        },
        Some(other) => bail!("invalid type {} for {key}", go_type(other)),
    }
}

fn inlined(json: &Json, inlined_only: bool) -> Result<Vec<PluginConf>> {
    let plugins = match exact(json, "plugins") {
        None if inlined_only => bail!("`loadOnlyInlinedPlugins` is true, and no 'plugins' key"),
        None => return Ok(Vec::new()),
        Some(Json::Array(plugins)) if plugins.is_empty() => bail!("no plugins in list"),
        Some(Json::Array(plugins)) => plugins,
        Some(other) => bail!("invalid 'plugins' type {}", go_type(other)),
    };
    let parsed = plugins.iter().enumerate().map(|(index, json)| {
        plugin(json.clone()).with_context(|| format!("failed to parse plugin config {index}"))
    });
    parsed.collect()
}

/// What libcni itself reads of a plugin's configuration; the plugin reads the rest.
#[derive(Default, Deserialize)]
#[serde(rename = "PluginConf", default)]
struct Shape {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    capabilities: BTreeMap<String, bool>,
}

fn plugin(json: Json) -> Result<PluginConf> {
    let shape: Shape = decode(&json).context("error parsing configuration")?;
    if shape.kind.is_empty() {
        bail!("error parsing configuration: missing 'type'");
    }
    let capabilities = shape.capabilities.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    Ok(PluginConf { kind: shape.kind, name: shape.name, capabilities, json })
}

/// The files in `dir` that end in one of `endings`, by name; none when there is no such directory.
fn files(dir: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("read {}", dir.display()))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("read {}", dir.display()))?;
        let name = entry.file_name();
        let matches = endings.iter().any(|ending| name.as_encoded_bytes().ends_with(ending.as_bytes()));
        if matches && !entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// The last member called exactly `key`: a list's own keys are case-sensitive, unlike a plugin's.
fn exact<'a>(json: &'a Json, key: &str) -> Option<&'a Json> {
    let Json::Object(members) = json else { return None };
    members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
}

/// How Go's `%T` names a decoded JSON value.
fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests;
