// SPDX-License-Identifier: Apache-2.0
//! Packet filter rules as data, the two ways of installing them, and conntrack.
//!
//! A plugin describes what must be as a [`Batch`] and hands it to an [`Engine`]. The engine reads the chains concerned, finds
//! out what is [needed](Engine::needed), and writes that through nf_tables netlink in one transaction, exactly as the host's
//! `iptables` (nf_tables flavour) or `nft` would have, or through `iptables-restore` where only that can do it. This crate
//! knows nothing of CNI: no chain name, comment or table of a plugin is written here.
//!
//! | Room | Owns |
//! |---|---|
//! | [`xt`], [`nft`], `rule`, `batch`, `known` | data: rules of the two dialects, their canonical forms and text; what must be |
//! | `plan` | what is still to be done, by comparing canonical forms |
//! | `netlink` | the transport that talks to the kernel: encoding, listing, commit, [`conntrack`] |
//! | `tool` | the transport that starts tools: quoting, listing, `iptables-restore`, `nft` |
//! | `engine` | which transport, and how often it is tried |
//!
//! A room may import from those above it in this table; of `netlink` and `tool`, neither from the other.
//!
//! ```
//! use cnibox_netfilter::xt::{Match, Protocol, Rule, Table, Target};
//! use cnibox_netfilter::{Batch, Family, Position};
//!
//! let port = Match::DestinationPort { protocol: Protocol::Tcp, port: 8080 };
//! let forward = Rule::new(vec![port], Target::Dnat("10.22.0.2:80".parse()?));
//! let mut batch = Batch::new();
//! batch.xt(Family::Ipv4, Table::Nat).ensure_chain("WEB").ensure_rule("WEB", forward, Position::Tail);
//! assert_eq!(batch.changes().len(), 2);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```
//!
//! With the right to change the packet filter, `Engine::open(Choice::Auto, path).apply(&batch)?` makes it so; doing it again
//! changes nothing.

mod batch;
mod engine;
mod error;
mod known;
mod netlink;
pub mod nft;
mod plan;
mod rule;
mod tool;
pub mod xt;

pub use batch::{Batch, Change, Changes, NftChanges, Op, Owner, XtChanges};
pub use engine::{Choice, Engine, if_any};
pub use error::{Error, Result};
pub use known::{Hint, Inventory, Shelf};
pub use netlink::{conntrack, sweep};
pub use plan::{Action, RuleInfo, Step};
pub use rule::{AnyRule, Position, RuleId, TableRef, Wanted};
pub use tool::Flavour;
pub use xt::Family;

/// What fuzz targets call: other people's rules, as both transports read them.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::netlink::read_rules;
    pub use crate::tool::read_listing;
}
