// SPDX-License-Identifier: Apache-2.0
//! The CNI execution protocol: environment and stdin in, one JSON document and an exit code out.
//!
//! Owns the order of checks, the version gates and everything that is printed (reference: `pkg/skel`). Must never
//! know what a plugin does. Invariant: stdout gets exactly one write, of one document, or none.

mod environment;
mod plugin;
mod protocol;
mod request;

pub use plugin::{AddArgs, CheckArgs, Command, DelArgs, GcArgs, Plugin, Request};
pub use protocol::{BUILD_VERSION, run};
pub use request::{Input, NetConf};
