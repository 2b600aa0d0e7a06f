// SPDX-License-Identifier: Apache-2.0
//! Sysctls as configurations name them, and their files, which are below `/proc/sys/net` or refused.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use cnibox_netns::errno::io_text;
use cnibox_spec::{Code, Json, quoted};
use cnibox_sys::Coded;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use thiserror::Error;

/// Names and values, in the configuration's order, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sysctls(pub(crate) Vec<(String, String)>);

impl Sysctls {
    /// Adds others, which replace those of the same name.
    pub(crate) fn merge(&mut self, others: Self) {
        let all = std::mem::take(&mut self.0).into_iter().chain(others.0);
        *self = all.collect();
    }
}

/// Of a name that is there twice, the place of the first and the value of the last.
impl FromIterator<(String, String)> for Sysctls {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Self {
        let mut sysctls: Vec<(String, String)> = Vec::new();
        let mut places = HashMap::new();
        for (name, value) in all {
            let place = *places.entry(name.clone()).or_insert(sysctls.len());
            match sysctls.get_mut(place) {
                Some((_, old)) => *old = value,
                None => sysctls.push((name, value)),
            }
        }
        Self(sysctls)
    }
}

impl<'de> Deserialize<'de> for Sysctls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SysctlsVisitor)
    }
}

struct SysctlsVisitor;

impl<'de> Visitor<'de> for SysctlsVisitor {
    type Value = Sysctls;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sysctls and their values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sysctls, A::Error> {
        let next = || map.next_entry::<String, Option<String>>().transpose();
        let entries = std::iter::from_fn(next);
        entries.map(|entry| entry.map(|(name, value)| (name, value.unwrap_or_default()))).collect()
    }
}

/// Whether the configuration's `sysctl` has a name twice, which nobody can mean.
pub(crate) fn has_duplicates(json: &Json) -> bool {
    let Some(Json::Object(members)) = json.member("sysctl") else { return false };
    let mut names = HashSet::new();
    !members.iter().all(|(name, _)| names.insert(name))
}

/// Why a sysctl could not be looked at or set.
#[derive(Debug, Error)]
pub(crate) enum SysctlError {
    /// The name leads elsewhere than below `net`.
    #[error("invalid net sysctl key: {}", quoted(.0))]
    NotNet(String),
    /// A system call failed.
    #[error("{operation} {}: {}", path.display(), io_text(source))]
    Io {
        /// `open`, `read` or `write`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl Coded for SysctlError {
    fn code(&self) -> Code {
        match self {
            Self::NotNet(_) => Code::INVALID_CONFIG,
            Self::Io { .. } => Code::INTERNAL,
        }
    }
}

/// A sysctl as its path below `/proc/sys`, `net/...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SysctlName(String);

impl SysctlName {
    /// The sysctl that a configuration's `key` means: every dot is a separator, and the first `IFNAME` is the
    /// interface, whose own dots are none.
    ///
    /// # Errors
    /// [`SysctlError::NotNet`].
    pub(crate) fn new(key: &str, ifname: &str) -> Result<Self, SysctlError> {
        let key = key.replace('.', "/").replacen("IFNAME", ifname, 1);
        let parts: Vec<_> = key.split('/').filter(|part| !part.is_empty()).collect();
        let plain = |part: &&str| *part != "." && *part != ".." && !part.contains('\0');
        if parts.len() < 2 || parts.first() != Some(&"net") || !parts.iter().all(plain) {
            return Err(SysctlError::NotNet(key));
        }
        Ok(Self(parts.join("/")))
    }

    /// The file.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from("/proc/sys").join(&self.0)
    }

    /// Writes the value in one piece, and says what it was if that can be read (some sysctls are actions:
    /// `net.ipv4.route.flush`). The file is opened once, which is most of the cost, and not read back.
    ///
    /// # Errors
    /// [`SysctlError::Io`].
    pub(crate) fn replace(&self, value: &str) -> Result<Option<String>, SysctlError> {
        let file = match OpenOptions::new().read(true).write(true).open(self.path()) {
            Ok(file) => file,
            // Not even root opens what nobody may read: `test_perm` in fs/proc/proc_sysctl.c.
            Err(_) => OpenOptions::new().write(true).open(self.path()).map_err(self.failed("open"))?,
        };
        let before = text_of(&file).ok();
        // From the beginning: sysctls take nothing that begins elsewhere (`sysctl_writes_strict` in
        // Documentation/admin-guide/sysctl/kernel.rst).
        file.write_all_at(value.as_bytes(), 0).map_err(self.failed("write"))?;
        Ok(before)
    }

    /// The value without its line end.
    ///
    /// # Errors
    /// [`SysctlError::Io`].
    pub(crate) fn read(&self) -> Result<String, SysctlError> {
        let file = OpenOptions::new().read(true).open(self.path()).map_err(self.failed("open"))?;
        text_of(&file).map_err(self.failed("read"))
    }

    fn failed(&self, operation: &'static str) -> impl FnOnce(io::Error) -> SysctlError {
        let path = self.path();
        move |source| SysctlError::Io { operation, path, source }
    }
}

fn text_of(mut file: &File) -> io::Result<String> {
    let mut raw = Vec::new();
    file.read_to_end(&mut raw)?;
    let text = String::from_utf8_lossy(&raw);
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str, ifname: &str) -> Result<String, String> {
        SysctlName::new(key, ifname)
            .map(|name| name.path().display().to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn dots_separate_except_the_interfaces_own() {
        assert_eq!(path("net.ipv4.ip_forward", "eth0").unwrap(), "/proc/sys/net/ipv4/ip_forward");
        assert_eq!(path("net/ipv4//ip_forward", "eth0").unwrap(), "/proc/sys/net/ipv4/ip_forward");
        let key = "net.ipv4.conf.IFNAME.arp_filter";
        assert_eq!(path(key, "eth0.5").unwrap(), "/proc/sys/net/ipv4/conf/eth0.5/arp_filter");
        assert_eq!(path("net.IFNAME.IFNAME", "a").unwrap(), "/proc/sys/net/a/IFNAME");
    }

    #[test]
    fn nothing_but_net_can_be_named() {
        assert_eq!(path("kernel.foo", "eth0").unwrap_err(), r#"invalid net sysctl key: "kernel/foo""#);
        assert_eq!(path("net", "eth0").unwrap_err(), r#"invalid net sysctl key: "net""#);
        for key in ["net/..", "network.x", "", "net.\0"] {
            assert!(path(key, "eth0").is_err(), "{key:?}");
        }
        assert!(path("net.IFNAME.x", "..").is_err());
    }
}
