// SPDX-License-Identifier: Apache-2.0
//! Reads tables, chains and rules for the planner, one chain at a time. Foreign rules may be anything: what cannot be read
//! is listed as foreign and never stops a call.

use std::ops::ControlFlow;

use netlink_bindings::utils::find_attr;

use super::attr;
use super::expr::{self, Expr, Verdict};
use super::message::{self, ChainName, NEW_CHAIN, NEW_GEN, NEW_RULE, NFGENMSG};
use super::socket::{Message, Socket};
use super::{nft, xt};
use crate::batch::{RuleId, TableRef};
use crate::error::{Error, Result};
use crate::nft::Rule;
use crate::plan::{Canon, Listed, Reader, Uses, Wanted};
use crate::xt::Extension;

const GENERATION: &str = "read ruleset generation";

impl Socket {
    /// The generation of the ruleset, which every committed transaction raises.
    pub(crate) fn generation(&mut self) -> Result<u32> {
        let request = message::get_generation(self.sequence(1));
        let mut generation = None;
        let outcome = self.ask(
            &request,
            &mut generation,
            |_| {},
            |generation, message| {
                if message.kind == NEW_GEN {
                    *generation = attr::be32(attributes(&message), attr::GEN_ID);
                }
            },
        )?;
        match outcome {
            Ok(()) => {}
            // kernel net/netfilter/nfnetlink.c: nobody has registered for the messages
            Err(refusal) if refusal.errno == libc::EINVAL => {
                return Err(Error::NoNfTables { operation: GENERATION });
            }
            Err(refusal) => return Err(refusal.into_error(GENERATION.to_owned())),
        }
        generation.ok_or(Error::Malformed { during: "reading the ruleset generation" })
    }

    /// Asks and puts the answer into `state`, as [`Socket::ask`] does; `None` if there is no such thing.
    fn look_up<S>(
        &mut self,
        request: &[u8],
        mut state: S,
        what: impl FnOnce() -> String,
        answer: impl FnMut(&mut S, Message<'_>),
    ) -> Result<Option<S>>
    where
        S: Default,
    {
        match self.ask(request, &mut state, |state| *state = S::default(), answer)? {
            Ok(()) => Ok(Some(state)),
            Err(refusal) if refusal.errno == libc::ENOENT => Ok(None),
            Err(refusal) => Err(refusal.into_error(what())),
        }
    }
}

impl Reader for Socket {
    fn has_table(&mut self, table: &TableRef) -> Result<bool> {
        let request = message::get_table(self.sequence(1), table.family(), table.name());
        let found = self.look_up(&request, (), || format!("look up table \"{table}\""), |(), _| {})?;
        Ok(found.is_some())
    }

    fn chain(&mut self, table: &TableRef, chain: &str) -> Result<Option<Uses>> {
        let name = chain_name(table, chain);
        let request = message::get_chain(self.sequence(1), name);
        let uses = self.look_up(
            &request,
            None,
            || format!("look up {}", name.describe()),
            |uses, message| {
                if message.kind == NEW_CHAIN {
                    *uses = Some(attr::be32(attributes(&message), attr::CHAIN_USE).unwrap_or(0));
                }
            },
        )?;
        Ok(uses.flatten().map(Uses::RulesAndJumps))
    }

    fn jumps(&mut self, table: &TableRef, chain: &str) -> Result<u32> {
        let Some(Uses::RulesAndJumps(uses)) = self.chain(table, chain)? else { return Ok(0) };
        let own = self.rules(table, chain)?.len();
        Ok(uses.saturating_sub(u32::try_from(own).unwrap_or(u32::MAX)))
    }

    fn rules(&mut self, table: &TableRef, chain: &str) -> Result<Vec<Listed>> {
        let name = chain_name(table, chain);
        let request = message::dump_rules(self.sequence(1), name);
        let what = || format!("list rules of {}", name.describe());
        let rules = self.look_up(&request, Vec::new(), what, |rules, message| {
            rules.extend(listed(&message, table));
        })?;
        Ok(rules.unwrap_or_default())
    }

