// SPDX-License-Identifier: Apache-2.0
//! The host's side: forwarding, masquerade, and what the host must have and allow.
//!
//! Must never enter a container's namespace.

mod backend;
mod forwarding;
mod masquerade;
mod permission;

pub use backend::Backend;
pub use masquerade::Masquerade;
