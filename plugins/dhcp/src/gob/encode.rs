// SPDX-License-Identifier: Apache-2.0
//! Values to bytes.

use std::collections::BTreeSet;

use super::{Value, builtin};

/// A type of a field.
#[derive(Clone, Copy)]
pub(crate) enum Type {
    /// `int`.
    Int,
    /// `uint64`.
    Uint,
    /// `[]byte`.
    Bytes,
    /// `string`.
    Text,
    /// A type that has to be defined before its first value.
    Defined(&'static Definition),
}

/// A type that a stream defines.
pub(crate) struct Definition {
    /// Its number in every stream of ours; at least 64.
    pub(crate) id: i64,
    /// Go's name of the type; nobody compares it.
    pub(crate) name: &'static str,
    /// What it consists of.
    pub(crate) shape: Shape,
}

/// What a type consists of.
pub(crate) enum Shape {
    /// A slice.
    List(Type),
    /// A structure: its fields in order.
    Struct(&'static [(&'static str, Type)]),
}

/// The sending side of a stream: it remembers which types the peer has been told.
#[derive(Default)]
pub(crate) struct Encoder {
    told: BTreeSet<i64>,
}

impl Encoder {
    /// The messages for `value`: definitions that are still due, then the value. Fields that the type lacks are left
    /// out.
    pub(crate) fn encode(&mut self, definition: &'static Definition, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        self.define(definition, &mut out);
        let mut body = Vec::new();
        put_int(&mut body, definition.id);
        put_value(&mut body, Type::Defined(definition), value);
        put_message(&mut out, &body);
        out
    }

    fn define(&mut self, definition: &'static Definition, out: &mut Vec<u8>) {
        if !self.told.insert(definition.id) {
            return;
        }
        put_message(out, &described(definition));
        match definition.shape {
            Shape::List(item) => self.define_inner(item, out),
            Shape::Struct(fields) => fields.iter().for_each(|(_, field)| self.define_inner(*field, out)),
        }
    }

    fn define_inner(&mut self, inner: Type, out: &mut Vec<u8>) {
        if let Type::Defined(definition) = inner {
            self.define(definition, out);
        }
    }
}

impl Type {
    fn id(self) -> i64 {
        match self {
            Self::Int => builtin::INT,
            Self::Uint => builtin::UINT,
            Self::Bytes => builtin::BYTES,
            Self::Text => builtin::STRING,
            Self::Defined(definition) => definition.id,
        }
    }
}

/// The message that defines a type: a value of Go's `wireType`.
fn described(definition: &Definition) -> Vec<u8> {
    let mut body = Vec::new();
    put_int(&mut body, -definition.id);
    let common = |body: &mut Vec<u8>| {
        put_uint(body, 1);
        put_uint(body, 1);
        put_bytes(body, definition.name.as_bytes());
        put_uint(body, 1);
        put_int(body, definition.id);
        put_uint(body, 0);
    };
    match definition.shape {
        Shape::List(item) => {
            put_uint(&mut body, WIRE_SLICE);
            common(&mut body);
            put_uint(&mut body, 1);
            put_int(&mut body, item.id());
        }
        Shape::Struct(fields) => {
            put_uint(&mut body, WIRE_STRUCT);
            common(&mut body);
            if !fields.is_empty() {
                put_uint(&mut body, 1);
                put_uint(&mut body, fields.len() as u64);
            }
            for (name, field) in fields {
                put_uint(&mut body, 1);
                put_bytes(&mut body, name.as_bytes());
                put_uint(&mut body, 1);
                put_int(&mut body, field.id());
                put_uint(&mut body, 0);
            }
        }
    }
    // The ends of the inner structure and of `wireType`.
    body.extend([0, 0]);
    body
}

fn put_value(out: &mut Vec<u8>, kind: Type, value: &Value) {
    match value {
        Value::Int(number) => put_int(out, *number),
        Value::Uint(number) => put_uint(out, *number),
        Value::Bytes(bytes) => put_bytes(out, bytes),
        Value::Text(text) => put_bytes(out, text.as_bytes()),
        Value::List(items) => {
            put_uint(out, items.len() as u64);
            if let Type::Defined(Definition { shape: Shape::List(item), .. }) = kind {
                items.iter().for_each(|value| put_value(out, *item, value));
            }
        }
        Value::Struct(_) => {
            if let Type::Defined(Definition { shape: Shape::Struct(fields), .. }) = kind {
                put_fields(out, fields, value);
            }
        }
    }
}

fn put_fields(out: &mut Vec<u8>, fields: &[(&str, Type)], value: &Value) {
    let mut skipped = 1;
    for (name, kind) in fields {
        match value.field(name) {
            Some(field) if !field.is_zero() => {
                put_uint(out, skipped);
                put_value(out, *kind, field);
                skipped = 1;
            }
            _ => skipped += 1,
        }
    }
    put_uint(out, 0);
}

fn put_message(out: &mut Vec<u8>, body: &[u8]) {
    put_uint(out, body.len() as u64);
    out.extend(body);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Below 128 one byte; else the negated number of bytes, then those, most significant first.
pub(super) fn put_uint(out: &mut Vec<u8>, value: u64) {
    if value < 128 {
        out.extend(value.to_le_bytes().first());
        return;
    }
    let zeroes = value.leading_zeros() as usize / 8;
    let bytes = value.to_be_bytes();
    let significant = bytes.get(zeroes..).unwrap_or_default();
    out.push((significant.len() as u8).wrapping_neg());
    out.extend(significant);
}

/// The sign is the lowest bit; negative numbers are complemented.
pub(super) fn put_int(out: &mut Vec<u8>, value: i64) {
    let bits = value.cast_unsigned();
    put_uint(out, if value < 0 { (!bits << 1) | 1 } else { bits << 1 });
}

/// Fields of `wireType`, counted from 1.
const WIRE_SLICE: u64 = 2;
const WIRE_STRUCT: u64 = 3;
