// SPDX-License-Identifier: Apache-2.0
//! Network configurations on disk, found and read as libcni does (`libcni/conf.go`): `.conflist` files first, in the
//! order of their names, then `.conf` and `.json` files with one plugin each. Must never run anything.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use cnibox_spec::{CniVersion, Json, VersionError, VersionNumber, decode, quoted};
use serde::Deserialize;

use crate::{Error, bounded};

/// Where runtimes look for networks unless they are told otherwise.
pub const NETWORKS_DIR: &str = "/etc/cni/net.d";

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
type Reading = Result<Network, Error>;

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
    pub fn find(&self, name: &str) -> Result<Network, Error> {
        let mut is_empty = true;
        for (file, network) in self.all()? {
            is_empty = false;
            let network = network.map_err(|error| Error::File(file, Box::new(error)))?;
            if network.name == name {
                return Ok(network);
            }
        }
        let dir = self.dir.clone();
        Err(if is_empty { Error::NoneFound(dir) } else { Error::NotFound(name.to_owned(), dir) })
    }

    /// Every network, or why it cannot be read, by file. Each is read when it is asked for.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn all(&self) -> Result<impl Iterator<Item = (PathBuf, Reading)> + use<>, Error> {
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
    pub fn remembered(&self, bytes: &[u8]) -> Result<Network, Error> {
        with_folder(parse(bytes).map_err(Error::List)?, &self.dir)
    }
}

fn read_list(file: &Path) -> Result<Network, Error> {
    let network = parse(&bounded::read(file)?).map_err(Error::List)?;
    with_folder(network, file.parent().unwrap_or(Path::new("")))
}

/// Adds the plugins of the folder that has the network's name, unless the list forbids it.
fn with_folder(mut network: Network, dir: &Path) -> Result<Network, Error> {
    if !network.inlined_only {
        for file in files(&dir.join(&network.name), &[".conf"])? {
            let plugin = read_plugin(&file).map_err(|error| Error::File(file, Box::new(error)))?;
            network.plugins.push(plugin);
        }
    }
    if network.plugins.is_empty() { Err(Error::NoPlugins) } else { Ok(network) }
}

fn read_plugin(file: &Path) -> Result<PluginConf, Error> {
    let json = Json::parse(&bounded::read(file)?).map_err(|error| Error::Conf(error.to_string()))?;
    plugin(json).map_err(Error::Conf)
}

/// A file with one plugin as a list; in the cache it stands as libcni writes it.
fn list_of_one(plugin: &PluginConf) -> Result<Network, Error> {
    let version = exact(&plugin.json, "cniVersion").and_then(Json::as_str).unwrap_or_default();
    let list = Json::Object(vec![
        ("cniVersion".to_owned(), Json::String(version.to_owned())),
        ("name".to_owned(), Json::String(plugin.name.clone())),
        ("plugins".to_owned(), Json::Array(vec![plugin.json.clone()])),
    ]);
    parse(list.to_string().as_bytes()).map_err(Error::List)
}

fn parse(bytes: &[u8]) -> Result<Network, String> {
    let json = Json::parse(bytes).map_err(|error| error.to_string())?;
    let name = exact(&json, "name").ok_or("no name")?;
    let name = name.as_str().ok_or_else(|| wrong_type("name", name))?;
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
fn version(json: &Json) -> Result<String, String> {
    let single = match exact(json, "cniVersion") {
        None => String::new(),
        Some(Json::String(version)) => version.clone(),
        Some(other) => return Err(wrong_type("cniVersion", other)),
    };
    let mut offered = match exact(json, "cniVersions") {
        None => return Ok(single),
        Some(Json::Array(versions)) => {
            versions.iter().enumerate().map(offer).collect::<Result<Vec<_>, _>>()?
        }
        Some(other) => return Err(format!("invalid type for cniVersions: {}", go_type(other))),
    };
    if !single.is_empty() {
        let number =
            VersionNumber::parse(&single).map_err(|error| format!("invalid cniVersion {single}: {error}"))?;
        offered.push((number, single.clone()));
    }
    offered.retain(|(number, _)| *number <= VersionNumber::of(CniVersion::CURRENT));
    let highest = offered.into_iter().max_by(|(a, _), (b, _)| a.cmp(b));
    Ok(highest.map_or(single, |(_, text)| text))
}

fn offer((index, version): (usize, &Json)) -> Result<(VersionNumber, String), String> {
    let Json::String(text) = version else {
        return Err(format!("invalid type for cniVersions index {index}: {}", go_type(version)));
    };
    let number = VersionNumber::parse(text)
        .map_err(|error| format!("invalid cniVersions entry {text} at index {index}: {error}"))?;
    Ok((number, text.clone()))
}

/// A boolean, also written as text.
fn flag(json: &Json, key: &str) -> Result<bool, String> {
    match exact(json, key) {
        None => Ok(false),
        Some(Json::Bool(flag)) => Ok(*flag),
        Some(Json::String(text)) => match text.to_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(format!("invalid value {} for {key}", quoted(other))),
        },
        Some(other) => Err(format!("invalid type {} for {key}", go_type(other))),
    }
}

fn inlined(json: &Json, inlined_only: bool) -> Result<Vec<PluginConf>, String> {
    let plugins = match exact(json, "plugins") {
        None if inlined_only => {
            return Err("`loadOnlyInlinedPlugins` is true, and no 'plugins' key".to_owned());
        }
        None => return Ok(Vec::new()),
        Some(Json::Array(plugins)) if plugins.is_empty() => {
            return Err("no plugins in list".to_owned());
        }
        Some(Json::Array(plugins)) => plugins,
        Some(other) => return Err(wrong_type("'plugins'", other)),
    };
    let read = |(at, json): (usize, &Json)| {
        plugin(json.clone()).map_err(|error| {
            format!("failed to parse plugin config {at}: error parsing configuration: {error}")
        })
    };
    plugins.iter().enumerate().map(read).collect()
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

fn plugin(json: Json) -> Result<PluginConf, String> {
    let shape: Shape = decode(&json).map_err(|error| error.to_string())?;
    if shape.kind.is_empty() {
        return Err("missing 'type'".to_owned());
    }
    let capabilities = shape.capabilities.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    Ok(PluginConf { kind: shape.kind, name: shape.name, capabilities, json })
}

/// The files in `dir` that end in one of `endings`, by name.
fn files(dir: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let mut entries = bounded::entries(dir)?;
    entries.retain(|entry| {
        let name = entry.file_name();
        let matches = endings.iter().any(|ending| name.as_encoded_bytes().ends_with(ending.as_bytes()));
        matches && !entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    Ok(entries.iter().map(DirEntry::path).collect())
}

/// The last member called exactly `key`: a list's own keys are case-sensitive, unlike a plugin's.
pub(crate) fn exact<'a>(json: &'a Json, key: &str) -> Option<&'a Json> {
    let Json::Object(members) = json else { return None };
    members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
}

fn wrong_type(key: &str, value: &Json) -> String {
    format!("invalid {key} type {}", go_type(value))
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
