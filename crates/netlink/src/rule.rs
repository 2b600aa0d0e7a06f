// SPDX-License-Identifier: Apache-2.0
//! Policy routing rules, the verbs of `ip rule`.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Error, Family, Rtnl};

/// A rule as the kernel reports it, as far as plugins look at rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// IPv4 or IPv6.
    pub family: Family,
    /// `from`; `None` is everything.
    pub src: Option<IpNetwork>,
    /// `to`; `None` is everything.
    pub dst: Option<IpNetwork>,
    /// Table to look in; 0 if the rule does something else.
    pub table: u32,
    /// Priority; 0 if the kernel reports none.
    pub priority: u32,
}

/// A rule to add or delete: `from SRC lookup TABLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleSpec {
    /// Source addresses.
    pub src: IpNetwork,
    /// Table to look in.
    pub table: u32,
    /// Priority; `None` leaves the choice to the kernel, or matches any when deleting.
    pub priority: Option<u32>,
}

impl RuleSpec {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = Family::of(self.src.ip()).into_kernel();
        message.header.src_len = self.src.prefix();
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![RuleAttribute::Source(self.src.ip())];
        message.attributes.extend(self.priority.map(RuleAttribute::Priority));
        match u8::try_from(self.table) {
            Ok(table) => message.header.table = table,
            Err(_) => message.attributes.push(RuleAttribute::Table(self.table)),
        }
        message
    }
}

impl Rtnl {
    /// `ip rule add from SRC lookup TABLE [priority P]`.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn rule_add(&mut self, rule: &RuleSpec) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::NewRule(rule.message()), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `ip rule del from SRC lookup TABLE [priority P]`.
    ///
    /// # Errors
    /// [`Error::is_not_found`] (`no such file or directory`), or what else the kernel says.
    pub fn rule_del(&mut self, rule: &RuleSpec) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::DelRule(rule.message()), 0)
    }

    /// `ip rule show`, of one family. A family that the kernel has not (`ipv6.disable=1`) has none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn rules(&mut self, family: Family) -> Result<Vec<Rule>, Error> {
        let mut request = RuleMessage::default();
        request.header.family = family.into_kernel();
        let dump = match self.dump(&RouteNetlinkMessage::GetRule(request)) {
            Ok(dump) => dump,
            Err(Error::Refused { errno: libc::EAFNOSUPPORT, .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(dump.into_iter().filter_map(as_rule).collect())
    }
}

fn as_rule(message: RouteNetlinkMessage) -> Option<Rule> {
    if let RouteNetlinkMessage::NewRule(message) = message { decode(message) } else { None }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "attributes and families nobody asks about")]
pub(crate) fn decode(message: RuleMessage) -> Option<Rule> {
    let family = match message.header.family {
        AddressFamily::Inet => Family::V4,
        AddressFamily::Inet6 => Family::V6,
        _ => return None,
    };
    let table = u32::from(message.header.table);
    let mut rule = Rule { family, src: None, dst: None, table, priority: 0 };
    for attribute in message.attributes {
        match attribute {
            RuleAttribute::Source(ip) => rule.src = network(ip, message.header.src_len),
            RuleAttribute::Destination(ip) => rule.dst = network(ip, message.header.dst_len),
            RuleAttribute::Table(table) => rule.table = table,
            RuleAttribute::Priority(priority) => rule.priority = priority,
            _ => {}
        }
    }
    Some(rule)
}

fn network(ip: IpAddr, prefix: u8) -> Option<IpNetwork> {
    IpNetwork::new(ip, prefix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_is_read() {
        for table in [100, 1000] {
            let spec = RuleSpec { src: "10.0.0.2/32".parse().unwrap(), table, priority: Some(9) };
            let rule = as_rule(RouteNetlinkMessage::NewRule(spec.message())).unwrap();
            let want = Rule { family: Family::V4, src: Some(spec.src), dst: None, table, priority: 9 };
            assert_eq!(rule, want);
        }
    }
}
