// SPDX-License-Identifier: Apache-2.0
//! CNI protocol versions (reference: `pkg/version/plugin.go`).

use std::fmt;
use std::num::IntErrorKind;

use thiserror::Error;

use crate::quoted;

/// A version of the CNI protocol that this implementation speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CniVersion {
    /// 0.1.0, also meant by an absent or empty `cniVersion`.
    V0_1_0,
    /// 0.2.0.
    V0_2_0,
    /// 0.3.0: several interfaces and addresses.
    V0_3_0,
    /// 0.3.1: chaining.
    V0_3_1,
    /// 0.4.0: CHECK.
    V0_4_0,
    /// 1.0.0.
    V1_0_0,
    /// 1.1.0: GC and STATUS.
    V1_1_0,
}

/// A `cniVersion` that no result type is known for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unsupported CNI result version {}", quoted(.0))]
pub struct UnknownVersion(pub String);

impl CniVersion {
    /// Every version, oldest first.
    pub const ALL: &'static [Self] =
        &[Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// The newest one, which VERSION always names.
    pub const CURRENT: Self = Self::V1_1_0;

    /// The exact text, such as `0.3.1`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Reads a version; an empty text means 0.1.0.
    ///
    /// # Errors
    /// [`UnknownVersion`] for anything that is not literally one of [`CniVersion::ALL`].
    pub fn parse(text: &str) -> Result<Self, UnknownVersion> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        Self::ALL
            .iter()
            .copied()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

impl fmt::Display for CniVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A version number that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VersionError {
    /// More than three parts.
    #[error("invalid version {}: too many parts", quoted(.0))]
    TooManyParts(String),
    /// A part that is no integer.
    #[error("failed to convert {part} version part {}: strconv.Atoi: parsing {}: {reason}", quoted(.text), quoted(.text))]
    Part {
        /// `major`, `minor` or `micro`.
        part: &'static str,
        /// The part's text.
        text: String,
        /// `invalid syntax` or `value out of range`.
        reason: &'static str,
    },
}

/// Any `major.minor.micro`, for ordering a configuration's version against a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionNumber(i64, i64, i64);

impl VersionNumber {
    /// The number of a known version.
    #[must_use]
    pub const fn of(version: CniVersion) -> Self {
        match version {
            CniVersion::V0_1_0 => Self(0, 1, 0),
            CniVersion::V0_2_0 => Self(0, 2, 0),
            CniVersion::V0_3_0 => Self(0, 3, 0),
            CniVersion::V0_3_1 => Self(0, 3, 1),
            CniVersion::V0_4_0 => Self(0, 4, 0),
            CniVersion::V1_0_0 => Self(1, 0, 0),
            CniVersion::V1_1_0 => Self(1, 1, 0),
        }
    }

    /// Reads one to three dotted integers; empty means 0.1.0.
    ///
    /// # Errors
    /// [`VersionError`], with the reference's text.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        if text.is_empty() {
            return Ok(Self(0, 1, 0));
        }
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() > 3 {
            return Err(VersionError::TooManyParts(text.to_owned()));
        }
        let mut numbers = [0; 3];
        for (index, part) in parts.iter().enumerate() {
            numbers[index] = parse_part(["major", "minor", "micro"][index], part)?;
        }
        Ok(Self(numbers[0], numbers[1], numbers[2]))
    }
}

fn parse_part(part: &'static str, text: &str) -> Result<i64, VersionError> {
    text.parse().map_err(|error: std::num::ParseIntError| VersionError::Part {
        part,
        text: text.to_owned(),
        reason: if matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) {
            "value out of range"
        } else {
            "invalid syntax"
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_reads_back() {
        for version in CniVersion::ALL {
            assert_eq!(CniVersion::parse(version.as_str()), Ok(*version));
            assert_eq!(VersionNumber::parse(version.as_str()), Ok(VersionNumber::of(*version)));
        }
        assert_eq!(CniVersion::parse(""), Ok(CniVersion::V0_1_0));
        assert!(CniVersion::parse("1.1").is_err());
    }

    #[test]
    fn numbers_are_ordered_and_errors_speak_go() {
        assert!(VersionNumber::parse("0.9.0").unwrap() < VersionNumber::of(CniVersion::V1_0_0));
        assert_eq!(
            VersionNumber::parse("abc").unwrap_err().to_string(),
            r#"failed to convert major version part "abc": strconv.Atoi: parsing "abc": invalid syntax"#
        );
        assert_eq!(
            VersionNumber::parse("1.2.3.4").unwrap_err().to_string(),
            r#"invalid version "1.2.3.4": too many parts"#
        );
    }
}
