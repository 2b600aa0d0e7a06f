// SPDX-License-Identifier: Apache-2.0
//! What ADD remembers for DEL, CHECK and GC: libcni's own files (`cachedInfo` in `libcni/api.go`), so that every runtime
//! built on libcni and this one read each other's. A file is replaced in one step; nobody sees half of one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cnibox_spec::{Json, decode, quoted};
use serde::{Deserialize, Serialize};

/// The directory that libcni uses unless its caller says otherwise.
pub(crate) const DEFAULT_DIR: &str = "/var/lib/cni/results";

/// The directory of remembered attachments.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

/// Which attachment: the three parts of a file's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// The network's name, checked.
    pub(crate) network: &'a str,
    /// The container's ID, checked.
    pub(crate) container: &'a str,
    /// The interface's name, checked.
    pub(crate) ifname: &'a str,
}

/// One remembered attachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "cachedInfo", default)]
pub(crate) struct Entry {
    /// [`KIND`]; anything else is not libcni's.
    pub(crate) kind: String,
    /// The container's ID.
    #[serde(rename = "containerId")]
    pub(crate) container: String,
    /// The network configuration, in base64.
    pub(crate) config: String,
    /// The interface's name inside the container.
    #[serde(rename = "ifName")]
    pub(crate) ifname: String,
    /// The network's name.
    #[serde(rename = "networkName")]
    pub(crate) network: String,
    /// The path of the container's namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) netns: String,
    /// `CNI_ARGS`, in pairs.
    #[serde(rename = "cniArgs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<Vec<String>>,
    /// The values of capabilities, an object.
    #[serde(rename = "capabilityArgs", skip_serializing_if = "is_null")]
    pub(crate) capabilities: Json,
    /// The chain's result.
    #[serde(skip_serializing_if = "is_null")]
    pub(crate) result: Json,
}

impl Entry {
    /// The network configuration that ADD used, if it can be read.
    pub(crate) fn config(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.config).ok().filter(|bytes| !bytes.is_empty())
    }

    /// The entry with a network configuration.
    pub(crate) fn with_config(self, bytes: &[u8]) -> Self {
        Self { config: STANDARD.encode(bytes), kind: KIND.to_owned(), ..self }
    }
}

impl Cache {
    /// The cache in `dir`, which need not exist.
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The remembered attachment; `None` when there is no file.
    ///
    /// # Errors
    /// When the file says nothing that can be understood.
    pub(crate) fn read(&self, key: Key<'_>) -> Result<Option<Entry>> {
        let Ok(bytes) = fs::read(self.file(key)) else { return Ok(None) };
        let network = quoted(key.network);
        let json = Json::parse(&bytes)
            .with_context(|| format!("failed to unmarshal cached network {network} config"))?;
        Ok(Some(match entry(&json) {
            Some(entry) => entry,
            // libcni once kept nothing but the result.
            None if json.member("cniVersion").is_some() => Entry { result: json, ..Entry::default() },
            None => bail!("read cached network {network} config has wrong kind"),
        }))
    }

    /// Remembers an attachment.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, entry: &Entry) -> Result<()> {
        let key = Key { network: &entry.network, container: &entry.container, ifname: &entry.ifname };
        let bytes = serde_json::to_vec(entry)?;
        replace(&self.dir, &self.file(key), &bytes)
            .with_context(|| format!("failed to set network {} cached result", quoted(key.network)))
    }

    /// Forgets an attachment. Failing to costs nothing but a stale file, as in libcni.
    pub(crate) fn forget(&self, key: Key<'_>) {
        let _ = fs::remove_file(self.file(key));
    }

    /// Every attachment of `network`, by file name; what is no entry is passed over.
    ///
    /// # Errors
    /// When the directory exists but cannot be read.
    pub(crate) fn attachments(&self, network: &str) -> Result<Vec<Entry>> {
        let listing = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            listing => listing.with_context(|| format!("read {}", self.dir.display()))?,
        };
        let mut files: Vec<PathBuf> = listing.filter_map(|file| Some(file.ok()?.path())).collect();
        files.sort();
        let parsed = files.iter().filter_map(|file| entry(&Json::parse(&fs::read(file).ok()?).ok()?));
        Ok(parsed.filter(|entry| entry.network == network && !entry.ifname.is_empty()).collect())
    }

    fn file(&self, key: Key<'_>) -> PathBuf {
        self.dir.join(format!("{}-{}-{}", key.network, key.container, key.ifname))
    }
}

const KIND: &str = "cniCacheV1";

fn entry(json: &Json) -> Option<Entry> {
    decode(json).ok().filter(|entry: &Entry| entry.kind == KIND)
}

fn replace(dir: &Path, file: &Path, bytes: &[u8]) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut new = tempfile::NamedTempFile::new_in(dir)?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

fn is_null(json: &Json) -> bool {
    *json == Json::Null
}

#[cfg(test)]
mod tests;
