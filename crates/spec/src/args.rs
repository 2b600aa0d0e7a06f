// SPDX-License-Identifier: Apache-2.0
//! `CNI_ARGS`: `KEY=VALUE` pairs separated by `;` (reference: `pkg/types/args.go`).

use thiserror::Error;

use crate::{quoted, quoted_list};

/// Why `CNI_ARGS` was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArgsError {
    /// A piece between two `;` is not exactly `KEY=VALUE`.
    #[error("ARGS: invalid pair {}", quoted(.0))]
    InvalidPair(String),
    /// The value of a known key was refused.
    #[error("ARGS: error parsing value of pair {}: {reason}", quoted(.pair))]
    Value {
        /// The whole `KEY=VALUE`.
        pair: String,
        /// What the key's owner said of the value.
        reason: String,
    },
    /// Keys that this plugin does not know, while `IgnoreUnknown` is not set.
    #[error("ARGS: unknown args {}", quoted_list(.0.iter().map(String::as_str)))]
    Unknown(Vec<String>),
    /// The reserved name of the reference's embedded structure.
    #[error(
        "ARGS: cannot unmarshal into field 'CommonArgs' - type '*types.CommonArgs' does not implement encoding.TextUnmarshaler"
    )]
    CommonArgs,
}

/// Hands every pair of `value` to `known`, which says whether the key is its own and may refuse the value. Keys are
/// case-sensitive; `IgnoreUnknown` is understood here. An empty value has no pairs.
///
/// # Errors
/// See [`ArgsError`]; the first malformed pair or refused value ends the pass, unknown keys are reported
/// together at its end.
pub fn load_args(
    value: &str,
    mut known: impl FnMut(&str, &str) -> Option<Result<(), String>>,
) -> Result<(), ArgsError> {
    if value.is_empty() {
        return Ok(());
    }
    let mut ignore_unknown = false;
    let mut unknown = Vec::new();
    for pair in value.split(';') {
        let (key, value) = split_pair(pair)?;
        let outcome = match key {
            "CommonArgs" => return Err(ArgsError::CommonArgs),
            "IgnoreUnknown" => Some(parse_bool(value).map(|flag| ignore_unknown = flag)),
            _ => known(key, value),
        };
        match outcome {
            None => unknown.push(pair.to_owned()),
            Some(Ok(())) => {}
            Some(Err(reason)) => return Err(ArgsError::Value { pair: pair.to_owned(), reason }),
        }
    }
    if unknown.is_empty() || ignore_unknown { Ok(()) } else { Err(ArgsError::Unknown(unknown)) }
}

fn split_pair(pair: &str) -> Result<(&str, &str), ArgsError> {
    match pair.split_once('=') {
        Some((key, value)) if !value.contains('=') => Ok((key, value)),
        _ => Err(ArgsError::InvalidPair(pair.to_owned())),
    }
}

fn parse_bool(value: &str) -> Result<bool, String> {
    match value.to_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        lower => Err(format!("boolean unmarshal error: invalid input {lower}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(value: &str) -> Result<Option<String>, String> {
        let mut mac = None;
        let loaded = load_args(value, |key, value| {
            (key == "MAC").then(|| {
                mac = Some(value.to_owned());
                Ok(())
            })
        });
        loaded.map(|()| mac).map_err(|error| error.to_string())
    }

    #[test]
    fn known_keys_reach_their_owner() {
        assert_eq!(load("MAC=aa"), Ok(Some("aa".into())));
        assert_eq!(load(""), Ok(None));
        assert_eq!(load("K8S_POD_NAME=foo;IgnoreUnknown=True"), Ok(None));
    }

    #[test]
    fn errors_have_the_reference_texts() {
        assert_eq!(
            load("K8S_POD_NAME=foo;A=B"),
            Err(r#"ARGS: unknown args ["K8S_POD_NAME=foo" "A=B"]"#.into())
        );
        assert_eq!(load("MAC=aa;"), Err(r#"ARGS: invalid pair """#.into()));
        assert_eq!(load("MAC=a=b"), Err(r#"ARGS: invalid pair "MAC=a=b""#.into()));
        assert_eq!(
            load("IgnoreUnknown=yes"),
            Err(r#"ARGS: error parsing value of pair "IgnoreUnknown=yes": boolean unmarshal error: invalid input yes"#.into())
        );
    }
}
