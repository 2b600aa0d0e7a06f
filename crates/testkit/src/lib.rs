// SPDX-License-Identifier: Apache-2.0
//! For tests only: namespace sandboxes, plugin calls and chains, packet probes, snapshots, golden files.
//!
//! Everything panics with an explanation instead of returning errors. Must never touch the machine's own network,
//! `/run` or `/var/lib`: what a test does, it does inside a [`Sandbox`].
//!
//! ```no_run
//! cnibox_testkit::sandbox(|net| {
//!     let pod = net.container();
//!     let before = net.snapshot();
//!     net.cni("bridge", "ADD", &pod, r#"{"cniVersion":"1.1.0","name":"n","type":"bridge"}"#).success();
//!     net.cni("bridge", "DEL", &pod, r#"{"cniVersion":"1.1.0","name":"n","type":"bridge"}"#).success();
//!     before.assert_same(&net.snapshot());
//! });
//! ```

mod call;
mod chain;
mod diff;
mod golden;
mod in_process;
mod namespace;
mod probe;
mod process;
mod rules;
mod sandbox;
mod settle;
mod snapshot;

pub use call::{Call, Outcome, PLUGINS};
pub use chain::{Attachment, Chain};
pub use diff::diff;
pub use golden::golden;
pub use in_process::{InProcess, await_unlocked};
pub use namespace::{anonymous, create_at};
pub use nftables;
pub use probe::{Server, ask_tcp, ask_udp, in_netns, ping, serve_tcp, serve_udp};
pub use process::Process;
pub use sandbox::{Container, Sandbox, has, has_ipv6, lacks, sandbox, skip};
pub use snapshot::Snapshot;
