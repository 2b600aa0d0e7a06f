// SPDX-License-Identifier: Apache-2.0
//! Transactions: an ADD that fails half-way takes back what it did.
//!
//! Undo is data, so that a journal can be printed and compared. Shared things (a bridge, base chains,
//! forwarding) have no undo: other containers may use them by then.

use std::panic::resume_unwind;
use std::thread;

use cnibox_netfilter::Batch;
use cnibox_netlink::{Error, Link, LinkChange, Route, Rtnl, RuleSpec};

use crate::call::{Failure, Place, Sys, processor};

/// How to take back one step: data, for as long as nothing goes wrong.
pub trait UndoStep: std::fmt::Debug {
    /// Takes it back.
    ///
    /// # Errors
    /// What is left, and why.
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure>;
}

/// How to take back a step of the kinds that several plugins have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Delete the link of this name; with a veth its peer goes along.
    Link {
        /// Where it is.
        place: Place,
        /// Its name.
        name: String,
    },
    /// Apply these changes to the packet filter.
    Rules(Batch),
    /// Delete a routing rule.
    Rule {
        /// Where it is.
        place: Place,
        /// The rule.
        rule: RuleSpec,
    },
    /// Put back a route that was deleted or replaced.
    Route {
        /// Where it was.
        place: Place,
        /// The route.
        route: Box<Route>,
    },
    /// Give a link its former hardware address, MTU, modes and queue length.
    Settings {
        /// Where it is.
        place: Place,
        /// The link as it was.
        link: Box<Link>,
    },
}

/// A journal of steps over a [`Sys`].
pub struct Txn<'s, 'h> {
    sys: &'s mut Sys<'h>,
    journal: Vec<Box<dyn UndoStep>>,
}

impl<'s, 'h> Txn<'s, 'h> {
    /// Runs `body`; when it fails, takes back its steps, newest first. What fails while taking back goes into the
    /// failure's details.
    ///
    /// # Errors
    /// The failure of `body`.
    pub fn run<T>(
        sys: &'s mut Sys<'h>,
        body: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut txn = Self { sys, journal: Vec::new() };
        body(&mut txn).map_err(|failure| txn.roll_back(failure))
    }

    /// Does something that needs no undo.
    ///
    /// # Errors
    /// What `work` fails with.
    pub fn shared<T, E: Into<Failure>>(
        &mut self,
        work: impl FnOnce(&mut Sys<'h>) -> Result<T, E>,
    ) -> Result<T, Failure> {
        self.sys.fail_if_told()?;
        work(self.sys).map_err(Into::into)
    }

    /// Does something and journals `undo` when it succeeded: what existed before (a link of the same name) must
    /// not be taken back.
    ///
    /// # Errors
    /// What `work` fails with.
    pub fn step<T, E: Into<Failure>>(
        &mut self,
        undo: impl UndoStep + 'static,
        work: impl FnOnce(&mut Sys<'h>) -> Result<T, E>,
    ) -> Result<T, Failure> {
        let value = self.shared(work)?;
        self.journal.push(Box::new(undo));
        Ok(value)
    }

    /// Journals `undo` first, then does something that may have changed something even when it fails.
    ///
    /// # Errors
    /// What `work` fails with.
    pub fn risky_step<T, E: Into<Failure>>(
        &mut self,
        undo: impl UndoStep + 'static,
        work: impl FnOnce(&mut Sys<'h>) -> Result<T, E>,
    ) -> Result<T, Failure> {
        self.journal.push(Box::new(undo));
        self.shared(work)
    }

    /// Applies `rules` to the packet filter, on a thread and a processor of its own, while `work` goes on, which must not use
    /// the packet filter. The two wait for different locks of the kernel, and with many containers on the host the packet
    /// filter's validation of a whole table (`nft_table_validate` in net/netfilter/nf_tables_api.c) takes longer than anything
    /// else in an ADD. Where no thread can be had, one comes after the other. What fails is taken back by `undo`.
    ///
    /// # Errors
    /// What `work` fails with, or else what the packet filter refuses.
    pub fn rules_beside<T>(
        &mut self,
        undo: Batch,
        rules: &Batch,
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.risky_step(Undo::Rules(undo), |sys| sys.engine().map(drop))?;
        let Some(mut engine) = self.sys.engine.take() else { return work(self) };
        let here = processor::current();
        let (done, applied) = thread::scope(|scope| {
            let beside = thread::Builder::new().spawn_scoped(scope, || {
                if let Some(here) = here {
                    processor::leave(here);
                }
                engine.apply(rules)
            });
            // To the thread, if it has to leave.
            thread::yield_now();
            let done = work(self);
            (done, beside.map(|beside| beside.join().unwrap_or_else(|panic| resume_unwind(panic))).ok())
        });
        let applied = match applied {
            None if done.is_ok() => engine.apply(rules),
            applied => applied.unwrap_or(Ok(())),
        };
        self.sys.engine = Some(engine);
        done.and_then(|value| Ok(applied.map(|()| value)?))
    }

    /// The system, for looking without changing.
    pub fn sys(&mut self) -> &mut Sys<'h> {
        self.sys
    }

    fn roll_back(&mut self, mut failure: Failure) -> Failure {
        for undo in std::mem::take(&mut self.journal).into_iter().rev() {
            if let Err(error) = undo.undo(self.sys) {
                self.sys.left_something();
                failure.add_details(&format!("undo: {error}"));
            }
        }
        failure
    }
}

impl Sys<'_> {
    /// Counts a step; fails when a test chose this one.
    fn fail_if_told(&mut self) -> Result<(), Failure> {
        self.steps += 1;
        if self.fail_at == Some(self.steps) {
            return Err(Failure::internal(format!("step {} told to fail", self.steps)));
        }
        Ok(())
    }
}

impl UndoStep for Undo {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        match self {
            Self::Link { place, name } => {
                Ok(sys.rtnl(*place)?.link_del_by_name_if_present(name).map(drop)?)
            }
            Self::Rules(batch) => Ok(sys.engine()?.clear(batch)?),
            Self::Rule { place, rule } => Ok(sys.rtnl(*place)?.rule_del(rule)?),
            Self::Route { place, route } => Ok(sys.rtnl(*place)?.route_copy(route, route.table)?),
            Self::Settings { place, link } => Ok(restore_settings(sys.rtnl(*place)?, link)?),
        }
    }
}

/// Sets only what differs: some drivers refuse even a change to the same.
fn restore_settings(rtnl: &mut Rtnl, before: &Link) -> Result<(), Error> {
    let now = rtnl.link_by_index(before.index)?;
    let change = LinkChange::new(before.index)
        .given(before.mac.filter(|mac| now.mac != Some(*mac)), LinkChange::mac)
        .given(unless_same(before.mtu, now.mtu), LinkChange::mtu)
        .given(unless_same(before.txqlen, now.txqlen), LinkChange::txqlen)
        .given(unless_same(before.is_promisc(), now.is_promisc()), LinkChange::promisc)
        .given(unless_same(before.is_allmulti(), now.is_allmulti()), LinkChange::allmulti);
    rtnl.link_set(change)
}

fn unless_same<T: PartialEq>(before: T, now: T) -> Option<T> {
    Some(before).filter(|before| *before != now)
}
