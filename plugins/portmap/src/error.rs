// SPDX-License-Identifier: Apache-2.0
//! What the packet filter refuses, in the reference's words where it has any.

use cnibox_netfilter::Error;
use cnibox_spec::Code;
use cnibox_sys::Coded;
use thiserror::Error as ThisError;

/// What the packet filter refuses.
#[derive(Debug, ThisError)]
pub(crate) enum PortmapError {
    #[error("unable to setup DNAT: {0}")]
    Iptables(Error),
    #[error("unable to set up nftables rules for port mappings: {0}")]
    Nftables(Error),
    #[error("could not teardown {family} dnat: {source}")]
    Teardown { family: &'static str, source: Error },
    #[error("error deleting nftables rules: {0}")]
    NftTeardown(Error),
}

impl Coded for PortmapError {
    fn code(&self) -> Code {
        let (Self::Iptables(error)
        | Self::Nftables(error)
        | Self::NftTeardown(error)
        | Self::Teardown { source: error, .. }) = self;
        error.code()
    }
}
