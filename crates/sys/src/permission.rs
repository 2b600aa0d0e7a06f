// SPDX-License-Identifier: Apache-2.0
//! Whether the process may configure networks at all, for STATUS.

use cnibox_spec::Code;
use thiserror::Error;

use crate::{Coded, Failure, Sys};

/// Why ADD could not work whatever the configuration.
#[derive(Debug, Error)]
enum Unpermitted {
    #[error("cannot read /proc/self/status: {}", cnibox_netns::errno::io_text(.0))]
    Unreadable(#[source] std::io::Error),
    #[error("no permission to configure networks: CAP_NET_ADMIN is not effective")]
    NoNetAdmin,
}

impl Coded for Unpermitted {
    fn code(&self) -> Code {
        Code::PLUGIN_NOT_AVAILABLE
    }
}

impl Sys<'_> {
    /// Finds out whether this process has `CAP_NET_ADMIN` (`capabilities(7)`), without trying anything.
    ///
    /// # Errors
    /// Code 50 when it has not.
    pub fn require_net_admin(&self) -> Result<(), Failure> {
        let status = std::fs::read_to_string("/proc/self/status").map_err(Unpermitted::Unreadable)?;
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
        if mask & CAP_NET_ADMIN == 0 { Err(Unpermitted::NoNetAdmin.into()) } else { Ok(()) }
    }
}

/// Bit 12, `linux/capability.h`.
const CAP_NET_ADMIN: u64 = 1 << 12;
