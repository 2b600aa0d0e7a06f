// SPDX-License-Identifier: Apache-2.0
//! What a plugin may touch: namespaces, links, rules, delegates and state, with transactions over them.
//!
//! Everything that more than one plugin does to the system lives here once. It must never know a plugin, and
//! never read the process's environment or standard streams: those arrive in a [`Host`].

mod attach;
mod attachment;
mod chained;
mod check;
mod delegate;
mod detach;
mod env;
mod expect;
mod failure;
mod forwarding;
mod hints;
mod host;
mod interface;
mod labelled;
mod loan;
mod masquerade;
mod memory;
mod netconf;
mod parent;
mod permission;
mod system;
mod txn;
mod unfinished;
mod veth;

pub use attach::{Announce, ListLink, PodLinkError, PodPlan, ensure_printable};
pub use attachment::{Owner, Stage, is_stale};
pub use chained::ChainedAdd;
pub use check::{CheckWording, Expected, own_addresses};
pub use cnibox_netfilter::sweep;
pub use delegate::{DelegateError, Verb};
pub use env::Env;
pub use expect::Drift;
pub use failure::{Coded, Failure};
pub use host::{Entry, Exit, Host, Registry};
pub use interface::{InterfaceError, InterfacePlan};
pub use loan::{Loan, LoanError};
pub use masquerade::{Masquerade, MasqueradeBackend, UnknownBackend};
pub use memory::{Memo, Memory};
pub use netconf::{DnsShape, IpamShape, MacShape};
pub use parent::ParentError;
pub use system::{Place, Pod, PodNotOpen, Sys};
pub use txn::{Txn, Undo};
pub use veth::{Veth, VethError, VethPlan, random_name};
