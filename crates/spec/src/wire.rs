// SPDX-License-Identifier: Apache-2.0
//! Results and errors as bytes: the three result shapes, read into and printed from the one of CNI 1.1
//! (reference: `pkg/types/{020,040,100}`).

mod lists;
mod v02;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{CniResult, CniVersion, DecodeError, ErrorObject, Json, UnknownVersion, decode, list, quoted};

/// A result that its target version cannot express.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConvertError {
    /// 0.1.0 and 0.2.0 know nothing but addresses.
    #[error("cannot convert: no valid IP addresses")]
    NoAddresses,
}

/// A result, printed by another plugin, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrevResultError {
    /// The configuration's version has no result type.
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    /// The result's shape is wrong.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The result's own version belongs to another shape than the configuration's.
    #[error("result type supports {} but unmarshalled CNIVersion is {}", list(.supported.iter()), quoted(.found))]
    OtherShape {
        /// The versions of the configuration's shape.
        supported: &'static [CniVersion],
        /// The result's `cniVersion`.
        found: String,
    },
}

/// The versions whose results look like those of `version`.
fn alike(version: CniVersion) -> &'static [CniVersion] {
    use CniVersion::{V0_1_0, V0_2_0, V0_3_0, V0_3_1, V0_4_0, V1_0_0, V1_1_0};
    match version {
        // One address per family, no interfaces.
        V0_1_0 | V0_2_0 => &[V0_1_0, V0_2_0],
        // Lists; an address says its family.
        V0_3_0 | V0_3_1 | V0_4_0 => &[V0_3_0, V0_3_1, V0_4_0],
        // The shape that plugins work with.
        V1_0_0 | V1_1_0 => &[V1_0_0, V1_1_0],
    }
}

/// Whether results have at most one address per family, and nothing else than addresses.
fn has_only_addresses(version: CniVersion) -> bool {
    version < CniVersion::V0_3_0
}

/// Reads a result under a configuration of version `version` (its text, `""` meaning 0.1.0). A result without
/// `cniVersion` has the configuration's.
///
/// # Errors
/// [`PrevResultError`].
pub fn parse_result(version: &str, json: &Json) -> Result<CniResult, PrevResultError> {
    let known = CniVersion::parse(version)?;
    let supported = alike(known);
    let found = decode::<VersionOnly>(json)?.cni_version.unwrap_or_else(|| version.to_owned());
    // An empty one, which means 0.1.0, is of the oldest shape.
    if !CniVersion::parse(&found).is_ok_and(|found| supported.contains(&found)) {
        return Err(PrevResultError::OtherShape { supported, found });
    }
    let result = if has_only_addresses(known) { decode::<v02::Result>(json)?.into() } else { decode(json)? };
    Ok(result)
}

#[derive(Default, Deserialize)]
#[serde(rename = "Result", default)]
struct VersionOnly {
    #[serde(rename = "cniVersion")]
    cni_version: Option<String>,
}

/// Finds out whether `version` can express a result.
///
/// # Errors
/// [`ConvertError`] when it cannot.
pub fn check_expressible(version: CniVersion, result: &CniResult) -> Result<(), ConvertError> {
    if has_only_addresses(version) && result.ips.is_empty() { Err(ConvertError::NoAddresses) } else { Ok(()) }
}

/// Prints a result for `version`: pretty, four spaces, no newline at the end, as the reference prints it.
///
/// # Errors
/// Those of [`check_expressible`].
pub fn print_result(version: CniVersion, result: &CniResult) -> Result<String, ConvertError> {
    check_expressible(version, result)?;
    Ok(print_passed_on(version, result))
}

/// Prints a result as it was read under `version`, were it without addresses: nothing is converted then.
#[must_use]
pub fn print_passed_on(version: CniVersion, result: &CniResult) -> String {
    if has_only_addresses(version) {
        pretty(&v02::Result::new(version, result))
    } else {
        lists::print(version, result)
    }
}

/// Prints an error object.
#[must_use]
pub fn print_error(error: &ErrorObject) -> String {
    pretty(error)
}

/// JSON with four spaces of indentation and Go's escapes for `<`, `>`, `&` and the line separators.
fn pretty(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Our own types have neither failing serializers nor maps with keys other than strings.
    if value.serialize(&mut serializer).is_err() {
        return String::new();
    }
    escape_html(&String::from_utf8_lossy(&bytes))
}

/// The five characters stand only inside strings, so they can be replaced in the printed text.
fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
