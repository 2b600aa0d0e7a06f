// SPDX-License-Identifier: Apache-2.0
//! A JSON document as it was written: keys in their order, duplicates kept. Read by `serde_json`; where Go reads it otherwise,
//! that counts.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;
use thiserror::Error;

use crate::syntax::{complaint, without_lone_surrogates};

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
    /// Reads one document. Invalid UTF-8, and half a surrogate pair, become U+FFFD, as in Go.
    ///
    /// # Errors
    /// [`JsonError`], in Go's words where it has words for the case.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        let text = without_lone_surrogates(String::from_utf8_lossy(bytes));
        serde_json::from_str(&text)
            .map_err(|error| JsonError(complaint(bytes).unwrap_or_else(|| error.to_string())))
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
    fn what_is_no_document_is_told_in_gos_words() {
        let error = |text: &str| Json::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("{a:1}"), "invalid character 'a' looking for beginning of object key string");
        // Only serde_json minds.
        assert_eq!(error("1e999"), "number out of range at line 1 column 5");
    }

    #[test]
    fn what_is_no_character_is_replaced() {
        let text = |bytes: &[u8]| Json::parse(bytes).unwrap().as_str().map(str::to_owned).unwrap();
        assert_eq!(text(b"\"\xff\""), "\u{fffd}");
        assert_eq!(text(br#""\ud83d\ude00 \ud83d \\ud83d""#), "\u{1f600} \u{fffd} \\ud83d");
    }
}
