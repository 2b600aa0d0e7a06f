// SPDX-License-Identifier: Apache-2.0
//! The container's interface, as far as every plugin that makes one treats it alike: made, configured, checked, deleted.
//!
//! Must never know a kind of link by its options: those are the plugin's.

mod attach;
mod check;
mod configure;
mod detach;
mod ipam;
mod layer3;
mod parent;
mod veth;

pub use attach::{Announce, PodPlan, host_interface, is_name_pattern, pod_interface};
pub use check::{CheckWording, Expected, own_addresses};
pub use ipam::NO_ADDRESSES;
pub use veth::{Veth, random_name};
