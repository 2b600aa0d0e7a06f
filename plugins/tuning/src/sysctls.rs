// SPDX-License-Identifier: Apache-2.0
//! Sysctls as configurations name them, which are below `/proc/sys/net` or refused.

use std::collections::HashMap;
use std::fmt;

use cnibox_spec::quoted;
use cnibox_sys::Failure;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Names and values, in the configuration's order, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sysctls(pub(crate) Vec<(String, String)>);

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
        let or_empty = |(name, value): (String, Option<String>)| (name, value.unwrap_or_default());
        std::iter::from_fn(|| map.next_entry().transpose()).map(|entry| entry.map(or_empty)).collect()
    }
}

/// The sysctl that a configuration's `key` means, `net/...`: every dot is a separator, and the first `IFNAME` is the
/// interface, whose own dots are none.
pub(crate) fn sysctl_name(key: &str, ifname: &str) -> Result<String, Failure> {
    let key = key.replace('.', "/").replacen("IFNAME", ifname, 1);
    let parts: Vec<_> = key.split('/').filter(|part| !part.is_empty()).collect();
    let plain = |part: &&str| *part != "." && *part != ".." && !part.contains('\0');
    if parts.len() < 2 || parts.first() != Some(&"net") || !parts.iter().all(plain) {
        return Err(Failure::invalid_config(format!("invalid net sysctl key: {}", quoted(&key))));
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str, ifname: &str) -> Result<String, String> {
        let name = sysctl_name(key, ifname).map_err(|error| error.to_string())?;
        Ok(cnibox_netns::sysctl::path_of(&name).unwrap().display().to_string())
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
