// SPDX-License-Identifier: Apache-2.0
//! Ethernet addresses, in the notations that Go's `net.ParseMAC` accepts.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

/// A 48-bit hardware address. Prints as `0a:58:c0:a8:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

/// A text that is no 48-bit hardware address. The message is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("address {text}: invalid MAC address")]
pub struct InvalidMac {
    /// The text as given.
    pub text: String,
}

impl Mac {
    /// One that nobody has: locally administered, unicast, the rest random, as the kernel makes its own
    /// (`eth_random_addr` in `include/linux/etherdevice.h`).
    #[must_use]
    pub fn random() -> Self {
        // The standard library seeds its hashers from the kernel's random numbers.
        let [first, b, c, d, e, f, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
        Self([first & 0xfe | 0x02, b, c, d, e, f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = InvalidMac;

    /// Accepts `00:00:5e:00:53:01`, `00-00-5e-00-53-01` and `0000.5e00.5301`, in either case.
    /// For Go's 8 and 20 bytes there is [`parse_hardware_address`].
    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let bytes = parse_hardware_address(text)?;
        Self::try_from(bytes.as_slice()).map_err(|_| InvalidMac { text: text.to_owned() })
    }
}

impl TryFrom<&[u8]> for Mac {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self)
    }
}

/// A hardware address of 6, 8 or 20 bytes (Ethernet, EUI-64, InfiniBand) in any of the three notations.
///
/// # Errors
/// [`InvalidMac`].
pub fn parse_hardware_address(text: &str) -> Result<Vec<u8>, InvalidMac> {
    let bytes = text.as_bytes();
    let parsed = match (bytes.get(2), bytes.get(4)) {
        (Some(separator @ (b':' | b'-')), _) => groups(bytes, *separator, 2),
        (_, Some(b'.')) => groups(bytes, b'.', 4),
        _ => None,
    };
    let known_length = |bytes: &Vec<u8>| matches!(bytes.len(), 6 | 8 | 20);
    parsed.filter(known_length).ok_or_else(|| InvalidMac { text: text.to_owned() })
}

/// Bytes written as groups of `digits` hexadecimal digits.
fn groups(text: &[u8], separator: u8, digits: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(6);
    for group in text.split(|byte| *byte == separator) {
        if group.len() != digits {
            return None;
        }
        for pair in group.chunks(2) {
            bytes.push(hex(*pair.first()?)? << 4 | hex(*pair.get(1)?)?);
        }
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_notations_of_go() {
        let mac = Mac([0, 0, 0x5e, 0, 0x53, 0xaf]);
        for text in ["00:00:5e:00:53:af", "00-00-5E-00-53-AF", "0000.5e00.53aF"] {
            assert_eq!(text.parse(), Ok(mac), "{text}");
        }
        assert_eq!(mac.to_string(), "00:00:5e:00:53:af");
        assert_eq!(parse_hardware_address("02:00:5e:10:00:00:00:01").unwrap(), [2, 0, 0x5e, 16, 0, 0, 0, 1]);
    }

    #[test]
    fn everything_else_is_refused_with_gos_text() {
        let bad = [
            "",
            "zz",
            "00:00:5e:00:53",
            "00:00:5e:00:53:01:",
            "0:0:5e:0:53:1",
            "00:00-5e:00:53:01",
            "00005e005301",
            "00:00:5e:00:53:0g",
            "0000.5e00.530",
            "00:00:5e:00:53:01:02",
            "+0:00:5e:00:53:01",
            "0000.5e00.5301.aaaa",
            "é0:00:5e:00:53:01",
        ];
        for text in bad {
            let error = text.parse::<Mac>().unwrap_err();
            assert_eq!(error.to_string(), format!("address {text}: invalid MAC address"));
        }
    }
}
