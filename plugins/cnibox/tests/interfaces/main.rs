// SPDX-License-Identifier: Apache-2.0
//! The interface plugins bridge, ptp, macvlan, ipvlan, vlan, host-device, dummy and tap in the running kernel: real packets,
//! failures at every step, DEL of what is half gone. Kernels without a kind of link skip its tests.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

mod announced;
mod errors;
mod host_device;
mod lan;
mod machine;
mod over_parent;
mod ptp;
mod standalone;
mod world;
