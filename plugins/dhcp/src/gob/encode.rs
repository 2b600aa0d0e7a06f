// SPDX-License-Identifier: Apache-2.0
//! Values to bytes. What type a value has follows from the value.

use super::{Value, builtin};

/// The sending side of a stream: it remembers which types the peer has been told.
#[derive(Default)]
pub(crate) struct Encoder {
    /// The definitions in the order of their numbers.
    told: Vec<Value>,
}

impl Encoder {
    /// The messages for a structure: definitions that are still due, then the value.
    pub(crate) fn encode(&mut self, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        let id = self.tell(value, &mut out);
        put_message(&mut out, id, value);
        out
    }

    /// The number of a value's type. All items of a list have the type of the first one. Go gives types names besides,
    /// which nobody compares.
    fn tell(&mut self, value: &Value, out: &mut Vec<u8>) -> i64 {
        let none = || Value::Uint(0);
        let definition = match value {
            Value::Int(_) => return builtin::INT,
            Value::Uint(_) => return builtin::UINT,
            Value::Bytes(_) => return builtin::BYTES,
            Value::Text(_) => return builtin::STRING,
            Value::List(items) => {
                let item = items.first().map_or(builtin::BYTES, |item| self.tell(item, out));
                let slice = Value::of([("CommonType", none()), ("Elem", Value::Int(item))]);
                Value::of([("ArrayT", none()), ("SliceT", slice)])
            }
            Value::Struct(fields) => {
                let mut field = |name: &str, value: &Value| {
                    Value::of([("Name", Value::text(name)), ("Id", Value::Int(self.tell(value, out)))])
                };
                let fields = fields.iter().map(|(name, value)| field(name, value)).collect();
                let structure = Value::of([("CommonType", none()), ("Field", Value::List(fields))]);
                Value::of([("ArrayT", none()), ("SliceT", none()), ("StructT", structure)])
            }
        };
        let known = self.told.iter().position(|told| *told == definition);
        let id = builtin::FIRST_DEFINED + known.unwrap_or(self.told.len()) as i64;
        if known.is_none() {
            put_message(out, -id, &definition);
            self.told.push(definition);
        }
        id
    }
}

fn put_message(out: &mut Vec<u8>, id: i64, value: &Value) {
    let mut body = Vec::new();
    put_int(&mut body, id);
    put_value(&mut body, value);
    put_bytes(out, &body);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Int(number) => put_int(out, *number),
        Value::Uint(number) => put_uint(out, *number),
        Value::Bytes(bytes) => put_bytes(out, bytes),
        Value::Text(text) => put_bytes(out, text.as_bytes()),
        Value::List(items) => {
            put_uint(out, items.len() as u64);
            items.iter().for_each(|item| put_value(out, item));
        }
        Value::Struct(fields) => {
            let mut delta = 1;
            for (_, field) in fields {
                if field.is_zero() {
                    delta += 1;
                    continue;
                }
                put_uint(out, delta);
                put_value(out, field);
                delta = 1;
            }
            put_uint(out, 0);
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Below 128 one byte; else the negated number of bytes, then those, most significant first.
fn put_uint(out: &mut Vec<u8>, value: u64) {
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
fn put_int(out: &mut Vec<u8>, value: i64) {
    let bits = value.cast_unsigned();
    put_uint(out, if value < 0 { (!bits << 1) | 1 } else { bits << 1 });
}
