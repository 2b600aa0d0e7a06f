// SPDX-License-Identifier: Apache-2.0
//! IP addresses and prefixes as the wire has them. The arithmetic is `ipnetwork`'s; here is only what Go's
//! `net` package reads and prints differently.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::Serializer;
use thiserror::Error;

/// Text that is no address or prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IpParseError {
    /// Not an IP address.
    #[error("invalid IP address: {0}")]
    Address(String),
    /// Not `address/prefix-length`.
    #[error("invalid CIDR address: {0}")]
    Cidr(String),
}

/// Reads an IP address. An IPv4-mapped IPv6 address is the IPv4 address, as Go's `net.IP` prints it.
///
/// # Errors
/// [`IpParseError::Address`].
pub fn parse_ip(text: &str) -> Result<IpAddr, IpParseError> {
    text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| IpParseError::Address(text.to_owned()))
}

/// Reads `address/prefix-length`; the host part is kept, and an IPv4-mapped IPv6 address stays one (see [`unmapped`]).
///
/// # Errors
/// [`IpParseError::Cidr`].
pub fn parse_cidr(text: &str) -> Result<IpNetwork, IpParseError> {
    let error = || IpParseError::Cidr(text.to_owned());
    let (address, prefix) = text.split_once('/').ok_or_else(error)?;
    if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return Err(error());
    }
    let address: IpAddr = address.parse().map_err(|_| error())?;
    IpNetwork::new(address, prefix.parse().map_err(|_| error())?).map_err(|_| error())
}

/// An IPv4-mapped IPv6 address as the IPv4 address, with what its prefix leaves of 96 bits, as Go's `net.IPNet` prints
/// it; any other as it is.
#[must_use]
pub fn unmapped(network: IpNetwork) -> IpNetwork {
    let address = network.ip().to_canonical();
    if address.is_ipv6() || network.is_ipv4() {
        return network;
    }
    IpNetwork::new(address, network.prefix().saturating_sub(96)).unwrap_or(network)
}

/// The network that an address is in: its bits behind the prefix cleared.
#[must_use]
pub fn subnet(address: IpNetwork) -> IpNetwork {
    IpNetwork::new(address.network(), address.prefix()).unwrap_or(address)
}

/// Every address of a family.
#[must_use]
pub fn everywhere(is_ipv4: bool) -> IpNetwork {
    let any = if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) };
    IpNetwork::new(any, 0).unwrap_or(any.into())
}

/// An optional address field: text, where an empty one means unset (Go's `net.IP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetAddr(pub Option<IpAddr>);

impl<'de> Deserialize<'de> for NetAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename = "net.IP")]
        struct Text(String);

        let Text(text) = Text::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Self(None));
        }
        parse_ip(&text).map(|ip| Self(Some(ip))).map_err(D::Error::custom)
    }
}

/// A prefix field in CIDR notation whose host part is kept (the CNI library's `types.IPNet`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr(pub IpNetwork);

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_cidr(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A prefix field of a result, read as [`Cidr`] and printed as `IpNetwork` prints itself.
pub(crate) mod cidr {
    use super::{Cidr, Deserialize, Deserializer, IpNetwork, Serializer};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNetwork, D::Error> {
        Cidr::deserialize(deserializer).map(|Cidr(network)| network)
    }

    pub(crate) fn serialize<S: Serializer>(network: &IpNetwork, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(network)
    }
}

/// An address field of a result, read as [`NetAddr`].
pub(crate) fn net_addr<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    NetAddr::deserialize(deserializer).map(|NetAddr(address)| address)
}

/// The first address after the network's own, where the reference puts a gateway by default.
/// `None` when the network has no second address.
#[must_use]
pub fn first_host(network: IpNetwork) -> Option<IpAddr> {
    let next = match network.network() {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits().checked_add(1)?)),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits().checked_add(1)?)),
    };
    network.contains(next).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_keep_their_host_part_and_need_a_length() {
        assert_eq!(parse_cidr("10.1.2.3/8").unwrap().to_string(), "10.1.2.3/8");
        for bad in ["10.1.2.3", "10.1.2.3/33", "10.1.2.3/255.0.0.0", "10.1.2.3/", "x/8", "10.1.2.3/+8"] {
            assert_eq!(parse_cidr(bad).unwrap_err().to_string(), format!("invalid CIDR address: {bad}"));
        }
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        assert_eq!(parse_ip("::ffff:10.0.0.1").unwrap().to_string(), "10.0.0.1");
        assert!(parse_ip("010.0.0.1").is_err());
        assert_eq!(unmapped(parse_cidr("::ffff:10.0.0.1/120").unwrap()).to_string(), "10.0.0.1/24");
    }

    #[test]
    fn the_first_host_follows_the_network() {
        assert_eq!(first_host(parse_cidr("10.1.2.3/8").unwrap()).unwrap().to_string(), "10.0.0.1");
        assert_eq!(first_host(parse_cidr("10.1.2.3/32").unwrap()), None);
        assert_eq!(subnet(parse_cidr("10.1.2.3/24").unwrap()).to_string(), "10.1.2.0/24");
        assert_eq!([true, false].map(|v4| everywhere(v4).to_string()), ["0.0.0.0/0", "::/0"]);
    }
}
