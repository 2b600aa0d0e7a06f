// SPDX-License-Identifier: Apache-2.0
//! The iptables dialect in nf_tables expressions. The encoding is that of Debian 12's iptables-nft 1.8.9, see `encode`; the
//! encodings of all versions are read, see `decode`. It must never know in which chain a rule stands, nor the other dialect.

mod decode;
mod encode;
mod layout;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::{Form, encode};
