// SPDX-License-Identifier: Apache-2.0
//! Policy routing rules, the verbs of `ip rule`.

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use crate::error::unless;
use crate::{Error, Family, Rtnl};

/// A rule as the kernel reports it, as far as plugins look at rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// `from`; `None` is everything.
    pub src: Option<IpNetwork>,
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
        message.attributes.push(RuleAttribute::Table(self.table));
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
        let dump = self.dump(&RouteNetlinkMessage::GetRule(request));
        let dump = unless(dump, |error| error.errno() == Some(libc::EAFNOSUPPORT))?.unwrap_or_default();
        Ok(dump.into_iter().filter_map(as_rule).collect())
    }
}

fn as_rule(message: RouteNetlinkMessage) -> Option<Rule> {
    if let RouteNetlinkMessage::NewRule(message) = message { Some(decode(message)) } else { None }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "attributes nobody asks about")]
pub(crate) fn decode(message: RuleMessage) -> Rule {
    let mut rule = Rule { src: None, table: u32::from(message.header.table), priority: 0 };
    for attribute in message.attributes {
        match attribute {
            RuleAttribute::Source(ip) => rule.src = IpNetwork::new(ip, message.header.src_len).ok(),
            RuleAttribute::Table(table) => rule.table = table,
            RuleAttribute::Priority(priority) => rule.priority = priority,
            _ => {}
        }
    }
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_is_read() {
        for table in [100, 1000] {
            let spec = RuleSpec { src: "10.0.0.2/32".parse().unwrap(), table, priority: Some(9) };
            let rule = as_rule(RouteNetlinkMessage::NewRule(spec.message())).unwrap();
            assert_eq!(rule, Rule { src: Some(spec.src), table, priority: 9 });
        }
    }
}
