// SPDX-License-Identifier: Apache-2.0
//! The native dialect in nf_tables expressions.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
