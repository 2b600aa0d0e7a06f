// SPDX-License-Identifier: Apache-2.0
//! Which transport is asked for. It must never know whether the host has it.

use crate::error::{Error, Result};

/// How rules of the iptables dialect are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// As the host's `iptables` would: netlink for its nf_tables flavour, `iptables-restore` for the legacy one.
    #[default]
    Auto,
    /// Always over nf_tables netlink, but for rules that only the tool understands.
    Netlink,
    /// Always with `iptables-restore`.
    Exec,
}

impl std::str::FromStr for Choice {
    type Err = Error;

    /// `auto` (or nothing), `netlink`, `exec`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "" | "auto" => Ok(Self::Auto),
            "netlink" => Ok(Self::Netlink),
            "exec" => Ok(Self::Exec),
            _ => Err(Error::InvalidText { kind: "packet filter transport", value: text.to_owned() }),
        }
    }
}
