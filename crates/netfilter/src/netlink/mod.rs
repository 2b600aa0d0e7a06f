// SPDX-License-Identifier: Apache-2.0
//! The transport that talks to the kernel: it lists rules for the planner, encodes its steps and commits them as one
//! transaction, asks what the kernel can do, and deletes connection tracking entries.
//!
//! It must never know why a rule is wanted, nor start a process. Everything that the kernel sends is foreign.

mod commit;
mod compat;
pub mod conntrack;
mod expr;
mod limbo;
mod listing;
mod message;
mod nft;
mod socket;
#[cfg(test)]
mod tests;
mod xt;

pub(crate) use commit::commit;
pub(crate) use compat::{Extension, extensions, needs_module};
pub use limbo::sweep;
#[cfg(feature = "fuzzing")]
pub use listing::read_rules;
pub(crate) use socket::Socket;
pub(crate) use xt::Form;
