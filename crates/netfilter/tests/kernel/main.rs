// SPDX-License-Identifier: Apache-2.0
//! Tests against the kernel and the real tools, each in a network namespace of its own.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]
#![expect(clippy::disallowed_methods, reason = "the threads of these tests end in their namespaces")]

mod cases;
mod common;
mod conntrack;
mod dump;
mod foreign;
mod hints;
mod inventory;
mod iptables;
mod limbo;
mod nftables;
