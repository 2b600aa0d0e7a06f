// SPDX-License-Identifier: Apache-2.0
//! Transactions: an ADD that fails half-way takes back what it did.
//!
//! Undo is data, so that a journal can be printed and compared. Shared things (a bridge, base chains,
//! forwarding) have no undo: other containers may use them by then.

use std::path::PathBuf;

use cnibox_netfilter::Batch;
use cnibox_netlink::{AddrSpec, Error, Family, Link, LinkChange, Route, Rtnl, RuleSpec};
use cnibox_netns::{errno, sysctl};
use cnibox_spec::Code;
use thiserror::Error as ThisError;

use crate::{Coded, Failure, Loan, Place, Sys, Verb};

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
    /// Remove a queueing discipline that was added to a link of the host.
    Discipline {
        /// The link's index.
        link: u32,
        /// Whether it is the ingress discipline, with its filters, or the root.
        ingress: bool,
    },
    /// Delete a routing rule.
    Rule {
        /// Where it is.
        place: Place,
        /// The rule.
        rule: RuleSpec,
    },
    /// Delete the routes of a link from a table that was empty before.
    TableRoutes {
        /// Where the table is.
        place: Place,
        /// The table.
        table: u32,
        /// The link's index.
        link: u32,
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
    /// Release a link from its VRF, with the addresses and routes that it had before.
    Enslaved {
        /// Where it is.
        place: Place,
        /// The link's index.
        link: u32,
        /// Its IPv6 addresses, which the kernel drops on the way.
        addresses: Vec<AddrSpec>,
        /// Its routes.
        routes: Vec<Route>,
    },
    /// Remove a file.
    File(PathBuf),
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
                self.sys.attempt_left_something();
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
            Undo::Sysctl { place, name, value } => Ok(self.inside(*place, || sysctl::write(name, value))??),
            Undo::Address { place, link, address } => {
                let rtnl = self.rtnl(*place)?;
                let index = rtnl.link_by_name(link)?.index;
                Ok(rtnl.addr_del(index, *address)?)
            }
            Undo::Discipline { link, ingress: true } => {
                Ok(self.host()?.qdisc_del_ingress_if_present(*link).map(drop)?)
            }
            Undo::Discipline { link, ingress: false } => {
                Ok(self.host()?.qdisc_del_root_if_present(*link).map(drop)?)
            }
            Undo::Rule { place, rule } => Ok(self.rtnl(*place)?.rule_del(rule)?),
            Undo::TableRoutes { place, table, link } => {
                Ok(delete_table_routes(self.rtnl(*place)?, *table, *link)?)
            }
            Undo::Route { place, route } => Ok(self.rtnl(*place)?.route_copy(route, route.table)?),
            Undo::Settings { place, link } => Ok(restore_settings(self.rtnl(*place)?, link)?),
            Undo::Enslaved { place, link, addresses, routes } => {
                Ok(release(self.rtnl(*place)?, *link, addresses, routes)?)
            }
            Undo::File(path) => {
                Ok(std::fs::remove_file(path).map_err(|source| FileLeft { path: path.clone(), source })?)
            }
        }
    }
}

fn delete_table_routes(rtnl: &mut Rtnl, table: u32, link: u32) -> Result<(), Error> {
    for family in [Family::V4, Family::V6] {
        for route in rtnl.routes(family, table, Some(link))? {
            rtnl.route_del_exact(&route)?;
        }
    }
    Ok(())
}

/// Sets only what differs: some drivers refuse even a change to the same.
fn restore_settings(rtnl: &mut Rtnl, before: &Link) -> Result<(), Error> {
    let now = rtnl.link_by_index(before.index)?;
    let mut change = LinkChange::new(before.index);
    if let Some(mac) = before.mac.filter(|mac| now.mac != Some(*mac)) {
        change = change.mac(mac);
    }
    if before.mtu != now.mtu {
        change = change.mtu(before.mtu);
    }
    if before.txqlen != now.txqlen {
        change = change.txqlen(before.txqlen);
    }
    if before.is_promisc() != now.is_promisc() {
        change = change.promisc(before.is_promisc());
    }
    if before.is_allmulti() != now.is_allmulti() {
        change = change.allmulti(before.is_allmulti());
    }
    rtnl.link_set(change)
}

fn release(rtnl: &mut Rtnl, link: u32, addresses: &[AddrSpec], routes: &[Route]) -> Result<(), Error> {
    rtnl.link_set_nomaster(link)?;
    // The kernel lists the newest IPv6 address first.
    for address in addresses.iter().rev() {
        match rtnl.addr_add(link, address) {
            Err(error) if !error.is_exists() => return Err(error),
            _ => {}
        }
    }
    for route in routes {
        rtnl.route_copy(route, route.table)?;
    }
    Ok(())
}

/// A file that could not be removed.
#[derive(Debug, ThisError)]
#[error("remove {}: {}", path.display(), errno::io_text(source))]
struct FileLeft {
    path: PathBuf,
    source: std::io::Error,
}

impl Coded for FileLeft {}
