// SPDX-License-Identifier: Apache-2.0
//! Reads tables, chains and rules for the planner, one chain at a time. Foreign rules may be anything: what cannot be read
//! is listed as foreign and never stops a call.

use std::ops::ControlFlow;

use netlink_bindings::nftables::{ChainAttrs, GenAttrs, IterableRuleAttrs, RuleAttrs};

use super::expr::{self, Expr};
use super::message::{self, NEW_CHAIN, NEW_GEN, NEW_RULE, NFGENMSG};
use super::socket::{Message, Socket};
use super::{nft, xt};
use crate::error::{Error, Result};
use crate::nft::Rule;
use crate::plan::{Reader, RuleInfo, Uses};
use crate::rule::{AnyRule, RuleId, TableRef};
use crate::xt::Match;

const GENERATION: &str = "read ruleset generation";

impl Socket {
    /// The generation of the ruleset, which every committed transaction raises.
    pub(crate) fn generation(&mut self) -> Result<u32> {
        let request = message::get_generation(self.sequence(1));
        let outcome = self.ask(&request, |generation, message| {
            if message.kind == NEW_GEN {
                *generation = GenAttrs::new(attributes(&message)).get_id().ok();
            }
        })?;
        match outcome {
            Ok(generation) => generation.ok_or(Error::Malformed { during: "reading the ruleset generation" }),
            // kernel net/netfilter/nfnetlink.c: nobody has registered for the messages
            Err(refusal) if refusal.errno == libc::EINVAL => Err(Error::NoNfTables { operation: GENERATION }),
            Err(refusal) => Err(refusal.into_error(GENERATION.to_owned())),
        }
    }

    /// Asks as [`Socket::ask`] does; `None` if there is no such thing.
    pub(super) fn look_up<S: Default>(
        &mut self,
        request: &[u8],
        what: impl FnOnce() -> String,
        answer: impl FnMut(&mut S, Message<'_>),
    ) -> Result<Option<S>> {
        match self.ask(request, answer)? {
            Ok(state) => Ok(Some(state)),
            Err(refusal) if refusal.errno == libc::ENOENT => Ok(None),
            Err(refusal) => Err(refusal.into_error(what())),
        }
    }
}

impl Reader for Socket {
    fn has_table(&mut self, table: &TableRef) -> Result<bool> {
        let request = message::get_table(self.sequence(1), table);
        let found = self.look_up(&request, || format!("look up table \"{table}\""), |(), _| {})?;
        Ok(found.is_some())
    }

    fn chain(&mut self, table: &TableRef, chain: &str) -> Result<Option<Uses>> {
        let request = message::get_chain(self.sequence(1), table, chain);
        let what = || format!("look up chain \"{chain}\" of table \"{table}\"");
        let uses = self.look_up(&request, what, |uses, message| {
            if message.kind == NEW_CHAIN {
                *uses = Some(ChainAttrs::new(attributes(&message)).get_use().unwrap_or(0));
            }
        })?;
        Ok(uses.flatten().map(Uses::RulesAndJumps))
    }

    fn rules(&mut self, table: &TableRef, chain: &str) -> Result<Vec<RuleInfo>> {
        let request = message::get_rules(self.sequence(1), table, chain, None);
        let what = || listing(table, chain);
        let rules = self.look_up(&request, what, |rules: &mut Vec<_>, message| {
            rules.extend(listed(&message, table));
        })?;
        Ok(rules.unwrap_or_default())
    }

    /// A rule that does not fit an answer by itself is read with the others, if at all.
    fn rule(&mut self, table: &TableRef, chain: &str, id: &RuleId) -> Result<Option<RuleInfo>> {
        let RuleId::Handle(handle) = id else { return Ok(None) };
        let request = message::get_rules(self.sequence(1), table, chain, Some(*handle));
        let found = self.ask(&request, |found, message| *found = listed(&message, table))?;
        Ok(found.unwrap_or_default())
    }

