// SPDX-License-Identifier: Apache-2.0
//! Where rules are written that could be written either way. Must never know which rules.

use cnibox_netfilter::Batch;

use crate::call::{Failure, Sys};

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
                Err(Failure::invalid_config(format!("unknown ipmasq backend {name:?}")))
            }
            (_, choice) => Ok(choice),
        }
    }
}

impl Sys<'_> {
    /// Where rules go: the backend that was `asked` for, or else the one that the host wants. That is the native one where
    /// the host has only `nft`, and where the kernel cannot hold `rules`, of the iptables dialect. A part of the kernel that
    /// was missed once counts as missing until the next boot: what is written natively works whatever is loaded later.
    ///
    /// # Errors
    /// When the kernel does not tell; see [`Sys::engine`].
    pub fn backend(
        &mut self,
        asked: Option<Backend>,
        rules: impl FnOnce() -> Batch,
    ) -> Result<Backend, cnibox_netfilter::Error> {
        match asked {
            Some(backend) => Ok(backend),
            None if self.wants_native(&rules())? => Ok(Backend::Nftables),
            None => Ok(Backend::Iptables),
        }
    }
}
