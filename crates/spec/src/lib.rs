// SPDX-License-Identifier: Apache-2.0
//! CNI wire types: configurations and results of versions 0.1.0 to 1.1.0 and the conversion between them,
//! error objects, `CNI_ARGS`, identifiers.
//!
//! Pure: nothing in here knows an operating system, a plugin or a file. Texts of errors are those of the Go
//! reference library (`containernetworking/cni`), since runtimes and tests match on them.

mod args;
mod code;
mod decode;
mod gostyle;
mod hash;
mod ident;
mod ip;
mod json;
mod result;
mod version;
mod wire;

pub use args::{Args, ArgsError};
pub use code::{Code, ErrorObject};
pub use decode::{DecodeError, decode, decode_embedding};
pub use gostyle::{list, quoted, quoted_list};
pub use hash::sha512_prefix;
pub use ident::{Attachment, ContainerId, IdentError, IfName, NetnsPath, NetworkName};
pub use ip::{Cidr, IpParseError, NetAddr, broadcast, first_host, parse_cidr, parse_ip, unmapped};
pub use json::{Json, JsonError};
pub use result::{CniResult, Dns, Interface, IpConfig, Route};
pub use version::{CniVersion, UnknownVersion, VersionError, VersionNumber};
pub use wire::{ConvertError, PrevResultError, parse_result, print_error, print_passed_on, print_result};
