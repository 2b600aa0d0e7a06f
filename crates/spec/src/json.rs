// SPDX-License-Identifier: Apache-2.0
//! A JSON document as it was written: keys in their order, duplicates kept. Read by `serde_json`; syntax
//! errors speak as Go's `encoding/json` does.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;
use thiserror::Error;

/// Any JSON value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Json {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// A list.
    Array(Vec<Json>),
    /// An object: every member in its order, duplicates included.
    Object(Vec<(String, Json)>),
}

/// Text that is no JSON document.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct JsonError(String);

impl Json {
    /// Reads one document. Invalid UTF-8 becomes U+FFFD, as in Go.
    ///
    /// # Errors
    /// [`JsonError`], in Go's words where it has words for the case.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        let text = String::from_utf8_lossy(bytes);
        serde_json::from_str(&text).map_err(|error| JsonError(in_go_words(&text, &error)))
    }

    /// The last member called `key`, ignoring ASCII case; `None` for `null` and for what is no object.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        let called = |(name, _): &&(String, Self)| name.eq_ignore_ascii_case(key);
        members.iter().rev().find(called).map(|(_, value)| value).filter(|value| **value != Self::Null)
    }

    /// Whether there is a member called `key`, ignoring ASCII case, were it `null`.
    #[must_use]
    pub fn mentions(&self, key: &str) -> bool {
        let Self::Object(members) = self else { return false };
        members.iter().any(|(name, _)| name.eq_ignore_ascii_case(key))
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// A list's items; `null` has none; `None` for anything else.
    pub(crate) fn items(&self) -> Option<&[Self]> {
        if let Self::Array(items) = self { Some(items) } else { (*self == Self::Null).then_some(&[]) }
    }

    /// An object's members; `null` has none; `None` for anything else.
    pub(crate) fn members(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(members) = self { Some(members) } else { (*self == Self::Null).then_some(&[]) }
    }

    /// Sets a member: the one of exactly this name, or a new last one. What is no object is left alone.
    pub fn set(&mut self, key: &str, value: Self) {
        let Self::Object(members) = self else { return };
        match members.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => members.push((key.to_owned(), value)),
        }
    }

    /// Removes every member of exactly this name.
    pub fn remove(&mut self, key: &str) {
        if let Self::Object(members) = self {
            members.retain(|(name, _)| name != key);
        }
    }
}

/// `serde_json`'s error in the words of Go's scanner (`encoding/json/scanner.go`).
fn in_go_words(text: &str, error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let said = error.to_string();
    let context = GO_CONTEXTS.iter().find(|(ours, _)| said.starts_with(ours)).map(|(_, go)| *go);
    match (context, offender(text, error)) {
        (Some(IN_LITERAL), Some((at, c))) => {
            format!("invalid character {} {}", go_char(c), literal_context(&text[..at]))
        }
        (Some(context), Some((_, c))) => format!("invalid character {} {context}", go_char(c)),
        _ => said,
    }
}

/// The character that `error` points at, and where it begins.
fn offender(text: &str, error: &serde_json::Error) -> Option<(usize, char)> {
    let before = error.line().checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let end = (start + error.column()).min(text.len());
    let end = (end..=text.len()).find(|at| text.is_char_boundary(*at))?;
    text[..end].char_indices().next_back()
}

/// Which literal was begun and how it should have gone on: `in literal true (expecting 'r')`.
fn literal_context(before: &str) -> String {
    let begun = before.len() - before.trim_end_matches(|c: char| c.is_ascii_lowercase()).len();
    let begun = &before[before.len() - begun..];
    let known =
        ["true", "false", "null"].into_iter().find(|literal| literal.starts_with(begun) && !begun.is_empty());
    let expected = known.and_then(|literal| Some((literal, literal.chars().nth(begun.len())?)));
    expected.map_or_else(
        || IN_LITERAL.to_owned(),
        |(literal, next)| format!("in literal {literal} (expecting '{next}')"),
    )
}

fn go_char(c: char) -> String {
    match c {
        '\'' => r"'\''".to_owned(),
        '"' => "'\"'".to_owned(),
        c => format!("'{}'", c.escape_debug()),
    }
}

const IN_LITERAL: &str = "in literal";

const GO_CONTEXTS: &[(&str, &str)] = &[
    ("expected value", "looking for beginning of value"),
    ("expected `:`", "after object key"),
    ("expected `,` or `}`", "after object key:value pair"),
    ("expected `,` or `]`", "after array element"),
    ("key must be a string", "looking for beginning of object key string"),
    ("trailing comma", "looking for beginning of object key string"),
    ("trailing characters", "after top-level value"),
    ("control character", "in string literal"),
    ("invalid escape", "in string escape code"),
    ("expected ident", IN_LITERAL),
    ("invalid number", "in numeric literal"),
];

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Json, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Json::Array)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        std::iter::from_fn(|| map.next_entry().transpose()).collect::<Result<_, _>>().map(Json::Object)
    }
}

/// The document on one line.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::String(value) => serializer.serialize_str(value),
            Self::Array(items) => items.serialize(serializer),
            Self::Object(members) => serializer.collect_map(members.iter().map(|(key, value)| (key, value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Json::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn keeps_order_and_duplicates() {
        let text = r#"{"b":1,"a":{"x":null},"b":2}"#;
        let json = Json::parse(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
        assert_eq!(json.member("B"), Some(&Json::Number(2.into())));
        assert_eq!(json.member("a").unwrap().member("x"), None);
        assert!(json.member("a").unwrap().mentions("X") && !json.mentions("x"));
    }

    #[test]
    fn syntax_errors_speak_go() {
        assert_eq!(error(""), "unexpected end of JSON input");
        assert_eq!(error("{"), "unexpected end of JSON input");
        assert_eq!(error("nope"), "invalid character 'o' in literal null (expecting 'u')");
        assert_eq!(error("{\"a\": trux}"), "invalid character 'x' in literal true (expecting 'e')");
        assert_eq!(error("x"), "invalid character 'x' looking for beginning of value");
        assert_eq!(error("{} y"), "invalid character 'y' after top-level value");
        assert_eq!(error(r#"{"a" 1}"#), "invalid character '1' after object key");
        assert_eq!(error(r#"{"a":1 "b":2}"#), "invalid character '\"' after object key:value pair");
        assert_eq!(error("{a:1}"), "invalid character 'a' looking for beginning of object key string");
    }
}
