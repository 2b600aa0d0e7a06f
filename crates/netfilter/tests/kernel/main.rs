// SPDX-License-Identifier: Apache-2.0
//! Tests against the kernel and the real tools, each in a network namespace of its own.

mod cases;
mod common;
mod conntrack;
mod dump;
mod iptables;
mod nftables;
