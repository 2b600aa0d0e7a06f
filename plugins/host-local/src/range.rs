// SPDX-License-Identifier: Apache-2.0
//! Ranges of addresses and sets of ranges: what the configuration's `ranges` become once they are checked.
//! Pure arithmetic, never touches a file. Invariant: in a [`RangeSet`] all ranges are of one family and disjoint.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cnibox_spec::{Cidr, NetAddr, first_host};
use cnibox_sys::Failure;
use ipnetwork::IpNetwork;
use serde::Deserialize;

/// A range as configured.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename = "allocator.Range", default)]
pub(crate) struct RangeShape {
    #[serde(rename = "rangeStart")]
    pub(crate) start: NetAddr,
    #[serde(rename = "rangeEnd")]
    pub(crate) end: NetAddr,
    pub(crate) subnet: Option<Cidr>,
    pub(crate) gateway: NetAddr,
}

/// Addresses `start..=end` of `subnet`. Only `gateway` may lie elsewhere, even in another family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) subnet: IpNetwork,
    pub(crate) start: IpAddr,
    pub(crate) end: IpAddr,
    pub(crate) gateway: IpAddr,
}

impl Range {
    /// Checks a range in the reference's order, which decides which error is seen.
    pub(crate) fn new(shape: &RangeShape) -> Result<Self, Failure> {
        let no_subnet = || Failure::invalid_config("IP <nil> not v4 nor v6");
        let subnet = usable_subnet(shape.subnet.ok_or_else(no_subnet)?.0)?;
        let first = first_host(subnet).ok_or_else(|| too_small(subnet))?;
        let start = shape.start.0.unwrap_or(first);
        let above_end = shape.end.0.is_some_and(|end| same_family(start, end) && start > end);
        if shape.start.0.is_some() && (!subnet.contains(start) || above_end) {
            return Err(outside("RangeStart", start, subnet));
        }
        let end = shape.end.0.unwrap_or_else(|| last_host(subnet));
        if !subnet.contains(end) || end < start {
            return Err(outside("RangeEnd", end, subnet));
        }
        Ok(Self { subnet, start, end, gateway: shape.gateway.0.unwrap_or(first) })
    }

    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        same_family(self.start, ip) && self.start <= ip && ip <= self.end
    }

    fn overlaps(&self, other: &Self) -> bool {
        same_family(self.start, other.start) && self.start <= other.end && other.start <= self.end
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

/// The subnet, if it has room for addresses and is written as the network's own address.
fn usable_subnet(subnet: IpNetwork) -> Result<IpNetwork, Failure> {
    let bits = if subnet.is_ipv4() { 32 } else { 128 };
    let canonical = subnet.ip().to_canonical();
    let mapped = canonical.is_ipv4() && subnet.is_ipv6();
    if subnet.prefix() > bits - 2 {
        // Go prints an IPv4-mapped network as the IPv4 network.
        let prefix = if mapped { subnet.prefix() - 96 } else { subnet.prefix() };
        return Err(too_small(format!("{canonical}/{prefix}")));
    }
    if mapped {
        return Err(Failure::invalid_config("IPNet IP and Mask version mismatch"));
    }
    if subnet.ip() != subnet.network() {
        let (prefix, network) = (subnet.prefix(), subnet.network());
        return Err(Failure::invalid_config(format!(
            "Network has host bits set. For a subnet mask of length {prefix} the network address is {network}"
        )));
    }
    Ok(subnet)
}

fn too_small(subnet: impl fmt::Display) -> Failure {
    Failure::invalid_config(format!("Network {subnet} too small to allocate from"))
}

fn outside(what: &str, ip: IpAddr, subnet: IpNetwork) -> Failure {
    Failure::invalid_config(format!("{what} {ip} not in network {subnet}"))
}

/// The last address handed out by default: before the broadcast address in IPv4, the very last one in IPv6.
fn last_host(subnet: IpNetwork) -> IpAddr {
    match subnet {
        IpNetwork::V4(v4) => Ipv4Addr::from_bits(v4.broadcast().to_bits().saturating_sub(1)).into(),
        IpNetwork::V6(v6) => v6.broadcast().into(),
    }
}

/// Ranges of which one address is handed out to each attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeSet(Vec<Range>);

impl RangeSet {
    /// Checks the ranges one by one, then together.
    pub(crate) fn new(shapes: &[RangeShape]) -> Result<Self, Failure> {
        let mut ranges: Vec<Range> = Vec::with_capacity(shapes.len());
        for shape in shapes {
            let range = Range::new(shape)?;
            if ranges.first().is_some_and(|first| !same_family(first.start, range.start)) {
                return Err(Failure::invalid_config("mixed address families"));
            }
            ranges.push(range);
        }
        if ranges.is_empty() {
            return Err(Failure::invalid_config("empty range set"));
        }
        for (at, range) in ranges.iter().enumerate() {
            if let Some(other) = ranges.iter().skip(at + 1).find(|other| range.overlaps(other)) {
                return Err(Failure::invalid_config(format!("subnets {range} and {other} overlap")));
            }
        }
        Ok(Self(ranges))
    }

    pub(crate) fn ranges(&self) -> &[Range] {
        &self.0
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        self.0.iter().any(|range| range.start.is_ipv4())
    }

    /// The range that `ip` belongs to.
    pub(crate) fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(ip))
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|range| other.0.iter().any(|other| range.overlaps(other)))
    }

    /// The set as stretches in the order in which addresses are tried: round-robin, beginning after `last` when
    /// that lies in the set, else at the first range. Every address comes once.
    pub(crate) fn stretches(&self, last: Option<IpAddr>) -> Vec<Stretch> {
        let found = last.and_then(|last| Some((last, self.0.iter().position(|range| range.contains(last))?)));
        let Some((last, at)) = found else { return self.0.iter().map(Stretch::whole).collect() };
        let mut stretches = Vec::with_capacity(self.0.len() + 1);
        let cut = self.0.get(at).into_iter();
        stretches.extend(cut.clone().filter_map(|range| Stretch::after(range, last)));
        stretches.extend(self.0.iter().skip(at + 1).chain(self.0.iter().take(at)).map(Stretch::whole));
        stretches.extend(cut.map(|range| Stretch { range: *range, from: range.start, to: last }));
        stretches
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            write!(f, "{}{range}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Part of a range, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) range: Range,
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
}

impl Stretch {
    fn whole(range: &Range) -> Self {
        Self { range: *range, from: range.start, to: range.end }
    }

    fn after(range: &Range, last: IpAddr) -> Option<Self> {
        (last < range.end).then(|| successor(last)).flatten().map(|from| Self {
            range: *range,
            from,
            to: range.end,
        })
    }
}

pub(crate) fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

/// The address as a number; the family is not part of it.
pub(crate) fn to_bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address of `like`'s family with this number; `None` when the family has no such number.
pub(crate) fn from_bits(bits: u128, like: IpAddr) -> Option<IpAddr> {
    match like {
        IpAddr::V4(_) => u32::try_from(bits).ok().map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(_) => Some(Ipv6Addr::from_bits(bits).into()),
    }
}

/// The next address of the same family.
pub(crate) fn successor(ip: IpAddr) -> Option<IpAddr> {
    from_bits(to_bits(ip).checked_add(1)?, ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cnibox_spec::{parse_cidr, parse_ip};

    fn shape(subnet: &str, start: &str, end: &str) -> RangeShape {
        let ip = |text: &str| NetAddr((!text.is_empty()).then(|| parse_ip(text).unwrap()));
        RangeShape {
            subnet: Some(Cidr(parse_cidr(subnet).unwrap())),
            start: ip(start),
            end: ip(end),
            gateway: NetAddr(None),
        }
    }

    fn range(subnet: &str, start: &str, end: &str) -> Result<String, String> {
        let range = Range::new(&shape(subnet, start, end)).map_err(|error| error.to_string())?;
        Ok(format!("{range} {}", range.gateway))
    }

    #[test]
    fn defaults_leave_out_what_the_reference_leaves_out() {
        assert_eq!(range("192.0.2.0/24", "", ""), Ok("192.0.2.1-192.0.2.254 192.0.2.1".into()));
        assert_eq!(range("10.0.0.0/30", "", ""), Ok("10.0.0.1-10.0.0.2 10.0.0.1".into()));
        assert_eq!(
            range("2001:db8:1::/64", "", ""),
            Ok("2001:db8:1::1-2001:db8:1:0:ffff:ffff:ffff:ffff 2001:db8:1::1".into())
        );
        assert_eq!(range("10.0.0.0/24", "10.0.0.0", "10.0.0.255"), Ok("10.0.0.0-10.0.0.255 10.0.0.1".into()));
    }

    #[test]
    fn refusals_have_the_reference_texts() {
        let refused = [
            ("10.0.0.0/31", "", "", "Network 10.0.0.0/31 too small to allocate from"),
            ("10.0.0.1/32", "", "", "Network 10.0.0.1/32 too small to allocate from"),
            ("fd00::/127", "", "", "Network fd00::/127 too small to allocate from"),
            ("::ffff:10.0.0.0/127", "", "", "Network 10.0.0.0/31 too small to allocate from"),
            ("::ffff:10.0.0.0/112", "", "", "IPNet IP and Mask version mismatch"),
            (
                "2001:db8:24:19ff::/63",
                "",
                "",
                "Network has host bits set. For a subnet mask of length 63 the network address is 2001:db8:24:19fe::",
            ),
            ("10.0.0.0/24", "10.1.0.1", "", "RangeStart 10.1.0.1 not in network 10.0.0.0/24"),
            ("10.0.0.0/24", "fd00::1", "", "RangeStart fd00::1 not in network 10.0.0.0/24"),
            ("10.0.0.0/24", "", "10.1.0.1", "RangeEnd 10.1.0.1 not in network 10.0.0.0/24"),
            ("10.0.0.0/24", "", "fd00::1", "RangeEnd fd00::1 not in network 10.0.0.0/24"),
            ("10.0.0.0/24", "10.0.0.50", "10.0.0.40", "RangeStart 10.0.0.50 not in network 10.0.0.0/24"),
            ("10.0.0.0/24", "", "10.0.0.0", "RangeEnd 10.0.0.0 not in network 10.0.0.0/24"),
        ];
        for (subnet, start, end, text) in refused {
            assert_eq!(range(subnet, start, end), Err(text.into()), "{subnet} {start} {end}");
        }
        let none = Range::new(&RangeShape::default()).unwrap_err();
        assert_eq!(none.to_string(), "IP <nil> not v4 nor v6");
    }

    #[test]
    fn sets_refuse_mixtures_and_overlaps() {
        let set = |shapes: &[RangeShape]| RangeSet::new(shapes).map_err(|error| error.to_string());
        assert_eq!(set(&[]), Err("empty range set".into()));
        let (v4, v6) = (shape("10.0.0.0/24", "", ""), shape("fd00::/64", "", ""));
        assert_eq!(set(&[v4.clone(), v6]), Err("mixed address families".into()));
        assert_eq!(
            set(&[v4.clone(), shape("10.0.0.0/25", "", "")]),
            Err("subnets 10.0.0.1-10.0.0.254 and 10.0.0.1-10.0.0.126 overlap".into())
        );
        let halves =
            set(&[shape("10.0.0.0/24", "", "10.0.0.9"), shape("10.0.0.0/24", "10.0.0.10", "")]).unwrap();
        assert_eq!(halves.to_string(), "10.0.0.1-10.0.0.9,10.0.0.10-10.0.0.254");
    }

    #[test]
    fn stretches_go_round_once() {
        let set = RangeSet::new(&[shape("10.0.0.0/29", "", ""), shape("10.0.1.0/29", "", "")]).unwrap();
        let walk = |last: Option<&str>| {
            let stretches = set.stretches(last.map(|ip| parse_ip(ip).unwrap()));
            stretches.iter().map(|s| format!("{}-{}", s.from, s.to)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(walk(None), "10.0.0.1-10.0.0.6 10.0.1.1-10.0.1.6");
        assert_eq!(walk(Some("10.9.9.9")), walk(None));
        assert_eq!(walk(Some("10.0.0.3")), "10.0.0.4-10.0.0.6 10.0.1.1-10.0.1.6 10.0.0.1-10.0.0.3");
        assert_eq!(walk(Some("10.0.1.6")), "10.0.0.1-10.0.0.6 10.0.1.1-10.0.1.6");
    }
}