    /// A rule that does not fit an answer by itself is read with the others, if at all.
    fn rule(&mut self, table: &TableRef, chain: &str, id: &RuleId) -> Result<Option<Listed>> {
        let RuleId::Handle(handle) = id else { return Ok(None) };
        let request = message::get_rule(self.sequence(1), chain_name(table, chain), *handle);
        let mut found = None;
        let outcome = self.ask(
            &request,
            &mut found,
            |_| {},
            |found, message| {
                *found = listed(&message, table);
            },
        )?;
        Ok(found.filter(|_| outcome.is_ok()))
    }

    /// On a socket of its own, since a listing cannot be given up but by closing its socket. After an interruption it starts
    /// again.
    fn scan(
        &mut self,
        table: &TableRef,
        chain: &str,
        visit: &mut dyn FnMut(Listed) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut socket = Socket::open()?;
        let name = chain_name(table, chain);
        let request = message::dump_rules(socket.sequence(1), name);
        let outcome = socket.ask_until(
            &request,
            &mut (),
            |()| {},
            |(), message| listed(&message, table).map_or(ControlFlow::Continue(()), &mut *visit),
        )?;
        match outcome {
            Err(refusal) if refusal.errno != libc::ENOENT => {
                Err(refusal.into_error(format!("list rules of {}", name.describe())))
            }
            _ => Ok(()),
        }
    }

    /// The kernel compares nothing.
    fn holds(&mut self, _: &TableRef, _: &str, _: &Wanted) -> Result<bool> {
        Ok(false)
    }
}

/// The chain of a message.
pub(super) fn chain_name<'a>(table: &'a TableRef, chain: &'a str) -> ChainName<'a> {
    ChainName { family: table.family(), table: table.name(), chain }
}

fn attributes<'m>(message: &Message<'m>) -> &'m [u8] {
    message.body.get(NFGENMSG..).unwrap_or_default()
}

/// The handle of the rule that a message is about.
pub(super) fn handle(message: &Message<'_>) -> Option<u64> {
    let bytes = find_attr(attributes(message), attr::RULE_HANDLE).filter(|_| message.kind == NEW_RULE)?;
    bytes.first_chunk().copied().map(u64::from_be_bytes)
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
        messages.filter_map(|message| listed(&message, &table)).for_each(|rule| drop(rule.info()));
    }
}

fn listed(message: &Message<'_>, table: &TableRef) -> Option<Listed> {
    let id = RuleId::Handle(handle(message)?);
    let bytes = |kind| find_attr(attributes(message), kind).unwrap_or_default();
    let exprs: Vec<Expr<'_>> = expr::decode(bytes(attr::RULE_EXPRESSIONS)).collect();
    let comment = message::read_comment(bytes(attr::RULE_USERDATA));
    // A comment that cannot be read is not one of ours.
    let canon = comment.as_ref().ok().and_then(|comment| canon(&exprs, *comment, table));
    Some(match canon {
        Some(canon) => Listed::known(id, canon),
        None => {
            let comment = comment.ok().flatten().or_else(|| xt_comment(&exprs)).map(str::to_owned);
            Listed::foreign(id, comment, exprs.iter().find_map(jump).map(str::to_owned))
        }
    })
}

fn canon(exprs: &[Expr<'_>], comment: Option<&str>, table: &TableRef) -> Option<Canon> {
    match table {
        TableRef::Xt(family, _) => {
            let mut canon = xt::decode(exprs, *family)?;
            // iptables before 1.8.5 and ebtables keep comments as user data
            canon.extensions.extend(comment.map(|text| Extension::Comment(text.to_owned())));
            Some(Canon::Xt(canon))
        }
        TableRef::Nft(family, _) => {
            let statements = nft::decode(exprs, *family)?;
            Some(Canon::Nft(Rule { statements, comment: comment.map(str::to_owned) }))
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
    let Expr::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) = expr else { return None };
    Some(chain)
}
