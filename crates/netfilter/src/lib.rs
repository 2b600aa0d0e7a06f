// SPDX-License-Identifier: Apache-2.0
//! Packet filter rules as data, their transports, and conntrack
