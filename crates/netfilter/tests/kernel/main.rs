// SPDX-License-Identifier: Apache-2.0
//! Tests against the kernel and the real tools, each in a network namespace of its own.

mod common;
mod iptables;
