// SPDX-License-Identifier: Apache-2.0
//! Decoding with the leniency of Go's `encoding/json`, which configurations in the field rely on: keys match
//! without regard to case, unknown keys are ignored, the last duplicate wins, `null` leaves the default,
//! which inside lists and maps is `false`, 0 or the empty text.
//! Wrong types are errors that name the field in Go's words: a structure's serde name is the Go type (with its
//! package, where Go prints it), and so is a newtype's whose name says more than its content (`[]main.Range`).
//! A structure whose name is in lower case is the inside of a type that decodes itself: Go names the structure
//! around it. The field `Range::subnet` is `subnet` of an embedded `Range`.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, IntoDeserializer, Visitor};
use serde_json::Number;
use thiserror::Error;

use crate::Json;

/// A document whose shape is not the one expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A value of the wrong type.
    #[error("json: cannot unmarshal {value} into Go {place} of type {wanted}")]
    Type {
        /// What stands there: `string`, `number 1.5`, `object`, ...
        value: String,
        /// `value`, or `struct field NetConf.mtu`.
        place: String,
        /// Go's name of the type wanted.
        wanted: &'static str,
    },
    /// A value refused by the field's own type, such as an address.
    #[error("{0}")]
    Value(String),
}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Value(message.to_string())
    }
}

/// Decodes `json` into `T`.
///
/// # Errors
/// [`DecodeError`] for the first value that does not fit.
pub fn decode<T: DeserializeOwned>(json: &Json) -> Result<T, DecodeError> {
    T::deserialize(Decoder { json, place: &Place::Root { embedded: None }, go_type: None })
}

