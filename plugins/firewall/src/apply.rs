// SPDX-License-Identifier: Apache-2.0
//! ADD: makes a plan true, in the packet filter, in firewalld's zone, or in both.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cnibox_harness::{AddArgs, Plugin, Request};
use cnibox_netfilter::Batch;
use cnibox_netfilter::xt::Table;
use cnibox_sys::{Failure, Ledger, Sys, Txn, Undo, UndoStep};

use crate::config::{Backend, Config};
use crate::detach::{addresses, withdraw};
use crate::error::FirewallError;
use crate::firewalld::Zone;
use crate::plan::{self, Desired, FORWARD_CHAIN};
use crate::{Firewall, native};

/// Lets the container's packets through with the backend of this moment, and remembers its addresses.
pub(crate) fn admit(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
    desired: Vec<Desired>,
) -> Result<(), Failure> {
    let config = &request.config;
    let backend = Backend::choose(config.backend, sys.env());
    let superseded = superseded(request, sys)?;
    if !superseded.is_empty() {
        withdraw(config, superseded, sys)?;
    }
    Txn::run(sys, |tx| {
        if !desired.is_empty() {
            tx.note(config.host_addresses().iter().map(IpAddr::to_string).collect())?;
        }
        if backend.uses_firewalld(tx.sys().env()) {
            add_to_zone(tx, config)?;
        }
        match backend {
            Backend::Iptables | Backend::Nftables => install(tx, backend, &desired),
            Backend::Firewalld => install(tx, backend, &plan::policy_only(desired)),
        }
    })
}

/// The addresses into the zone.
fn add_to_zone(tx: &mut Txn<'_, '_>, config: &Config) -> Result<(), Failure> {
    let zone = Zone::new(&config.zone, tx.sys().env());
    let added = tx.shared(|_| zone.add_sources(&config.host_addresses()))?;
    tx.risky_step(ZoneSources { zone: config.zone.clone(), added }, |_| Ok::<_, Failure>(()))
}

/// Takes addresses out of a zone that they were not in before.
#[derive(Clone, Debug)]
struct ZoneSources {
    zone: String,
    added: Vec<IpAddr>,
}

impl UndoStep for ZoneSources {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(Zone::new(&self.zone, sys.env()).remove_sources_if_present(&self.added)?)
    }
}

/// Writes the rules of all families, all of them or none.
fn install(tx: &mut Txn<'_, '_>, backend: Backend, desired: &[Desired]) -> Result<(), Failure> {
    if desired.is_empty() {
        return Ok(());
    }
    if is_native(backend, desired, tx.sys())? {
        let batch = native::install(desired, tx.sys()).map_err(FirewallError::from)?;
        // One transaction, unless the accepts beside it are a tool's to write: those an undo leaves behind, as it must
        // where another attachment has the address.
        return tx.shared(|sys| apply(&batch, sys));
    }
    let (batch, undo) = (plan::install(desired), undo(desired, tx.sys())?);
    tx.risky_step(Undo::Rules(undo), |sys| apply(&batch, sys))
}

fn apply(batch: &Batch, sys: &mut Sys<'_>) -> Result<(), FirewallError> {
    Ok(sys.engine()?.apply(batch)?)
}

/// The changes that take back what a failure may leave behind: over netlink nothing, since all families are one
/// transaction; with the tool the rules of the first family when the second fails.
fn undo(desired: &[Desired], sys: &mut Sys<'_>) -> Result<Batch, FirewallError> {
    let mut undo = Batch::new();
    let engine = sys.engine()?;
    if let [first, _] = desired
        && engine.uses_tool()
    {
        // Rules that are there belong to another attachment with the same address, too.
        for rule in engine.missing(first.family, Table::Filter, FORWARD_CHAIN, &first.addresses)? {
            undo.xt(first.family, Table::Filter).delete_rule(FORWARD_CHAIN, rule.clone());
        }
    }
    Ok(undo)
}

/// Whether the rules are written natively: where that is asked for, and where the kernel cannot hold them otherwise.
pub(crate) fn is_native(
    backend: Backend,
    desired: &[Desired],
    sys: &mut Sys<'_>,
) -> Result<bool, FirewallError> {
    Ok(backend == Backend::Nftables || sys.cannot_hold(&plan::install(desired))?)
}

/// The addresses that an earlier ADD of the same attachment was for, when it was not followed by DEL: nobody would know
/// of their rules any more.
fn superseded(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
) -> Result<BTreeSet<IpAddr>, Failure> {
    let mut gone = addresses(sys.notes());
    for current in request.config.host_addresses() {
        gone.remove(&current);
    }
    if !gone.is_empty() {
        let all = Ledger::of_host().all();
        for other in all.iter().filter(|other| other.attachment != request.args.attachment) {
            let noted = addresses(other.notes(Firewall::NAME));
            gone.retain(|ip| !noted.contains(ip));
        }
        // A plugin that keeps no ledger may have given it to somebody since.
        let in_use = sys.in_use_among(&gone, None)?;
        gone.retain(|ip| !in_use.contains(ip));
    }
    Ok(gone)
}
