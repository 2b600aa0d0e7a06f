// SPDX-License-Identifier: Apache-2.0
//! What a plugin may touch: namespaces, links, rules, delegates and state, with transactions over them.
//!
//! Everything that more than one plugin does to the system lives here once. It must never know a plugin, and
//! never read the process's environment or standard streams: those arrive in a [`Host`].

mod attempt;
mod call;
mod delegate;
mod interface;
mod ledger;
mod node;

pub use call::{
    Builtin, Coded, Entry, Env, Exit, Failure, Host, OrSay, Place, Pod, Registry, Sys, Txn, Undo, UndoStep,
    lock_within,
};
pub use cnibox_netfilter::sweep;
pub use interface::{
    Announce, CheckWording, Expected, NO_ADDRESSES, PodPlan, Veth, host_interface, is_name_pattern,
    own_addresses, pod_interface, random_name,
};
pub use ledger::{Ledger, Mark, Namespace, PodLink, PrivateDir, Progress, Record, Remains, Share, Stage};
pub use node::{Backend, Masquerade};
