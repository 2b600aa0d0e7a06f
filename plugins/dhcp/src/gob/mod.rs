// SPDX-License-Identifier: Apache-2.0
//! Go's `encoding/gob`, as far as the conversation between plugin and daemon needs it.
//!
//! A gob stream describes its own types: before the first value of a type stand messages that define it. The encoder
//! finds the type of a [`Value`] in the value itself; the decoder reads whatever the peer defines into one and leaves it
//! to the caller to look for the fields that it knows, which is how Go decodes, too.
//! The format is documented at <https://pkg.go.dev/encoding/gob>.

mod decode;
mod encode;

pub(crate) use decode::{Decoder, GobError};
pub(crate) use encode::Encoder;

/// A value. Fields that are zero are not on the wire, so what was read has none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Every signed integer.
    Int(i64),
    /// Unsigned integers, booleans, and floating point numbers by their bits.
    Uint(u64),
    /// `[]byte`, and types that encode themselves.
    Bytes(Vec<u8>),
    /// `string`.
    Text(String),
    /// Slices and arrays; a map is a list of its keys and values in turn.
    List(Vec<Value>),
    /// Fields by name.
    Struct(Vec<(String, Value)>),
}

impl Value {
    /// A structure of these fields, but for empty lists: what is not in them has no type. Other zeroes stay for theirs.
    pub(crate) fn of<const N: usize>(fields: [(&str, Self); N]) -> Self {
        let typed =
            fields.into_iter().filter(|(_, value)| !matches!(value, Self::List(items) if items.is_empty()));
        Self::Struct(typed.map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// A string.
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// A list of strings.
    pub(crate) fn texts(texts: &[String]) -> Self {
        Self::List(texts.iter().map(|text| Self::text(text)).collect())
    }

    /// A field of a structure; `None` when it is zero or the value is no structure.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// A field that is a string; empty when it is zero.
    pub(crate) fn text_field(&self, name: &str) -> &str {
        if let Some(Self::Text(text)) = self.field(name) { text } else { "" }
    }

    /// A field that is `[]byte`; empty when it is zero.
    pub(crate) fn bytes_field(&self, name: &str) -> &[u8] {
        if let Some(Self::Bytes(bytes)) = self.field(name) { bytes } else { &[] }
    }

    /// A field that is a signed integer; `None` when it is zero.
    pub(crate) fn int_field(&self, name: &str) -> Option<i64> {
        if let Some(Self::Int(value)) = self.field(name) { Some(*value) } else { None }
    }

    /// The items of a field that is a list; none when it is zero.
    pub(crate) fn list_field(&self, name: &str) -> &[Self] {
        if let Some(Self::List(items)) = self.field(name) { items } else { &[] }
    }

    /// The strings of a field that is a list of them.
    pub(crate) fn texts_field(&self, name: &str) -> Vec<String> {
        let text = |item: &Self| if let Self::Text(text) = item { Some(text.clone()) } else { None };
        self.list_field(name).iter().filter_map(text).collect()
    }

    fn is_zero(&self) -> bool {
        match self {
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            // A structure is always sent, if only as its end.
            Self::Struct(_) => false,
        }
    }
}

/// Numbers of the types that every stream knows.
mod builtin {
    pub(super) const BOOL: i64 = 1;
    pub(super) const INT: i64 = 2;
    pub(super) const UINT: i64 = 3;
    pub(super) const FLOAT: i64 = 4;
    pub(super) const BYTES: i64 = 5;
    pub(super) const STRING: i64 = 6;
    pub(super) const WIRE_TYPE: i64 = 16;
    pub(super) const ARRAY_TYPE: i64 = 17;
    pub(super) const COMMON_TYPE: i64 = 18;
    pub(super) const SLICE_TYPE: i64 = 19;
    pub(super) const STRUCT_TYPE: i64 = 20;
    pub(super) const FIELD_TYPE: i64 = 21;
    pub(super) const FIELD_TYPES: i64 = 22;
    pub(super) const MAP_TYPE: i64 = 23;
    /// Has no number of its own on the wire; it only occurs inside of `WIRE_TYPE`.
    pub(super) const OPAQUE_TYPE: i64 = 24;
    /// The first number that a stream may define.
    pub(super) const FIRST_DEFINED: i64 = 64;
}

#[cfg(test)]
mod tests;