    /// On a socket of its own, since a listing cannot be given up but by closing its socket. After an interruption it starts
    /// again.
    fn scan(
        &mut self,
        table: &TableRef,
        chain: &str,
        visit: &mut dyn FnMut(RuleInfo) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut socket = Socket::open()?;
        let request = message::get_rules(socket.sequence(1), table, chain, None);
        let outcome = socket.ask_until(&request, |(), message| {
            listed(&message, table).map_or(ControlFlow::Continue(()), &mut *visit)
        })?;
        match outcome {
            Err(refusal) if refusal.errno != libc::ENOENT => Err(refusal.into_error(listing(table, chain))),
            _ => Ok(()),
        }
    }
}

/// For error messages.
fn listing(table: &TableRef, chain: &str) -> String {
    format!("list rules of chain \"{chain}\" of table \"{table}\"")
}

fn attributes<'m>(message: &Message<'m>) -> &'m [u8] {
    message.body.get(NFGENMSG..).unwrap_or_default()
}

/// The handle of the rule that a message is about.
pub(super) fn handle(message: &Message<'_>) -> Option<u64> {
    rule_attrs(message)?.get_handle().ok()
}

fn rule_attrs<'m>(message: &Message<'m>) -> Option<IterableRuleAttrs<'m>> {
    (message.kind == NEW_RULE).then(|| RuleAttrs::new(attributes(message)))
}

/// Reads a datagram of the kernel's as rules of either dialect.
#[cfg(feature = "fuzzing")]
pub fn read_rules(datagram: &[u8]) {
    let tables = [
        TableRef::Xt(crate::xt::Family::Ipv4, crate::xt::Table::Nat),
        TableRef::Xt(crate::xt::Family::Ipv6, crate::xt::Table::Filter),
        TableRef::Nft(crate::nft::Family::Inet, "table".to_owned()),
        TableRef::Nft(crate::nft::Family::Bridge, "nat".to_owned()),
    ];
    for table in tables {
        let messages = super::socket::messages(datagram);
        messages
            .filter_map(|message| listed(&message, &table))
            .for_each(|rule| drop(rule.xt().map(ToString::to_string)));
    }
}

fn listed(message: &Message<'_>, table: &TableRef) -> Option<RuleInfo> {
    let attrs = rule_attrs(message)?;
    let id = RuleId::Handle(attrs.get_handle().ok()?);
    let expressions = attrs.get_expressions().map(|list| list.get_buf()).unwrap_or_default();
    let exprs = expr::decode(expressions);
    let comment = message::read_comment(attrs.get_userdata().unwrap_or_default());
    // A comment that cannot be read is not one of ours.
    let canon = comment.as_ref().ok().and_then(|comment| canon(&exprs, *comment, table));
    Some(match canon {
        Some(canon) => RuleInfo::known(id, canon),
        None => {
            let comment = comment.ok().flatten().or_else(|| xt_comment(&exprs)).map(str::to_owned);
            RuleInfo::foreign(id, comment, exprs.iter().find_map(jump).map(str::to_owned))
        }
    })
}

fn canon(exprs: &[Expr<'_>], comment: Option<&str>, table: &TableRef) -> Option<AnyRule> {
    match table {
        TableRef::Xt(family, _) => {
            let mut rule = xt::decode(exprs, *family)?;
            // iptables before 1.8.5 and ebtables keep comments as user data
            rule.matches.extend(comment.map(Match::comment));
            Some(rule.into())
        }
        TableRef::Nft(family, _) => {
            let statements = nft::decode(exprs, *family)?;
            Some(Rule { statements, comment: comment.map(str::to_owned) }.into())
        }
    }
}

fn xt_comment<'e>(exprs: &'e [Expr<'_>]) -> Option<&'e str> {
    exprs.iter().find_map(|expr| {
        let Expr::Match { name, info, .. } = expr else { return None };
        (name == "comment").then(|| expr::text(info)).flatten()
    })
}

fn jump<'e>(expr: &'e Expr<'_>) -> Option<&'e str> {
    if let Expr::Verdict(verdict) = expr { verdict.chain() } else { None }
}
