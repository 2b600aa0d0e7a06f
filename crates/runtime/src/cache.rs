// SPDX-License-Identifier: Apache-2.0
//! What ADD remembers for DEL, CHECK and GC: libcni's own files (`cachedInfo` in `libcni/api.go`), so that every runtime
//! built on libcni and this one read each other's. A file is replaced in one step; nobody sees half of one.

use std::fs::{self, DirEntry};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cnibox_spec::{Attachment, Json, NetworkName, decode};
use serde::{Deserialize, Serialize};

use crate::{Error, RuntimeConf, bounded};

/// The directory that libcni uses unless its caller says otherwise.
pub const CACHE_DIR: &str = "/var/lib/cni/results";

/// The directory of remembered attachments.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

/// One remembered attachment.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// What ADD was called with.
    pub conf: RuntimeConf,
    /// The network as ADD used it; empty when nobody can read it.
    pub network: Vec<u8>,
    /// The chain's result.
    pub result: Json,
}

impl Cache {
    /// The cache in `dir`, which need not exist.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The remembered attachment; `None` when there is no file.
    ///
    /// # Errors
    /// When the file says nothing that can be understood.
    pub fn read(&self, attachment: &Attachment) -> Result<Option<Remembered>, Error> {
        let Ok(bytes) = bounded::read(&self.file(attachment)) else { return Ok(None) };
        let network = || attachment.network.to_string();
        let json = Json::parse(&bytes).map_err(|error| Error::CachedJson(network(), error))?;
        match shape(&json) {
            Some(shape) => Ok(Some(shape.of(attachment.clone()))),
            // libcni once kept nothing but the result.
            None if json.member("cniVersion").is_some() => {
                Ok(Some(Shape { result: json, ..Shape::default() }.of(attachment.clone())))
            }
            None => Err(Error::CachedKind(network())),
        }
    }

    /// Remembers an attachment.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, remembered: &Remembered) -> Result<(), Error> {
        let attachment = &remembered.conf.attachment;
        let bytes = serde_json::to_vec(&Shape::from(remembered)).map_err(io::Error::from);
        let written = bytes.and_then(|bytes| replace(&self.dir, &self.file(attachment), &bytes));
        written.map_err(|error| Error::NotCached(attachment.network.to_string(), error))
    }

    /// Forgets an attachment. Failing to costs nothing but a stale file, as in libcni.
    pub fn forget(&self, attachment: &Attachment) {
        let _ = fs::remove_file(self.file(attachment));
    }

    /// Every remembered attachment, by file name; what is none is passed over.
    ///
    /// # Errors
    /// When the directory exists but cannot be read.
    pub fn all(&self) -> Result<Vec<Remembered>, Error> {
        let read = |file: DirEntry| {
            let shape = shape(&Json::parse(&bounded::read(&file.path()).ok()?).ok()?)?;
            let attachment = Attachment::new(&shape.network, &shape.container, &shape.ifname).ok()?;
            Some(shape.of(attachment))
        };
        Ok(bounded::entries(&self.dir)?.into_iter().filter_map(read).collect())
    }

    /// Those of `network`.
    ///
    /// # Errors
    /// See [`Cache::all`].
    pub fn of_network(&self, network: &NetworkName) -> Result<Vec<Remembered>, Error> {
        let mut all = self.all()?;
        all.retain(|remembered| remembered.conf.attachment.network == *network);
        Ok(all)
    }

    /// Finds out whether all is known of those of `network`: who is attached by a file that cannot be read may live.
    ///
    /// # Errors
    /// [`Error::Unread`] of the first file with the name of one of the network's that is none; see [`Cache::all`].
    pub fn expect_whole(&self, network: &NetworkName) -> Result<(), Error> {
        let prefix = format!("{network}-");
        let mut files = bounded::entries(&self.dir)?;
        files.retain(|file| file.file_name().as_bytes().starts_with(prefix.as_bytes()));
        for file in files.iter().map(DirEntry::path) {
            let unread = |error| Error::Unread(file.clone(), error);
            let bytes = match bounded::read(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes.map_err(unread)?,
            };
            Json::parse(&bytes).map_err(|error| unread(io::Error::other(error)))?;
        }
        Ok(())
    }

    fn file(&self, attachment: &Attachment) -> PathBuf {
        let Attachment { network, container, ifname } = attachment;
        self.dir.join(format!("{network}-{container}-{ifname}"))
    }
}

/// `cachedInfo`, member for member.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename = "cachedInfo", default)]
struct Shape {
    kind: String,
    #[serde(rename = "containerId")]
    container: String,
    config: String,
    #[serde(rename = "ifName")]
    ifname: String,
    #[serde(rename = "networkName")]
    network: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    netns: String,
    #[serde(rename = "cniArgs", skip_serializing_if = "Vec::is_empty")]
    args: Vec<Vec<String>>,
    #[serde(rename = "capabilityArgs", skip_serializing_if = "is_null")]
    capabilities: Json,
    #[serde(skip_serializing_if = "is_null")]
    result: Json,
}

impl Shape {
    fn of(self, attachment: Attachment) -> Remembered {
        let Self { netns, args, capabilities, result, .. } = self;
        let network = STANDARD.decode(&self.config).unwrap_or_default();
        Remembered { conf: RuntimeConf { attachment, netns, args, capabilities }, network, result }
    }
}

impl From<&Remembered> for Shape {
    fn from(remembered: &Remembered) -> Self {
        let RuntimeConf { attachment, netns, args, capabilities } = remembered.conf.clone();
        Self {
            kind: KIND.to_owned(),
            container: attachment.container.to_string(),
            config: STANDARD.encode(&remembered.network),
            ifname: attachment.ifname.to_string(),
            network: attachment.network.to_string(),
            netns,
            args,
            capabilities,
            result: remembered.result.clone(),
        }
    }
}

/// Anything of another kind is not libcni's.
const KIND: &str = "cniCacheV1";

fn shape(json: &Json) -> Option<Shape> {
    decode(json).ok().filter(|shape: &Shape| shape.kind == KIND)
}

fn replace(dir: &Path, file: &Path, bytes: &[u8]) -> io::Result<()> {
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
