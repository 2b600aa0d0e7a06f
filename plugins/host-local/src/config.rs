// SPDX-License-Identifier: Apache-2.0
//! The configuration: its serde shape, and the checked [`Config`] that it becomes.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use cnibox_harness::Input;
use cnibox_spec::{
    ArgsError, Cidr, CniVersion, IpParseError, Json, Route, Verb, decode, parse_cidr, parse_ip,
};
use cnibox_sys::Failure;
use ipnetwork::IpNetwork;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::range::{RangeSet, RangeShape, successor};

/// Where the reference keeps its state.
const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

#[derive(Default, Deserialize)]
#[serde(rename = "Net", default)]
struct Shape {
    ipam: Option<IpamShape>,
    #[serde(rename = "runtimeConfig")]
    runtime: RuntimeShape,
    args: ArgsShape,
}

#[derive(Default, Deserialize)]
#[serde(rename = "allocator.IPAMConfig", default)]
struct IpamShape {
    // The old style of a single range, which Go embeds.
    #[serde(rename = "Range::rangeStart")]
    start: cnibox_spec::NetAddr,
    #[serde(rename = "Range::rangeEnd")]
    end: cnibox_spec::NetAddr,
    #[serde(rename = "Range::subnet")]
    subnet: Option<Cidr>,
    #[serde(rename = "Range::gateway")]
    gateway: cnibox_spec::NetAddr,
    #[serde(rename = "type")]
    _plugin: String,
    routes: Routes,
    #[serde(rename = "dataDir")]
    data_dir: String,
    #[serde(rename = "resolvConf")]
    resolv_conf: String,
    ranges: RangeSets,
    exclude: Vec<Excluded>,
    sticky: bool,
    #[serde(rename = "reclaimOnBoot")]
    reclaim_on_boot: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename = "[]*types.Route")]
struct Routes(Vec<Route>);

#[derive(Default, Deserialize)]
#[serde(rename = "[]allocator.RangeSet")]
struct RangeSets(Vec<RangeSetShape>);

#[derive(Default, Deserialize)]
#[serde(rename = "allocator.RangeSet")]
struct RangeSetShape(Vec<RangeShape>);

#[derive(Default, Deserialize)]
#[serde(rename = "[]*ip.IP")]
struct RequestedList(Vec<Requested>);

#[derive(Default, Deserialize)]
#[serde(
    rename = "struct { IPRanges []allocator.RangeSet \"json:\\\"ipRanges,omitempty\\\"\"; IPs []*ip.IP \"json:\\\"ips,omitempty\\\"\" }",
    default
)]
struct RuntimeShape {
    #[serde(rename = "ipRanges")]
    ip_ranges: RangeSets,
    ips: RequestedList,
}

#[derive(Default, Deserialize)]
#[serde(rename = "struct { A *allocator.IPAMArgs \"json:\\\"cni\\\"\" }", default)]
struct ArgsShape {
    cni: CniArgsShape,
}

#[derive(Default, Deserialize)]
#[serde(rename = "allocator.IPAMArgs", default)]
struct CniArgsShape {
    ips: RequestedList,
}

/// A requested address, `ip[/prefix]`; the prefix is of no use. Empty text and `null` are no address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requested(Option<IpAddr>);

impl Requested {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let ip = if text.contains('/') {
            parse_cidr(text).map(|cidr| cidr.ip().to_canonical())
        } else {
            parse_ip(text)
        };
        ip.map(|ip| Self(Some(ip))).map_err(|_: IpParseError| format!("invalid IP address {text}"))
    }
}

impl<'de> Deserialize<'de> for Requested {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "ip.IP")]
        struct Text(Option<String>);

        let Text(text) = Text::deserialize(deserializer)?;
        Self::parse(&text.unwrap_or_default()).map_err(D::Error::custom)
    }
}

/// An address or a network that is not handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excluded(IpNetwork);

impl<'de> Deserialize<'de> for Excluded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let network =
            if text.contains('/') { parse_cidr(&text) } else { parse_ip(&text).map(IpNetwork::from) };
        network.map(Self).map_err(D::Error::custom)
    }
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The range sets; each gives one address to an attachment, and its position names `last_reserved_ip.<n>`.
    pub(crate) sets: Vec<RangeSet>,
    /// The addresses that the runtime asks for, each once: from `CNI_ARGS`, then `args.cni.ips`, then
    /// `runtimeConfig.ips`. A set gives the first one that it contains.
    pub(crate) requested: Vec<IpAddr>,
    /// Passed on into the result.
    pub(crate) routes: Vec<Route>,
    /// The state directory, `<dataDir>/<network>`.
    pub(crate) state: PathBuf,
    /// Read into the result's DNS by ADD.
    pub(crate) resolv_conf: Option<PathBuf>,
    /// Never handed out, whether asked for or not.
    pub(crate) exclude: Vec<Excluded>,
    /// Whether a returning attachment gets its last address while that is free.
    pub(crate) sticky: bool,
    /// Whether reservations from before the last boot are reclaimed.
    pub(crate) reclaim_on_boot: bool,
}

