// SPDX-License-Identifier: Apache-2.0
//! Error codes and the error object (CNI spec, section "Error").

use serde::Serialize;

/// A CNI error code. 0 to 99 are reserved by the specification, 999 is the reference plugins' own
/// "everything else".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Code(pub u32);

impl Code {
    /// A delegate failed without an error object.
    pub const UNKNOWN: Self = Self(0);
    /// Incompatible CNI version.
    pub const INCOMPATIBLE_VERSION: Self = Self(1);
    /// An environment variable is missing or malformed.
    pub const INVALID_ENVIRONMENT: Self = Self(4);
    /// Input or output failed.
    pub const IO_FAILURE: Self = Self(5);
    /// The configuration could not be decoded.
    pub const DECODING_FAILURE: Self = Self(6);
    /// The configuration was decoded but is wrong.
    pub const INVALID_CONFIG: Self = Self(7);
    /// The plugin's own network namespace is `CNI_NETNS` (reference extension).
    pub const INVALID_NETNS: Self = Self(8);
    /// A transient condition; the runtime may try again.
    pub const TRY_AGAIN_LATER: Self = Self(11);
    /// STATUS: the plugin is not available, ADD cannot work.
    pub const PLUGIN_NOT_AVAILABLE: Self = Self(50);
    /// STATUS: existing containers have limited connectivity.
    pub const LIMITED_CONNECTIVITY: Self = Self(51);
    /// Everything else.
    pub const INTERNAL: Self = Self(999);
}

/// What a failed plugin prints on stdout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorObject {
    /// The code; printed even when 0.
    pub code: Code,
    /// A short message.
    pub msg: String,
    /// A longer text, left out when empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl std::fmt::Display for ErrorObject {
    /// `msg`, then `; details` when there are any, as the reference library prints it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.msg)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, "; {}", self.details) }
    }
}
