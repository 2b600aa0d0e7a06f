// SPDX-License-Identifier: Apache-2.0
//! Bytes to values, by the types that the peer defines. Everything is bounded: the peer may be anybody who can open
//! the socket.

use std::collections::HashMap;
use std::io::{self, Read};

use thiserror::Error;

use super::{Value, builtin};

/// Why a stream cannot be read on.
#[derive(Debug, Error)]
pub(crate) enum GobError {
    /// Reading failed, or the stream ended within a message.
    #[error("{}", cnibox_netns::errno::io_text(.0))]
    Io(#[from] io::Error),
    /// A message is larger than any that could be meant.
    #[error("gob: message of {0} bytes is too big")]
    TooBig(u64),
    /// A message is not what its type says.
    #[error("gob: {0}")]
    Malformed(&'static str),
}

/// The receiving side of a stream.
pub(crate) struct Decoder {
    types: HashMap<i64, Wire>,
    limit: u64,
}

/// A type as the peer defined it.
#[derive(Clone, Debug)]
enum Wire {
    /// What follows in turn: an item, or the key and the item of a map.
    List(Vec<i64>),
    Struct(Vec<(String, i64)>),
    /// Encodes itself: bytes.
    Opaque,
}

impl Decoder {
    /// A new stream; `limit` is the most bytes of one message.
    pub(crate) fn new(limit: u64) -> Self {
        Self { types: known_types(), limit }
    }

    /// The next value; `None` where the stream ends between two messages. Definitions before it are taken in.
    pub(crate) fn next(&mut self, from: &mut impl Read) -> Result<Option<Value>, GobError> {
        loop {
            let Some(message) = self.message(from)? else { return Ok(None) };
            let mut cursor = Cursor { bytes: &message, values: VALUES_LIMIT };
            let id = cursor.int()?;
            if id >= 0 {
                let value = self.top_level(&mut cursor, id)?;
                return if cursor.bytes.is_empty() { Ok(Some(value)) } else { Err(TRAILING) };
            }
            let wire = self.value(&mut cursor, builtin::WIRE_TYPE, 0)?;
            self.learn(id, &wire)?;
        }
    }

    fn message(&self, from: &mut impl Read) -> Result<Option<Vec<u8>>, GobError> {
        let Some(length) = read_length(from)? else { return Ok(None) };
        if length > self.limit {
            return Err(GobError::TooBig(length));
        }
        let mut message = Vec::new();
        from.take(length).read_to_end(&mut message)?;
        if (message.len() as u64) < length {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "unexpected EOF").into());
        }
        Ok(Some(message))
    }

    /// A value that is no structure has a zero in front.
    fn top_level(&self, cursor: &mut Cursor<'_>, id: i64) -> Result<Value, GobError> {
        if !matches!(self.types.get(&id), Some(Wire::Struct(_))) && cursor.uint()? != 0 {
            return Err(GobError::Malformed("corrupted data: non-zero delta for singleton"));
        }
        self.value(cursor, id, 0)
    }

    fn value(&self, cursor: &mut Cursor<'_>, id: i64, depth: u32) -> Result<Value, GobError> {
        cursor.count_value()?;
        match id {
            builtin::INT => return Ok(Value::Int(cursor.int()?)),
            builtin::BOOL | builtin::UINT | builtin::FLOAT => return Ok(Value::Uint(cursor.uint()?)),
            builtin::BYTES => return Ok(Value::Bytes(cursor.counted()?.to_vec())),
            builtin::STRING => {
                return Ok(Value::Text(String::from_utf8_lossy(cursor.counted()?).into_owned()));
            }
            _ => {}
        }
        let wire = self.types.get(&id).ok_or(GobError::Malformed("unknown type id"))?;
        if depth == DEPTH_LIMIT {
            return Err(GobError::Malformed("nested too deeply"));
        }
        match wire {
            Wire::Opaque => Ok(Value::Bytes(cursor.counted()?.to_vec())),
            Wire::List(kinds) => self.items(cursor, kinds, depth),
            Wire::Struct(fields) => self.fields(cursor, fields, depth),
        }
    }

    fn items(&self, cursor: &mut Cursor<'_>, kinds: &[i64], depth: u32) -> Result<Value, GobError> {
        let mut items = Vec::new();
        for _ in 0..cursor.uint()? {
            for kind in kinds {
                items.push(self.value(cursor, *kind, depth + 1)?);
            }
        }
        Ok(Value::List(items))
    }

    fn fields(
        &self,
        cursor: &mut Cursor<'_>,
        fields: &[(String, i64)],
        depth: u32,
    ) -> Result<Value, GobError> {
        let mut found = Vec::new();
        let mut rest = fields.iter();
        loop {
            let delta = cursor.uint()?;
            let Some(skipped) = delta.checked_sub(1) else { return Ok(Value::Struct(found)) };
            let field = usize::try_from(skipped).ok().and_then(|skipped| rest.nth(skipped));
            let (name, kind) = field.ok_or(GobError::Malformed("corrupted data: field number"))?;
            found.push((name.clone(), self.value(cursor, *kind, depth + 1)?));
        }
    }

