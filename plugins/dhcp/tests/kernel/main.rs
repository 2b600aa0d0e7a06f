// SPDX-License-Identifier: Apache-2.0
//! The plugin and its daemon as processes, with dnsmasq as the server, or a server that does what a test tells it.

#![expect(clippy::unwrap_used, reason = "a test panics")]

mod daemon;
mod leases;
mod options;
mod reference;
mod restart;
mod scripted;
mod times;
mod world;
