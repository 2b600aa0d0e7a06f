// SPDX-License-Identifier: Apache-2.0
//! The container's interface, as far as every plugin that makes one treats it alike: made, configured, checked, deleted.
//!
//! Must never know a kind of link by its options: those are the plugin's.

mod attach;
mod check;
mod configure;
mod detach;
mod expect;
mod netconf;
mod parent;
mod veth;

pub use attach::{Announce, ListLink, PodLinkError, PodPlan, ensure_printable};
pub use check::{CheckWording, Expected, own_addresses};
pub use configure::{InterfaceError, InterfacePlan};
pub use expect::Drift;
pub use netconf::{DnsShape, IpamShape, MacShape};
pub use parent::ParentError;
pub use veth::{Veth, VethError, VethPlan, random_name};
