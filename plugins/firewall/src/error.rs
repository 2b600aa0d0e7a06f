// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a good configuration, in the reference's words where it has any.

use cnibox_netfilter::Error;
use cnibox_spec::Code;
use cnibox_sys::Coded;
use thiserror::Error as ThisError;

/// What can go wrong with a good configuration.
#[derive(Debug, ThisError)]
pub(crate) enum FirewallError {
    #[error("could not initialize iptables protocol {protocol}: {source}")]
    NoTool { protocol: u8, source: Error },
    #[error("{0}")]
    Rules(Error),
    #[error("expected {chain} rule {rule} not found")]
    NoChainRule { chain: &'static str, rule: String },
    #[error("expected rule {0} not found")]
    NoRule(String),
    #[error("expected native rules not found; missing: {0}")]
    NoNativeRule(String),
    #[error("firewall rules cannot be set up: {0}")]
    NotAvailable(Error),
}

impl Coded for FirewallError {
    fn code(&self) -> Code {
        match self {
            Self::Rules(error) => error.code(),
            Self::NotAvailable(_) => Code::PLUGIN_NOT_AVAILABLE,
            Self::NoTool { .. } | Self::NoChainRule { .. } | Self::NoRule(_) | Self::NoNativeRule(_) => {
                Code::INTERNAL
            }
        }
    }
}

/// The reference looks for the tools of both families first; protocols are numbered as it numbers them.
impl From<Error> for FirewallError {
    fn from(error: Error) -> Self {
        if let Error::ToolMissing { program } = &error {
            return Self::NoTool { protocol: u8::from(program.starts_with("ip6tables")), source: error };
        }
        Self::Rules(error)
    }
}
