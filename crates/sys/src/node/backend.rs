// SPDX-License-Identifier: Apache-2.0
//! Where rules are written that could be written either way. Must never know which rules.

use cnibox_spec::Code;

use crate::call::Failure;

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
    /// An unknown one, where it is needed.
    pub fn of_masquerade(name: Option<&str>, is_needed: bool) -> Result<Option<Self>, Failure> {
        match (name, name.and_then(Self::named)) {
            (Some(name), None) if is_needed => {
                Err(Failure::new(Code::INVALID_CONFIG, format!("unknown ipmasq backend {name:?}")))
            }
            (_, choice) => Ok(choice),
        }
    }
}