/// Decodes `json` into `T`, whose structure embeds one like `E`, called `name`, that is only checked for its types.
///
/// # Errors
/// [`DecodeError`] for the first value that does not fit, first of `E`'s.
pub fn decode_embedding<T, E>(json: &Json, name: &'static str) -> Result<T, DecodeError>
where
    T: DeserializeOwned,
    E: DeserializeOwned,
{
    let check: Check = |json, place| E::deserialize(Decoder { json, place, go_type: None }).map(drop);
    T::deserialize(Decoder { json, place: &Place::Root { embedded: Some((name, check)) }, go_type: None })
}

/// Checks the types of an embedded structure.
type Check = fn(&Json, &Place<'_>) -> Result<(), DecodeError>;

/// Where in the document the decoder stands.
enum Place<'a> {
    Root {
        embedded: Option<(&'static str, Check)>,
    },
    /// In the structure `name` that is embedded in `outer`, the whole document.
    Embedded {
        outer: &'static str,
        name: &'static str,
    },
    Field {
        structure: &'static str,
        name: &'static str,
        parent: &'a Place<'a>,
    },
}

impl Place<'_> {
    fn path(&self) -> String {
        match self {
            Self::Root { .. } => String::new(),
            Self::Embedded { name, .. } => (*name).to_owned(),
            Self::Field { name, parent, .. } => {
                let name = name.replace("::", ".");
                match parent.path() {
                    path if path.is_empty() => name,
                    path => format!("{path}.{name}"),
                }
            }
        }
    }

    /// The structure that Go names for a field of `structure`, which stands here.
    fn named(&self, structure: &'static str) -> &'static str {
        match self {
            Self::Embedded { outer, .. } => outer,
            Self::Field { structure: around, .. } if bare(structure).starts_with(char::is_lowercase) => {
                around
            }
            Self::Root { .. } | Self::Field { .. } => structure,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root { .. } | Self::Embedded { .. } => f.write_str("value"),
            Self::Field { structure, .. } => write!(f, "struct field {}.{}", bare(structure), self.path()),
        }
    }
}

/// A Go type without its package; what is written out (`struct { .. }`) has no name.
fn bare(structure: &str) -> &str {
    if structure.contains(' ') { "" } else { structure.rsplit('.').next().unwrap_or(structure) }
}

#[derive(Clone, Copy)]
struct Decoder<'a> {
    json: &'a Json,
    place: &'a Place<'a>,
    /// Go's name of the type, when a newtype around it has told.
    go_type: Option<&'static str>,
}

impl<'a> Decoder<'a> {
    /// What is inside of a list or an object stands where that stands.
    fn inside(self, json: &'a Json) -> Self {
        Self { json, go_type: None, ..self }
    }

    fn visit_items<'de, V: Visitor<'de>>(
        self,
        items: &'a [Json],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(SeqDeserializer::new(items.iter().map(|item| self.inside(item))))
    }

    fn visit_members<'de, V: Visitor<'de>>(
        self,
        members: &'a [(String, Json)],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let members = members.iter().map(|(key, value)| (key.as_str(), self.inside(value)));
        visitor.visit_map(MapDeserializer::new(members))
    }

    /// A number, which `null` is 0 for.
    fn number(&self) -> Option<Number> {
        match self.json {
            Json::Number(number) => Some(number.clone()),
            Json::Null => Some(0.into()),
            Json::Bool(_) | Json::String(_) | Json::Array(_) | Json::Object(_) => None,
        }
    }

    fn mismatch(&self, wanted: &'static str) -> DecodeError {
        let value = match self.json {
            Json::Null => "null".to_owned(),
            Json::Bool(_) => "bool".to_owned(),
            // Beyond 64 bits the digits are told, as far as a float knows them.
            Json::Number(number) => match number.as_f64().filter(|float| float.abs() >= 1e18) {
                Some(float) if !number.is_i64() && !number.is_u64() => format!("number {float}"),
                _ => format!("number {number}"),
            },
            Json::String(_) => "string".to_owned(),
            Json::Array(_) => "array".to_owned(),
            Json::Object(_) => "object".to_owned(),
        };
        // Go names the number only where it wanted a number of another kind.
        let value = match (value.starts_with("number"), wanted) {
            (true, "int" | "uint32" | "uint64") => value,
            (true, _) => "number".to_owned(),
            (false, _) => value,
        };
        DecodeError::Type { value, place: self.place.to_string(), wanted: self.go_type.unwrap_or(wanted) }
    }
}

impl IntoDeserializer<'_, DecodeError> for Decoder<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> de::Deserializer<'de> for Decoder<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.json {
            Json::Null => visitor.visit_unit(),
            Json::Bool(value) => visitor.visit_bool(*value),
            Json::String(value) => visitor.visit_str(value),
            Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_i64(value),
                (None, Some(value), _) => visitor.visit_u64(value),
                (None, None, value) => visitor.visit_f64(value.unwrap_or_default()),
            },
            Json::Array(items) => self.visit_items(items, visitor),
            Json::Object(members) => self.visit_members(members, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if *self.json == Json::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.json {
            Json::Bool(value) => visitor.visit_bool(*value),
            Json::Null => visitor.visit_bool(false),
            Json::Number(_) | Json::String(_) | Json::Array(_) | Json::Object(_) => {
                Err(self.mismatch("bool"))
            }
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let value = self.number().and_then(|number| number.as_i64());
        value.map_or_else(|| Err(self.mismatch("int")), |value| visitor.visit_i64(value))
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let value = self.number().and_then(|number| number.as_u64());
        value.map_or_else(|| Err(self.mismatch("uint64")), |value| visitor.visit_u64(value))
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let value =
            self.number().and_then(|number| number.as_u64()).and_then(|value| u32::try_from(value).ok());
        value.map_or_else(|| Err(self.mismatch("uint32")), |value| visitor.visit_u32(value))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.json {
            Json::String(value) => visitor.visit_str(value),
            Json::Null => visitor.visit_str(""),
            Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
                Err(self.mismatch("string"))
            }
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let items = self.json.items().ok_or_else(|| self.mismatch("[]string"))?;
        self.visit_items(items, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let members = self.json.members().ok_or_else(|| self.mismatch("map[string]string"))?;
        self.visit_members(members, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        structure: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if let Place::Root { embedded: Some((name, check)) } = self.place {
            check(self.json, &Place::Embedded { outer: structure, name })?;
        }
        let members = self.json.members().ok_or_else(|| self.mismatch(structure))?;
        let structure = self.place.named(structure);
        let place = |name| Place::Field { structure, name, parent: self.place };
        let fields =
            fields.iter().filter_map(|name| Some((*name, field(members, name, fields)?, place(name))));
        let fields = fields.collect::<Vec<_>>();
        let decoders =
            fields.iter().map(|(name, json, place)| (*name, Decoder { json, place, go_type: None }));
        visitor.visit_map(MapDeserializer::new(decoders))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        // Rust's own names have neither brackets nor dots.
        let go_type = name.contains(['[', '.']).then_some(name);
        visitor.visit_newtype_struct(Decoder { go_type: go_type.or(self.go_type), ..self })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
        enum identifier ignored_any
    }
}

/// The value of the field `name`, whatever the case of the key; the last of several, `null` never. As in Go, a key that
/// is exactly the name is no better than another, but one that is exactly the name of another of `fields` is that one's.
fn field<'a>(members: &'a [(String, Json)], name: &str, fields: &[&str]) -> Option<&'a Json> {
    let name = key_of(name);
    let called = |(key, value): &&(String, Json)| {
        let is_others = || key != name && fields.iter().any(|other| key_of(other) == key);
        key.eq_ignore_ascii_case(name) && *value != Json::Null && !is_others()
    };
    members.iter().rev().find(called).map(|(_, value)| value)
}

/// The key of a field whose name may say which structure it is of.
fn key_of(field: &str) -> &str {
    field.rsplit("::").next().unwrap_or(field)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Cidr, NetAddr};
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename = "NetConf", default)]
    struct NetConf {
        mtu: i64,
        #[serde(rename = "ipMasq")]
        ip_masq: bool,
        ipam: Option<Ipam>,
    }
    impl Default for NetConf {
        fn default() -> Self {
            Self { mtu: 7, ip_masq: false, ipam: None }
        }
    }
    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename = "allocator.IPAMConfig", default)]
    struct Ipam {
        #[serde(rename = "Range::subnet")]
        subnet: Option<Cidr>,
        count: i64,
        gateway: NetAddr,
        routes: Routes,
        args: Args,
    }
    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename = "[]*types.Route")]
    struct Routes(Vec<Route>);
    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename = "route", default)]
    struct Route {
        mtu: i64,
    }
    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename = "struct { A bool \"json:\\\"a\\\"\" }", default)]
    struct Args {
        a: bool,
    }
    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename = "PluginConf", default)]
    struct Common {
        dns: Dns,
    }
    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename = "types.DNS", default)]
    struct Dns {
        domain: String,
    }

    fn load(text: &str) -> Result<NetConf, String> {
        decode(&Json::parse(text.as_bytes()).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_may_differ_in_case_only() {
        #[derive(Deserialize)]
        struct Address {
            address: String,
            #[serde(rename = "Address")]
            parsed: i64,
        }
        let json = Json::parse(br#"{"address": "text", "Address": 5, "ADDRESS": 6}"#);
        let error = decode::<Address>(&json.unwrap());
        assert!(error.is_err(), "the last key is the first field's");
        let json = Json::parse(br#"{"address": "text", "Address": 5}"#).unwrap();
        let both = decode::<Address>(&json).unwrap();
        assert_eq!((both.address.as_str(), both.parsed), ("text", 5));
    }

    #[test]
    fn the_last_key_of_a_field_counts_in_whatever_case() {
        for (text, mtu) in [
            (r#"{"mtu": 1, "MTU": 2}"#, 2),
            (r#"{"MTU": 2, "mtu": 1}"#, 1),
            (r#"{"Mtu": 3, "mtu": null}"#, 3),
        ] {
            let json = Json::parse(text.as_bytes()).unwrap();
            assert_eq!(decode::<NetConf>(&json).unwrap().mtu, mtu, "{text}");
            assert_eq!(json.member("mtu").is_none(), mtu == 3, "{text}");
        }
    }

    #[test]
    fn keys_match_without_case_and_the_last_wins() {
        let conf = load(r#"{"IPMASQ":true,"x":{},"mtu":1,"mtu":2,"Ipam":{"SUBNET":"10.0.0.1/8"}}"#).unwrap();
        assert_eq!((conf.mtu, conf.ip_masq), (2, true));
        assert_eq!(conf.ipam.unwrap().subnet.unwrap().0.to_string(), "10.0.0.1/8");
    }

    #[test]
    fn null_leaves_the_default() {
        assert_eq!(load(r#"{"mtu":null,"ipam":null}"#).unwrap(), NetConf::default());
    }

    #[test]
    fn null_in_lists_and_maps_is_zero() {
        fn load<T: DeserializeOwned>(text: &str) -> Result<T, String> {
            decode(&Json::parse(text.as_bytes()).unwrap()).map_err(|error| error.to_string())
        }
        let capabilities: BTreeMap<String, bool> = load(r#"{"portMappings":null,"ips":true}"#).unwrap();
        assert_eq!(capabilities.into_values().collect::<Vec<_>>(), [true, false]);
        assert_eq!(load::<Vec<String>>(r#"["a",null]"#).unwrap(), ["a", ""]);
        assert_eq!(load::<Vec<i64>>("[null,-1]").unwrap(), [0, -1]);
        assert_eq!(load::<Vec<u64>>("[null]").unwrap(), [0]);
        assert_eq!(load::<Vec<u32>>("[null]").unwrap(), [0]);
        assert_eq!(load::<Vec<NetAddr>>("[null]").unwrap(), [NetAddr(None)]);
        assert_eq!(load::<Vec<Option<i64>>>("[null]").unwrap(), [None]);
        // Reads itself, in Go too.
        assert_eq!(load::<Vec<Cidr>>("[null]").unwrap_err(), "invalid CIDR address: ");
    }

    #[test]
    fn wrong_types_are_named_as_go_names_them() {
        let expect = [
            (r#"{"mtu":"x"}"#, "json: cannot unmarshal string into Go struct field NetConf.mtu of type int"),
            (
                r#"{"mtu":1500.0}"#,
                "json: cannot unmarshal number 1500.0 into Go struct field NetConf.mtu of type int",
            ),
            (
                r#"{"ipMasq":1}"#,
                "json: cannot unmarshal number into Go struct field NetConf.ipMasq of type bool",
            ),
            (
                r#"{"mtu":100000000000000000000}"#,
                "json: cannot unmarshal number 100000000000000000000 into Go struct field NetConf.mtu of type int",
            ),
            (
                r#"{"ipam":[]}"#,
                "json: cannot unmarshal array into Go struct field NetConf.ipam of type allocator.IPAMConfig",
            ),
            (
                r#"{"ipam":{"subnet":1}}"#,
                "json: cannot unmarshal number into Go struct field IPAMConfig.ipam.Range.subnet of type string",
            ),
            (
                r#"{"ipam":{"gateway":1}}"#,
                "json: cannot unmarshal number into Go struct field IPAMConfig.ipam.gateway of type net.IP",
            ),
            (
                r#"{"ipam":{"routes":{}}}"#,
                "json: cannot unmarshal object into Go struct field IPAMConfig.ipam.routes of type []*types.Route",
            ),
            (
                r#"{"ipam":{"routes":[{"mtu":""}]}}"#,
                "json: cannot unmarshal string into Go struct field IPAMConfig.ipam.routes.mtu of type int",
            ),
            (
                r#"{"ipam":{"args":1}}"#,
                r#"json: cannot unmarshal number into Go struct field IPAMConfig.ipam.args of type struct { A bool "json:\"a\"" }"#,
            ),
            (
                r#"{"ipam":{"args":{"a":1}}}"#,
                "json: cannot unmarshal number into Go struct field .ipam.args.a of type bool",
            ),
            (
                r#"{"ipam":{"count":true}}"#,
                "json: cannot unmarshal bool into Go struct field IPAMConfig.ipam.count of type int",
            ),
            (r#"{"ipam":{"subnet":"x"}}"#, "invalid CIDR address: x"),
            ("[]", "json: cannot unmarshal array into Go value of type NetConf"),
        ];
        for (text, message) in expect {
            assert_eq!(load(text).unwrap_err(), message);
        }
    }

    #[test]
    fn embedded_structures_are_part_of_the_path() {
        let expect = [
            (
                r#"{"dns":1}"#,
                "json: cannot unmarshal number into Go struct field NetConf.Embedded.dns of type types.DNS",
            ),
            (
                r#"{"dns":{"domain":1}}"#,
                "json: cannot unmarshal number into Go struct field DNS.Embedded.dns.domain of type string",
            ),
            (r#"{"mtu":""}"#, "json: cannot unmarshal string into Go struct field NetConf.mtu of type int"),
        ];
        for (text, message) in expect {
            let json = Json::parse(text.as_bytes()).unwrap();
            let error = decode_embedding::<NetConf, Common>(&json, "Embedded").unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
