// SPDX-License-Identifier: Apache-2.0
//! Network namespaces (open, enter, compare) and the sysctls inside them.
//!
//! Owns every `setns` of the repository; nothing but tests makes a namespace. Must never know about links, addresses or plugins.
//! Invariant: a thread that entered a namespace through this crate is back in its own one when the call returns. One that
//! could not come back does not go; should the way back be closed meanwhile, the process aborts rather than run on in the
//! wrong namespace.

pub mod errno;
mod error;
mod netns;
pub mod sysctl;

pub use error::Error;
pub use netns::{NetNs, is_current};
