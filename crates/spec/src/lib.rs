// SPDX-License-Identifier: Apache-2.0
//! CNI's types: configurations and results of versions 0.1.0 to 1.1.0, error objects, `CNI_ARGS`, identifiers.
//!
//! Pure: nothing in here knows an operating system, a plugin or a file. Texts of errors are those of the Go
//! reference library (`containernetworking/cni`), since runtimes and tests match on them.
//!
//! # Results
//!
//! Plugins work with one shape of results, [`CniResult`], that of CNI 1.1. Older shapes exist on the wire only:
//! [`parse_result`] reads what a previous plugin printed, [`print_result`] prints what the network's version asks for.
//!
//! ```
//! use cnibox_spec::{CniVersion, Json, parse_result, print_result};
//!
//! let printed = br#"{
//!     "cniVersion": "0.4.0",
//!     "ips": [ { "version": "4", "address": "10.1.0.5/16", "gateway": "10.1.0.1" } ]
//! }"#;
//! let result = parse_result("0.4.0", &Json::parse(printed)?)?;
//! assert_eq!(result.ips[0].address.to_string(), "10.1.0.5/16");
//!
//! let modern = print_result(CniVersion::V1_1_0, &result)?;
//! assert!(modern.contains("1.1.0") && !modern.contains("version\": \"4"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Configurations
//!
//! [`Json`] keeps a document as it came, so that what is handed on to another plugin is what was read; [`decode()`] makes a
//! type of it, with Go's rules (a member's name counts in any case, unknown members are nobody's business) and Go's words
//! where it fails.
//!
//! # Identifiers
//!
//! [`ContainerId`], [`NetworkName`], [`IfName`] and [`NetnsPath`] are checked once, where they come from outside. Who has
//! one need not look again: an [`IfName`] is no path, and fits into the kernel's fifteen bytes.
//!
//! ```
//! use cnibox_spec::IfName;
//!
//! assert!(IfName::new("eth0").is_ok());
//! assert!(IfName::new("../../etc/passwd").is_err());
//! ```

mod args;
mod code;
mod decode;
mod gostyle;
mod hash;
mod ident;
mod ip;
mod json;
mod result;
mod syntax;
mod verb;
mod version;
mod wire;

pub use args::{ArgsError, load_args};
pub use code::{Code, ErrorObject};
pub use decode::{DecodeError, decode, decode_embedding};
pub use gostyle::{hex_mask, list, or_nil, quoted, quoted_list};
pub use hash::{is_shortened, sha512_prefix, shortened};
pub use ident::{Attachment, ContainerId, IdentError, IfName, LiveAttachment, NetnsPath, NetworkName};
pub use ip::{Cidr, IpParseError, NetAddr, everywhere, first_host, parse_cidr, parse_ip, subnet, unmapped};
pub use json::{Json, JsonError};
pub use result::{CniResult, Dns, Interface, IpConfig, Route};
pub use verb::Verb;
pub use version::{CniVersion, UnknownVersion, VersionError, VersionNumber};
pub use wire::{
    ConvertError, PrevResultError, check_expressible, parse_result, print_error, print_passed_on,
    print_result,
};
