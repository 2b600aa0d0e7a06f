// SPDX-License-Identifier: Apache-2.0
//! One plugin call: its surroundings, the handles that it opens, how it fails, and the journal of what it does.
//!
//! Must never know an interface, a rule or another plugin: what is done with the handles is in the other rooms.

mod env;
mod failure;
mod host;
mod lock;
mod processor;
mod system;
mod txn;

pub use env::Env;
pub use failure::{Coded, Failure, OrSay};
pub use host::{Builtin, Entry, Exit, Host, Registry};
pub use lock::lock_within;
pub use system::{Place, Pod, Sys};
pub use txn::{Txn, Undo, UndoStep};