    /// Takes a definition in: a value of `wireType`.
    fn learn(&mut self, id: i64, wire: &Value) -> Result<(), GobError> {
        let id = id.checked_neg().filter(|id| *id >= builtin::FIRST_DEFINED);
        let id = id.ok_or(GobError::Malformed("a type has the number of a builtin one"))?;
        if self.types.len() == TYPES_LIMIT {
            return Err(GobError::Malformed("too many types"));
        }
        let Value::Struct(kinds) = wire else { return Err(NO_TYPE) };
        let [(kind, inner)] = kinds.as_slice() else { return Err(NO_TYPE) };
        let number = |name: &str| inner.int_field(name).ok_or(NO_TYPE);
        let wire = match kind.as_str() {
            "ArrayT" | "SliceT" => Wire::List(vec![number("Elem")?]),
            "MapT" => Wire::List(vec![number("Key")?, number("Elem")?]),
            "StructT" => Wire::Struct(inner.list_field("Field").iter().map(field).collect::<Result<_, _>>()?),
            _ => Wire::Opaque,
        };
        // A second definition is an error in Go, too.
        if self.types.insert(id, wire).is_some() {
            return Err(GobError::Malformed("duplicate type received"));
        }
        Ok(())
    }
}

/// One field of a structure's definition.
fn field(field: &Value) -> Result<(String, i64), GobError> {
    let name = field.text_field("Name");
    // Every value has its own copy.
    if name.len() > NAME_LIMIT {
        return Err(NO_TYPE);
    }
    Ok((name.to_owned(), field.int_field("Id").ok_or(NO_TYPE)?))
}

/// What is left of a message, and how many values may still come.
struct Cursor<'a> {
    bytes: &'a [u8],
    values: u32,
}

impl<'a> Cursor<'a> {
    fn count_value(&mut self) -> Result<(), GobError> {
        self.values = self.values.checked_sub(1).ok_or(GobError::Malformed("too many values"))?;
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], GobError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(SHORT)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn uint(&mut self) -> Result<u64, GobError> {
        let first = *self.take(1)?.first().ok_or(SHORT)?;
        match width(first)? {
            0 => Ok(u64::from(first)),
            width => Ok(joined(self.take(width)?)),
        }
    }

    fn int(&mut self) -> Result<i64, GobError> {
        let bits = self.uint()?;
        let value = (bits >> 1).cast_signed();
        Ok(if bits & 1 == 1 { !value } else { value })
    }

    fn counted(&mut self) -> Result<&'a [u8], GobError> {
        let length = self.uint()?;
        self.take(usize::try_from(length).map_err(|_| SHORT)?)
    }
}

/// How many bytes follow the first one of an unsigned number.
fn width(first: u8) -> Result<usize, GobError> {
    match first {
        0..128 => Ok(0),
        248.. => Ok(usize::from(first.wrapping_neg())),
        _ => Err(GobError::Malformed("encoded unsigned integer out of range")),
    }
}

fn joined(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The number in front of a message; `None` at the end of the stream.
fn read_length(from: &mut impl Read) -> Result<Option<u64>, GobError> {
    let mut first = Vec::with_capacity(1);
    from.take(1).read_to_end(&mut first)?;
    let Some(first) = first.pop() else { return Ok(None) };
    let mut rest = [0; 8];
    let rest = match width(first)? {
        0 => return Ok(Some(u64::from(first))),
        width => rest.get_mut(..width).ok_or(SHORT)?,
    };
    from.read_exact(rest)?;
    Ok(Some(joined(rest)))
}

/// The types that describe types.
fn known_types() -> HashMap<i64, Wire> {
    use builtin::{
        ARRAY_TYPE, COMMON_TYPE, FIELD_TYPE, FIELD_TYPES, INT, MAP_TYPE, OPAQUE_TYPE, SLICE_TYPE, STRING,
        STRUCT_TYPE, WIRE_TYPE,
    };
    let structure = |fields: &[(&str, i64)]| {
        Wire::Struct(fields.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect())
    };
    let common = ("CommonType", COMMON_TYPE);
    HashMap::from([
        (
            WIRE_TYPE,
            structure(&[
                ("ArrayT", ARRAY_TYPE),
                ("SliceT", SLICE_TYPE),
                ("StructT", STRUCT_TYPE),
                ("MapT", MAP_TYPE),
                ("GobEncoderT", OPAQUE_TYPE),
                ("BinaryMarshalerT", OPAQUE_TYPE),
                ("TextMarshalerT", OPAQUE_TYPE),
            ]),
        ),
        (COMMON_TYPE, structure(&[("Name", STRING), ("Id", INT)])),
        (ARRAY_TYPE, structure(&[common, ("Elem", INT), ("Len", INT)])),
        (SLICE_TYPE, structure(&[common, ("Elem", INT)])),
        (STRUCT_TYPE, structure(&[common, ("Field", FIELD_TYPES)])),
        (FIELD_TYPE, structure(&[("Name", STRING), ("Id", INT)])),
        (FIELD_TYPES, Wire::List(vec![FIELD_TYPE])),
        (MAP_TYPE, structure(&[common, ("Key", INT), ("Elem", INT)])),
        (OPAQUE_TYPE, structure(&[common])),
    ])
}

const SHORT: GobError = GobError::Malformed("corrupted data: message too short");
const TRAILING: GobError = GobError::Malformed("corrupted data: message too long");
const NO_TYPE: GobError = GobError::Malformed("corrupted data: bad type definition");
/// More than Go's plugins define, by far.
const TYPES_LIMIT: usize = 128;
/// Nothing that is talked about has as many parts.
const VALUES_LIMIT: u32 = 1 << 16;
const DEPTH_LIMIT: u32 = 16;
/// For the name of a field, in bytes.
const NAME_LIMIT: usize = 256;
