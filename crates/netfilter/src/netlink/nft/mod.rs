// SPDX-License-Identifier: Apache-2.0
//! The native dialect in nf_tables expressions. It must never know in which chain a rule stands, nor the other dialect.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
