// SPDX-License-Identifier: Apache-2.0
//! Reads chains and rules, one chain at a time, and commits transactions.

use std::borrow::Cow;
use std::ops::ControlFlow;

use netlink_bindings::utils::find_attr;

use super::message::{self, ChainName, NEW_CHAIN, NEW_GEN, NEW_RULE};
use super::socket::{Refusal, Socket};
use crate::error::{Error, Result};
use crate::nft::Family;

/// `struct nfgenmsg`
const NFGENMSG: usize = 4;
const GENERATION: &str = "read ruleset generation";

/// What the kernel knows about a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainFacts {
    /// Its own rules plus the rules that jump to it.
    pub(crate) uses: u32,
}

/// A rule as it was read.
#[derive(Debug, Clone)]
pub(crate) struct RawRule<'a> {
    pub(crate) handle: u64,
    pub(crate) exprs: Cow<'a, [u8]>,
    pub(crate) userdata: Cow<'a, [u8]>,
}

impl<'a> RawRule<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let attrs = body.get(NFGENMSG..)?;
        let handle = u64::from_be_bytes(*find_attr(attrs, 3)?.first_chunk()?);
        let bytes = |kind| Cow::Borrowed(find_attr(attrs, kind).unwrap_or_default());
        Some(Self { handle, exprs: bytes(4), userdata: bytes(7) })
    }

    fn into_owned(self) -> RawRule<'static> {
        let [exprs, userdata] = [self.exprs, self.userdata].map(|bytes| Cow::Owned(bytes.into_owned()));
        RawRule { handle: self.handle, exprs, userdata }
    }

    pub(crate) fn comment(&self) -> Option<&str> {
        message::read_comment(&self.userdata)
    }
}

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
                    let attrs = message.body.get(NFGENMSG..).unwrap_or_default();
                    *generation =
                        find_attr(attrs, 1).and_then(|id| id.first_chunk()).copied().map(u32::from_be_bytes);
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

    /// True if the table exists.
    pub(crate) fn has_table(&mut self, family: Family, table: &str) -> Result<bool> {
        let request = message::get_table(self.sequence(1), family, table);
        match self.ask(&request, &mut (), |()| {}, |(), _| {})? {
            Ok(()) => Ok(true),
            Err(refusal) if refusal.errno == libc::ENOENT => Ok(false),
            Err(refusal) => Err(refusal.into_error(format!("look up table \"{} {table}\"", family.name()))),
        }
    }

    /// The chain, or `None` if it or its table does not exist.
    pub(crate) fn chain(&mut self, name: ChainName<'_>) -> Result<Option<ChainFacts>> {
        let request = message::get_chain(self.sequence(1), name);
        let mut facts = None;
        let outcome = self.ask(
            &request,
            &mut facts,
            |_| {},
            |facts, message| {
                if message.kind == NEW_CHAIN {
                    let attrs = message.body.get(NFGENMSG..).unwrap_or_default();
                    let uses = find_attr(attrs, 6)
                        .and_then(|uses| uses.first_chunk())
                        .copied()
                        .map(u32::from_be_bytes);
                    *facts = Some(ChainFacts { uses: uses.unwrap_or(0) });
                }
            },
        )?;
        match outcome {
            Ok(()) => Ok(facts),
            Err(refusal) if refusal.errno == libc::ENOENT => Ok(None),
            Err(refusal) => Err(refusal.into_error(format!("look up {}", name.describe()))),
        }
    }

    /// The rule of a chain with this handle, or `None` if it is gone.
    pub(crate) fn rule(&mut self, name: ChainName<'_>, handle: u64) -> Result<Option<RawRule<'static>>> {
        let request = message::get_rule(self.sequence(1), name, handle);
        let mut found = None;
        let outcome = self.ask(
            &request,
            &mut found,
            |_| {},
            |found, message| {
                if message.kind == NEW_RULE {
                    *found = RawRule::parse(message.body).map(RawRule::into_owned);
                }
            },
        )?;
        match outcome {
            Ok(()) => Ok(found),
            Err(refusal) if refusal.errno == libc::ENOENT => Ok(None),
            Err(refusal) => Err(refusal.into_error(format!("look up a rule of {}", name.describe()))),
        }
    }

    /// The rules of a chain in order; none if it does not exist.
    pub(crate) fn rules(&mut self, name: ChainName<'_>) -> Result<Vec<RawRule<'static>>> {
        let request = message::dump_rules(self.sequence(1), name);
        let mut rules = Vec::new();
        let outcome = self.ask(&request, &mut rules, Vec::clear, |rules, message| {
            if message.kind == NEW_RULE {
                rules.extend(RawRule::parse(message.body).map(RawRule::into_owned));
            }
        })?;
        match outcome {
            Ok(()) => Ok(rules),
            Err(refusal) if refusal.errno == libc::ENOENT => Ok(Vec::new()),
            Err(refusal) => Err(refusal.into_error(format!("list rules of {}", name.describe()))),
        }
    }
}

/// Goes over the rules of a chain in order until `visit` breaks; over none if it does not exist. After an interruption it
/// starts again. On a socket of its own, since a listing cannot be given up but by closing its socket.
pub(crate) fn scan(
    name: ChainName<'_>,
    mut visit: impl FnMut(&RawRule<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut socket = Socket::open()?;
    let request = message::dump_rules(socket.sequence(1), name);
    let outcome = socket.ask_until(
        &request,
        &mut (),
        |()| {},
        |(), message| match RawRule::parse(message.body).filter(|_| message.kind == NEW_RULE) {
            Some(rule) => visit(&rule),
            None => ControlFlow::Continue(()),
        },
    )?;
    match outcome {
        Ok(()) => Ok(()),
        Err(refusal) if refusal.errno == libc::ENOENT => Ok(()),
        Err(refusal) => Err(refusal.into_error(format!("list rules of {}", name.describe()))),
    }
}

impl Refusal {
    pub(crate) fn into_error(self, operation: String) -> Error {
        Error::Kernel { operation, errno: self.errno, text: self.text }
    }
}

impl ChainName<'_> {
    pub(crate) fn describe(&self) -> String {
        format!("chain \"{}\" of table \"{} {}\"", self.chain, self.family.name(), self.table)
    }
}