impl Config {
    /// Decodes and checks the configuration in the reference's order, which decides which error is seen.
    ///
    /// # Errors
    /// What is wrong with it; the same for every verb, but for ranges that come with an attachment.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        // The reference looks at no other field of the configuration here.
        let shape: Shape = decode(&input.conf.json)?;
        let ipam = shape.ipam.ok_or_else(|| Failure::invalid_config("IPAM config missing 'ipam' key"))?;
        let mut requested = requested_by_args(input)?;
        requested.extend(shape.args.cni.ips.0.iter().chain(&shape.runtime.ips.0));
        let requested = distinct(&requested)?;
        let single =
            RangeShape { start: ipam.start, end: ipam.end, subnet: ipam.subnet, gateway: ipam.gateway };
        let single = ipam.subnet.map(|_| RangeSetShape(vec![single]));
        let sets = shape.runtime.ip_ranges.0.into_iter().chain(single).chain(ipam.ranges.0);
        Ok(Self {
            sets: check_sets(&sets.collect::<Vec<_>>(), input)?,
            requested,
            routes: ipam.routes.0,
            state: state_dir(&ipam.data_dir, input.conf.network.as_str()),
            resolv_conf: (!ipam.resolv_conf.is_empty()).then(|| ipam.resolv_conf.into()),
            exclude: ipam.exclude,
            sticky: ipam.sticky,
            reclaim_on_boot: ipam.reclaim_on_boot,
        })
    }

    /// The last address of the exclusions that an address falls under.
    pub(crate) fn exclusion_of(&self, ip: IpAddr) -> Option<IpAddr> {
        self.exclude
            .iter()
            .filter(|excluded| excluded.0.contains(ip))
            .map(|excluded| excluded.0.broadcast())
            .max()
    }

    /// The first address after `ip` that no exclusion around `ip` covers.
    pub(crate) fn behind_exclusion(&self, ip: IpAddr) -> Option<IpAddr> {
        successor(self.exclusion_of(ip).unwrap_or(ip))
    }
}

/// `IP` of `CNI_ARGS`; any other key is unknown here.
fn requested_by_args(input: &Input<'_>) -> Result<Vec<Requested>, ArgsError> {
    let mut requested = Requested(None);
    input.load_args(|key, value| {
        (key == "IP").then(|| Requested::parse(value).map(|parsed| requested = parsed))
    })?;
    Ok(requested.0.map(|_| requested).into_iter().collect())
}

fn distinct(requested: &[Requested]) -> Result<Vec<IpAddr>, Failure> {
    let mut distinct = Vec::with_capacity(requested.len());
    for Requested(ip) in requested {
        let empty = || Failure::invalid_config("cannot understand ip: IP <nil> not v4 nor v6");
        let ip = ip.ok_or_else(empty)?;
        if !distinct.contains(&ip) {
            distinct.push(ip);
        }
    }
    Ok(distinct)
}

fn check_sets(shapes: &[RangeSetShape], input: &Input<'_>) -> Result<Vec<RangeSet>, Failure> {
    if shapes.is_empty() && !comes_with_attachments(input) {
        return Err(Failure::invalid_config("no IP ranges specified"));
    }
    let check = |(index, RangeSetShape(shapes)): (usize, &RangeSetShape)| {
        RangeSet::new(shapes).map_err(|failure| failure.prefixed(&format!("invalid range set {index}: ")))
    };
    let sets = shapes.iter().enumerate().map(check).collect::<Result<Vec<_>, _>>()?;
    let of_v4 = sets.iter().filter(|set| set.is_ipv4()).count();
    let older = input.conf.version < CniVersion::V0_3_0;
    if older && (of_v4 > 1 || sets.len() - of_v4 > 1) {
        return Err(Failure::invalid_config(format!(
            "CNI version {} does not support more than 1 address per family",
            input.conf.version_text
        )));
    }
    for (at, set) in sets.iter().enumerate() {
        if let Some(other) = sets.iter().skip(at + 1).position(|other| set.overlaps(other)) {
            let other = at + 1 + other;
            return Err(Failure::invalid_config(format!("range set {at} overlaps with {other}")));
        }
    }
    Ok(sets)
}

/// Whether ranges come with each attachment (capability `ipRanges`) and this verb is not for one, or needs none: libcni
/// has no `runtimeConfig` for STATUS and GC, and forgets that of DEL with its cache.
fn comes_with_attachments(input: &Input<'_>) -> bool {
    let capability = || input.conf.json.member("capabilities")?.member("ipRanges");
    matches!(input.verb, Verb::Del | Verb::Status | Verb::Gc) && capability() == Some(&Json::Bool(true))
}

/// `<dataDir>/<network>`, tidied up as text as Go's `filepath.Join` does.
fn state_dir(data_dir: &str, network: &str) -> PathBuf {
    let data_dir = if data_dir.is_empty() { DEFAULT_DATA_DIR } else { data_dir };
    let mut tidy = PathBuf::new();
    for component in Path::new(data_dir).components() {
        let above = matches!(tidy.components().next_back(), Some(Component::Normal(_)));
        match component {
            Component::CurDir => {}
            Component::ParentDir if above => drop(tidy.pop()),
            Component::ParentDir if tidy.has_root() => {}
            Component::ParentDir | Component::RootDir | Component::Normal(_) | Component::Prefix(_) => {
                tidy.push(component);
            }
        }
    }
    tidy.join(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_directories_are_joined_as_go_joins_them() {
        let joined = |data_dir| state_dir(data_dir, "n").to_str().unwrap().to_owned();
        assert_eq!(joined(""), "/var/lib/cni/networks/n");
        assert_eq!(joined("/a//b/./c/"), "/a/b/c/n");
        assert_eq!(joined("/a/../../b"), "/b/n");
        assert_eq!(joined("../a"), "../a/n");
        assert_eq!(joined("."), "n");
    }

    #[test]
    fn requests_lose_their_prefix() {
        assert_eq!(Requested::parse("10.0.0.5/8"), Ok(Requested(Some([10, 0, 0, 5].into()))));
        assert_eq!(Requested::parse("::ffff:10.0.0.5"), Ok(Requested(Some([10, 0, 0, 5].into()))));
        assert_eq!(Requested::parse("x"), Err("invalid IP address x".into()));
        assert_eq!(Requested::parse("10.0.0.5/33"), Err("invalid IP address 10.0.0.5/33".into()));
    }
}
