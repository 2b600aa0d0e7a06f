// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a good configuration, in the reference's words where it has any.

use cnibox_netfilter::Error;
use cnibox_netns::sysctl;
use cnibox_spec::Code;
use cnibox_sys::Coded;
use thiserror::Error as ThisError;

/// What can go wrong with a good configuration.
#[derive(Debug, ThisError)]
pub(crate) enum PortmapError {
    #[error("unable to setup DNAT: {0}")]
    Iptables(Error),
    #[error("unable to setup DNAT: Chain '{0}' does not exist")]
    MarkChain(String),
    #[error("unable to set up nftables rules for port mappings: {0}")]
    Nftables(Error),
    #[error("unable to enable route_localnet: {0}")]
    RouteLocalnet(sysctl::Error),
    #[error("could not teardown {family} dnat: {source}")]
    Teardown { family: &'static str, source: Error },
    #[error("neither iptables nor ip6tables is usable, (iptables) {0}, (ip6tables) {1}")]
    Unusable(Error, Error),
    #[error("error deleting nftables rules: {0}")]
    NftTeardown(Error),
    #[error("could not check {family} dnat: {drift}")]
    Drift { family: &'static str, drift: Drift },
    #[error("missing hostport rules in {0:?} chain")]
    MissingNative(&'static str),
    #[error("port mappings cannot be set up: {0}")]
    NotAvailable(Error),
}

impl Coded for PortmapError {
    fn code(&self) -> Code {
        match self {
            Self::Iptables(error)
            | Self::Nftables(error)
            | Self::NftTeardown(error)
            | Self::Teardown { source: error, .. } => error.code(),
            Self::MarkChain(_) => Code::INVALID_CONFIG,
            Self::NotAvailable(_) => Code::PLUGIN_NOT_AVAILABLE,
            Self::RouteLocalnet(_) | Self::Unusable(..) | Self::Drift { .. } | Self::MissingNative(_) => {
                Code::INTERNAL
            }
        }
    }
}

/// What is not as ADD left it, in iptables' tables.
#[derive(Debug, ThisError)]
pub(crate) enum Drift {
    #[error("chain {0} not found in iptables table nat")]
    NoChain(String),
    #[error("rule {rules} in chain {chain} not found in table nat")]
    NoRule { rules: String, chain: String },
    #[error("{0}")]
    Unknown(#[from] Error),
}
