// SPDX-License-Identifier: Apache-2.0
//! Packet filter rules as data, the two ways of installing them, and conntrack.
//!
//! A plugin describes what must be as a [`Batch`] and hands it to an [`Engine`]. The engine writes it through nf_tables
//! netlink in one transaction, exactly as the host's `iptables` (nf_tables flavour) or `nft` would have, or through
//! `iptables-restore` where only that can do it. This crate knows nothing of CNI: no chain name, comment or table of a
//! plugin is written here.

mod batch;
mod commit;
pub mod conntrack;
mod engine;
mod error;
mod exec;
mod flavour;
mod hint;
mod kernel;
pub mod nft;
mod plan;
mod quote;
pub mod xt;

pub use batch::{Batch, Change, NftChanges, Op, Owner, Position, RuleId, RuleInfo, TableRef, XtChanges};
pub use engine::{Choice, Engine, if_any};
pub use error::{Error, Result};
pub use flavour::Flavour;
pub use hint::Hint;
pub use kernel::limbo::sweep;
pub use xt::Family;
