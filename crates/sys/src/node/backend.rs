// SPDX-License-Identifier: Apache-2.0
//! Where rules are written that could be written either way. Must never know which rules.

use cnibox_spec::Code;
use thiserror::Error;

use crate::call::Coded;

/// Where rules are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The tables of iptables.
    Iptables,
    /// Native nf_tables tables of the reference's.
    Nftables,
}

impl Backend {
    /// The name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }

    /// The one that this is not.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Iptables => Self::Nftables,
            Self::Nftables => Self::Iptables,
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Iptables, Self::Nftables].into_iter().find(|backend| backend.name() == name)
    }

    /// Reads `ipMasqBackend`; `None` leaves the choice to the host. An unknown one stops ADD, which needs it; DEL cleans every
    /// backend anyway.
    ///
    /// # Errors
    /// [`UnknownBackend`], where it is needed.
    pub fn of_masquerade(name: Option<&str>, is_needed: bool) -> Result<Option<Self>, UnknownBackend> {
        match name.map(|name| Self::named(name).ok_or_else(|| UnknownBackend(name.to_owned()))).transpose() {
            Err(error) if is_needed => Err(error),
            choice => Ok(choice.unwrap_or(None)),
        }
    }
}

/// `ipMasqBackend` names nothing that is known.
#[derive(Debug, Error)]
#[error("unknown ipmasq backend {:?}", .0)]
pub struct UnknownBackend(pub String);

impl Coded for UnknownBackend {
    const CODE: Code = Code::INVALID_CONFIG;
}
