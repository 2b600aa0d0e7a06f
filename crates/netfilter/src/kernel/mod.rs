// SPDX-License-Identifier: Apache-2.0
//! The nf_tables netlink protocol: expressions, messages and the socket. Knows no dialect.

pub(crate) mod expr;
pub(crate) mod limbo;
pub(crate) mod message;
pub(crate) mod socket;
pub(crate) mod tables;
