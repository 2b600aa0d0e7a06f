// SPDX-License-Identifier: Apache-2.0
//! Network configurations on disk, found and read as libcni does (`libcni/conf.go`): `.conflist` files first, in the
//! order of their names, then `.conf` and `.json` files with one plugin each. Must never run anything.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cnibox_spec::{CniVersion, DecodeError, Json, JsonError, VersionError, VersionNumber, decode, quoted};
use serde::Deserialize;
use thiserror::Error;

use crate::bounded;

/// Where runtimes look for networks unless they are told otherwise.
pub const NETWORKS_DIR: &str = "/etc/cni/net.d";

/// Why a network cannot be had.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// The directory has no configuration.
    #[error("no net configurations found in {}", .0.display())]
    NoneFound(PathBuf),
    /// The directory has configurations, but none of this name.
    #[error("no net configuration with name {} in {}", quoted(.0), .1.display())]
    NotFound(String, PathBuf),
    /// A directory cannot be listed.
    #[error("read {dir}: {1}", dir = .0.display())]
    Directory(PathBuf, io::Error),
    /// A file is no configuration.
    #[error("{file}: {1}", file = .0.display())]
    File(PathBuf, Box<NetworkError>),
    /// It cannot be read.
    #[error("read: {0}")]
    Read(#[from] io::Error),
    /// It is no list of plugins.
    #[error("error parsing configuration list: {0}")]
    List(#[from] ListError),
    /// It is no plugin's configuration.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// Neither the list nor the network's own folder has a plugin.
    #[error("no plugin configs found")]
    NoPlugins,
}

/// What is wrong with a list of plugins. Types are Go's.
#[derive(Debug, Error)]
pub enum ListError {
    /// It is no JSON document.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// `name` is missing.
    #[error("no name")]
    NoName,
    /// A member has the wrong type.
    #[error("invalid {0} type {1}")]
    Type(&'static str, &'static str),
    /// `cniVersions` is no list.
    #[error("invalid type for cniVersions: {0}")]
    VersionsType(&'static str),
    /// An item of `cniVersions` is no text.
    #[error("invalid type for cniVersions index {0}: {1}")]
    OfferType(usize, &'static str),
    /// `cniVersion`, read beside `cniVersions`, is no version.
    #[error("invalid cniVersion {0}: {1}")]
    Version(String, VersionError),
    /// An item of `cniVersions` is no version.
    #[error("invalid cniVersions entry {1} at index {0}: {2}")]
    Offer(usize, String, VersionError),
    /// A switch is a text that is neither `true` nor `false`.
    #[error("invalid value {name} for {1}", name = quoted(.0))]
    Flag(String, &'static str),
    /// A switch is no boolean.
    #[error("invalid type {0} for {1}")]
    FlagType(&'static str, &'static str),
    /// No plugin may come from elsewhere, and the list says nothing of any.
    #[error("`loadOnlyInlinedPlugins` is true, and no 'plugins' key")]
    NoKey,
    /// `plugins` is empty.
    #[error("no plugins in list")]
    NoPlugins,
    /// A plugin's configuration is none.
    #[error("failed to parse plugin config {0}: {1}")]
    Plugin(usize, PluginError),
}

/// What is wrong with a plugin's configuration, as far as a runtime reads it.
#[derive(Debug, Error)]
pub enum PluginError {
    /// It is no JSON document.
    #[error("error parsing configuration: {0}")]
    Json(#[from] JsonError),
    /// A member has the wrong type.
    #[error("error parsing configuration: {0}")]
    Decode(#[from] DecodeError),
    /// `type` is missing.
    #[error("error parsing configuration: missing 'type'")]
    NoType,
}

/// A network: its plugins in the order in which ADD runs them.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// `name`, as it is written: ADD is who asks whether that is one.
    pub name: String,
    /// `cniVersion`, or the highest known one of `cniVersions`; may be empty, which means 0.1.0.
    pub version: String,
    /// `disableCheck`: CHECK does nothing and succeeds.
    pub disable_check: bool,
    /// `disableGC`: GC does nothing and succeeds.
    pub disable_gc: bool,
    /// The chain, never empty.
    pub plugins: Vec<PluginConf>,
    /// The list as it was written, for the cache.
    pub bytes: Vec<u8>,
    inlined_only: bool,
}

/// One plugin of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginConf {
    /// `type`: the executable's name.
    pub kind: String,
    /// `name`, usually absent within a list.
    pub name: String,
    /// The capabilities that are switched on.
    pub capabilities: Vec<String>,
    /// The configuration as it was written.
    pub json: Json,
}

impl Network {
    /// Whether the network's version is at least `version`.
    ///
    /// # Errors
    /// When `cniVersion` is no version.
    pub fn speaks(&self, version: CniVersion) -> Result<bool, VersionError> {
        Ok(VersionNumber::parse(&self.version)? >= VersionNumber::of(version))
    }
}

/// What came of reading one file.
type Reading = Result<Network, NetworkError>;

/// The directory of networks.
#[derive(Clone, Debug)]
pub struct Networks {
    dir: PathBuf,
}

impl Networks {
    /// The networks in `dir`, which need not exist.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Finds the network called `name`.
    ///
    /// # Errors
    /// When there is none, or when a file that sorts before it cannot be read: a broken file is never skipped.
    pub fn find(&self, name: &str) -> Result<Network, NetworkError> {
        let mut is_empty = true;
        for (file, network) in self.all()? {
            is_empty = false;
            let network = network.map_err(|error| NetworkError::File(file, Box::new(error)))?;
            if network.name == name {
                return Ok(network);
            }
        }
        let dir = self.dir.clone();
        Err(if is_empty {
            NetworkError::NoneFound(dir)
        } else {
            NetworkError::NotFound(name.to_owned(), dir)
        })
    }

    /// Every network, or why it cannot be read, by file. Each is read when it is asked for.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn all(&self) -> Result<impl Iterator<Item = (PathBuf, Reading)> + use<>, NetworkError> {
        let lists = files(&self.dir, &[".conflist"])?.into_iter().map(|file| (read_list(&file), file));
        let single = |file: &Path| list_of_one(&read_plugin(file)?);
        let singles = files(&self.dir, &[".conf", ".json"])?.into_iter();
        let singles = singles.map(move |file| (single(&file), file));
        Ok(lists.chain(singles).map(|(network, file)| (file, network)))
    }

    /// The network that `bytes`, written by an earlier ADD, describe; plugins in the network's own folder are read anew.
    ///
    /// # Errors
    /// When the bytes are no network.
    pub fn remembered(&self, bytes: &[u8]) -> Result<Network, NetworkError> {
        with_folder(parse(bytes)?, &self.dir)
    }
}

fn read_list(file: &Path) -> Result<Network, NetworkError> {
    with_folder(parse(&bounded::read(file)?)?, file.parent().unwrap_or(Path::new("")))
}

/// Adds the plugins of the folder that has the network's name, unless the list forbids it.
fn with_folder(mut network: Network, dir: &Path) -> Result<Network, NetworkError> {
    if !network.inlined_only {
        for file in files(&dir.join(&network.name), &[".conf"])? {
            let plugin = read_plugin(&file).map_err(|error| NetworkError::File(file, Box::new(error)))?;
            network.plugins.push(plugin);
        }
    }
    if network.plugins.is_empty() { Err(NetworkError::NoPlugins) } else { Ok(network) }
}

fn read_plugin(file: &Path) -> Result<PluginConf, NetworkError> {
    let json = Json::parse(&bounded::read(file)?).map_err(PluginError::from)?;
    Ok(plugin(json)?)
}

/// A file with one plugin as a list; in the cache it stands as libcni writes it.
fn list_of_one(plugin: &PluginConf) -> Result<Network, NetworkError> {
    let version = exact(&plugin.json, "cniVersion").and_then(Json::as_str).unwrap_or_default();
    let list = Json::Object(vec![
        ("cniVersion".to_owned(), Json::String(version.to_owned())),
        ("name".to_owned(), Json::String(plugin.name.clone())),
        ("plugins".to_owned(), Json::Array(vec![plugin.json.clone()])),
    ]);
    Ok(parse(list.to_string().as_bytes())?)
}

fn parse(bytes: &[u8]) -> Result<Network, ListError> {
    let json = Json::parse(bytes)?;
    let name = exact(&json, "name").ok_or(ListError::NoName)?;
    let name = name.as_str().ok_or(ListError::Type("name", go_type(name)))?;
    let inlined_only = flag(&json, "loadOnlyInlinedPlugins")?;
    Ok(Network {
        name: name.to_owned(),
        version: version(&json)?,
        disable_check: flag(&json, "disableCheck")?,
        disable_gc: flag(&json, "disableGC")?,
        plugins: inlined(&json, inlined_only)?,
        bytes: bytes.to_vec(),
        inlined_only,
    })
}

/// `cniVersion`, or the highest of it and `cniVersions` that is not newer than ours.
fn version(json: &Json) -> Result<String, ListError> {
    let single = match exact(json, "cniVersion") {
        None => String::new(),
        Some(Json::String(version)) => version.clone(),
        Some(other) => return Err(ListError::Type("cniVersion", go_type(other))),
    };
    let mut offered = match exact(json, "cniVersions") {
        None => return Ok(single),
        Some(Json::Array(versions)) => {
            versions.iter().enumerate().map(offer).collect::<Result<Vec<_>, _>>()?
        }
        Some(other) => return Err(ListError::VersionsType(go_type(other))),
    };
    if !single.is_empty() {
        let number = VersionNumber::parse(&single);
        offered.push((number.map_err(|error| ListError::Version(single.clone(), error))?, single.clone()));
    }
    offered.retain(|(number, _)| *number <= VersionNumber::of(CniVersion::CURRENT));
    let highest = offered.into_iter().max_by(|(a, _), (b, _)| a.cmp(b));
    Ok(highest.map_or(single, |(_, text)| text))
}

fn offer((index, version): (usize, &Json)) -> Result<(VersionNumber, String), ListError> {
    let Json::String(text) = version else { return Err(ListError::OfferType(index, go_type(version))) };
    let number = VersionNumber::parse(text);
    Ok((number.map_err(|error| ListError::Offer(index, text.clone(), error))?, text.clone()))
}

/// A boolean, also written as text.
fn flag(json: &Json, key: &'static str) -> Result<bool, ListError> {
    match exact(json, key) {
        None => Ok(false),
        Some(Json::Bool(flag)) => Ok(*flag),
        Some(Json::String(text)) => match text.to_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(ListError::Flag(other.to_owned(), key)),
        },
        Some(other) => Err(ListError::FlagType(go_type(other), key)),
    }
}

fn inlined(json: &Json, inlined_only: bool) -> Result<Vec<PluginConf>, ListError> {
    let plugins = match exact(json, "plugins") {
        None if inlined_only => return Err(ListError::NoKey),
        None => return Ok(Vec::new()),
        Some(Json::Array(plugins)) if plugins.is_empty() => return Err(ListError::NoPlugins),
        Some(Json::Array(plugins)) => plugins,
        Some(other) => return Err(ListError::Type("'plugins'", go_type(other))),
    };
    let parsed = plugins.iter().enumerate();
    let parsed = parsed.map(|(at, json)| plugin(json.clone()).map_err(|error| ListError::Plugin(at, error)));
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

fn plugin(json: Json) -> Result<PluginConf, PluginError> {
    let shape: Shape = decode(&json)?;
    if shape.kind.is_empty() {
        return Err(PluginError::NoType);
    }
    let capabilities = shape.capabilities.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    Ok(PluginConf { kind: shape.kind, name: shape.name, capabilities, json })
}

/// The files in `dir` that end in one of `endings`, by name; none when there is no such directory.
fn files(dir: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, NetworkError> {
    let unread = |error| NetworkError::Directory(dir.to_owned(), error);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unread)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unread)?;
        let name = entry.file_name();
        let matches = endings.iter().any(|ending| name.as_encoded_bytes().ends_with(ending.as_bytes()));
        if matches && !entry.file_type().map_err(unread)?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// The last member called exactly `key`: a list's own keys are case-sensitive, unlike a plugin's.
pub(crate) fn exact<'a>(json: &'a Json, key: &str) -> Option<&'a Json> {
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
