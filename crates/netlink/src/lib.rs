// SPDX-License-Identifier: Apache-2.0
//! rtnetlink verbs on one blocking socket per network namespace.
//!
//! One verb is one request and one method of [`Rtnl`], named like the `ip`, `bridge` or `tc` command it equals.
//! Owns the sockets, the sequence numbers and the translation between kernel messages and this repository's types;
//! messages are encoded and decoded by `netlink-packet-route` and built by `rtnetlink`. Must never know about plugins,
//! configurations or results, and never changes namespaces: a socket stays in the namespace it was opened in.
//! Invariant: what can be asked by name or index is never dumped.

#![expect(unsafe_code, reason = "poll(2) with a deadline, and the TUN ioctls")]

mod addr;
mod bridge;
mod error;
mod link;
mod mac;
mod monitor;
mod nsid;
mod qdisc;
mod route;
mod rtnl;
mod rule;
mod socket;
mod tun;

pub use addr::{Addr, AddrSpec, Family, IFA_F_NODAD, IFA_F_NOPREFIXROUTE, Lifetime};
pub use bridge::{BridgePort, BridgeVlan};
pub use cnibox_netns::errno;
pub use error::Error;
pub use link::{
    IpVlanFlag, IpVlanMode, Link, LinkChange, LinkData, MacVlanMode, MacVlanSpec, OperState, ParentSpec,
    VethSpec,
};
pub use mac::{InvalidMac, Mac, parse_hardware_address};
pub use monitor::{Monitor, Settled, Waited};
pub use qdisc::Tbf;
pub use route::{NextHop, Route, RouteSpec, TABLE_LOCAL, TABLE_MAIN};
pub use rtnl::Rtnl;
#[cfg(feature = "fuzzing")]
pub use rtnl::decode_anything;
pub use rule::{Rule, RuleSpec};
pub use socket::{Multicast, Socket};
pub use tun::{TapSpec, link_add_tap};
