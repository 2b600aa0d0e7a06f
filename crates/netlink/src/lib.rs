// SPDX-License-Identifier: Apache-2.0
//! rtnetlink verbs on one blocking socket per network namespace.
//!
//! One verb is one request and one method of [`Rtnl`], named like the `ip`, `bridge` or `tc` command it equals. What
//! `ip link set` can change is said by a [`LinkChange`].
//! Owns the sockets, the sequence numbers and the translation between kernel messages and this repository's types;
//! messages are encoded and decoded by `netlink-packet-route` and built by `rtnetlink`. Must never know about plugins,
//! configurations or results, and never changes namespaces: a socket stays in the namespace it was opened in.
//! Invariant: what can be asked by name or index is never dumped.
//!
//! # Asking and changing
//!
//! ```
//! use cnibox_netlink::Rtnl;
//!
//! // A socket of the namespace that this thread is in.
//! let mut rtnl = Rtnl::open()?;
//! let lo = rtnl.link_by_name("lo")?;
//! assert_eq!((lo.index, lo.name.as_str()), (1, "lo"));
//! assert!(rtnl.link_by_name_if_present("nosuch")?.is_none());
//! # Ok::<(), cnibox_netlink::Error>(())
//! ```
//!
//! # Errors
//!
//! An [`Error`] has the kernel's number and, where it gives one, the kernel's own sentence (`NLM_F_ACK` with
//! `NETLINK_EXT_ACK`), which says more than the number. Callers ask what happened instead of comparing numbers:
//!
//! ```
//! # use cnibox_netlink::Rtnl;
//! # let mut rtnl = Rtnl::open()?;
//! let error = rtnl.link_by_name("nosuch").unwrap_err();
//! assert!(error.is_not_found());
//! # Ok::<(), cnibox_netlink::Error>(())
//! ```
//!
//! # Waiting
//!
//! Nothing sleeps and nothing polls. A [`Monitor`] subscribes to what the kernel tells, looks once, and then waits for news
//! until a deadline: for a link's carrier ([`Monitor::wait_link`]) or for IPv6 addresses whose duplicate address
//! detection goes on ([`Monitor::wait_addrs_settled`]).

#![expect(unsafe_code, reason = "SO_NETNS_COOKIE and the TUN ioctls")]

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
mod sieve;
mod socket;
mod tun;

pub use addr::{Addr, Family, IFA_F_NODAD, IFA_F_NOPREFIXROUTE, Lifetime};
pub use bridge::{BridgePort, BridgeVlan};
pub use cnibox_netns::errno;
pub use error::{Error, unless};
pub use link::{IpVlanMode, Link, LinkChange, LinkData, MacVlanMode, OperState, ParentSpec, VethSpec};
pub use mac::{InvalidMac, Mac, parse_hardware_address};
pub use monitor::{Monitor, Settled, Waited};
pub use qdisc::Tbf;
pub use route::{NextHop, Route, RouteSpec, TABLE_LOCAL, TABLE_MAIN};
pub use rtnl::Rtnl;
#[cfg(feature = "fuzzing")]
pub use rtnl::fuzzing;
pub use rule::{Rule, RuleSpec};
pub use socket::Multicast;
pub use tun::{TapSpec, link_add_tap};
