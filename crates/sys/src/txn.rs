// SPDX-License-Identifier: Apache-2.0
//! Transactions: an ADD that fails half-way takes back what it did.
//!
//! Undo is data, so that a journal can be printed and compared. Shared things (a bridge, base chains,
//! forwarding) have no undo: other containers may use them by then.

use cnibox_netfilter::Batch;
use cnibox_netns::sysctl;
use cnibox_spec::Code;

use crate::{Failure, Loan, Place, Sys, Verb};

/// How to take back one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Delete the link of this name; with a veth its peer goes along.
    Link {
        /// Where it is.
        place: Place,
        /// Its name.
        name: String,
    },
    /// Take back a link of the host.
    Loan(Loan),
    /// DEL to the IPAM plugin of this name.
    Delegate(String),
    /// Apply these changes to the packet filter.
    Rules(Batch),
    /// Write the sysctl's former value.
    Sysctl {
        /// Where it is.
        place: Place,
        /// The sysctl, in the form of `cnibox_netns::sysctl`.
        name: String,
        /// What it was.
        value: String,
    },
    /// Remove an address from a link.
    Address {
        /// Where the link is.
        place: Place,
        /// The link's name.
        link: String,
        /// The address with its prefix length.
        address: ipnetwork::IpNetwork,
    },
}

/// A journal of steps over a [`Sys`].
pub struct Txn<'s, 'h> {
    sys: &'s mut Sys<'h>,
    journal: Vec<Undo>,
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
        undo: Undo,
        work: impl FnOnce(&mut Sys<'h>) -> Result<T, E>,
    ) -> Result<T, Failure> {
        let value = self.shared(work)?;
        self.journal.push(undo);
        Ok(value)
    }

    /// Journals `undo` first, then does something that must be taken back even when it fails: the
    /// specification wants DEL after a failed delegated ADD.
    ///
    /// # Errors
    /// What `work` fails with.
    pub fn attempt<T, E: Into<Failure>>(
        &mut self,
        undo: Undo,
        work: impl FnOnce(&mut Sys<'h>) -> Result<T, E>,
    ) -> Result<T, Failure> {
        self.journal.push(undo);
        self.shared(work)
    }

    /// The system, for looking without changing.
    pub fn sys(&mut self) -> &mut Sys<'h> {
        self.sys
    }

    fn roll_back(&mut self, mut failure: Failure) -> Failure {
        for undo in std::mem::take(&mut self.journal).into_iter().rev() {
            if let Err(error) = self.sys.undo(&undo) {
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
            return Err(Failure::new(Code::INTERNAL, format!("step {} told to fail", self.steps)));
        }
        Ok(())
    }

    fn undo(&mut self, undo: &Undo) -> Result<(), Failure> {
        match undo {
            Undo::Link { place, name } => {
                Ok(self.rtnl(*place)?.link_del_by_name_if_present(name).map(drop)?)
            }
            Undo::Loan(loan) => self.loan_undo(loan),
            Undo::Delegate(plugin) => Ok(self.delegate(Verb::Del, plugin).map(drop)?),
            Undo::Rules(batch) => Ok(self.engine()?.apply(batch)?),
            Undo::Sysctl { place, name, value } => {
                Ok(self.inside(*place, || sysctl::write(name, value).map(drop))??)
            }
            Undo::Address { place, link, address } => {
                let rtnl = self.rtnl(*place)?;
                let index = rtnl.link_by_name(link)?.index;
                Ok(rtnl.addr_del(index, *address)?)
            }
        }
    }
}
