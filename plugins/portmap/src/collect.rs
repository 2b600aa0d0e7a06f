// SPDX-License-Identifier: Apache-2.0
//! GC: removes what belongs to containers of this network that no longer exist.
//!
//! In iptables' tables the comment of an entry rule names network and container, so what the Go plugins left is
//! collected too. Native rules name the container only, which may live on another network. They go when this plugin
//! remembers having written them and there are no more of them than it wrote.

use std::collections::BTreeSet;

use cnibox_harness::Plugin;
use cnibox_netfilter::xt::Table;
use cnibox_netfilter::{Error, Family, RuleInfo, TableRef, if_any};
use cnibox_spec::{LiveAttachment, NetworkName};
use cnibox_sys::{Failure, Ledger, Record, Sys};

use crate::apply::is_iptables_only;
use crate::detach::FAMILIES;
use crate::error::PortmapError;
use crate::others::Known;
use crate::owner::{DNAT_PREFIX, Owner, xt_comment_start};
use crate::{Portmap, detach, iptables, nftables};

/// Removes what belongs to containers of `network` that are not in `valid`.
///
/// # Errors
/// What could not be removed; everything else was.
pub(crate) fn stale(
    network: &NetworkName,
    valid: &[LiveAttachment],
    sys: &mut Sys<'_>,
) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut stale = Ledger::of_host().stale(network, valid);
    stale.retain(|record| record.shares.contains_key(Portmap::NAME));
    let forgotten: Vec<Owner> = stale.iter().map(|record| Owner::of(&record.attachment)).collect();
    for family in FAMILIES {
        if let Err(source) = from_iptables((network.as_str(), valid), &forgotten, family, sys) {
            failures.push(PortmapError::Teardown { family: detach::name(family), source }.into());
        }
    }
    failures.extend(stale.iter().filter_map(|record| from_nftables(record, sys).err()));
    Failure::combine(failures)
}

/// Removes the chains that entry rules tell to be stale, and those of the `forgotten`, whose entries somebody may have
/// flushed.
fn from_iptables(
    (network, valid): (&str, &[LiveAttachment]),
    forgotten: &[Owner],
    family: Family,
    sys: &mut Sys<'_>,
) -> Result<(), Error> {
    let table = TableRef::Xt(family, Table::Nat);
    let engine = sys.engine()?;
    if engine.is_unused(family, Table::Nat) {
        return Ok(());
    }
    let listed = if_any(engine.rules(&table, iptables::TOP))?;
    let start = xt_comment_start(network);
    let owner =
        |live: &LiveAttachment| Owner { network: network.to_owned(), container: live.container_id.clone() };
    let live: BTreeSet<String> = valid.iter().map(|live| owner(live).xt_comment()).collect();
    let live_chains: BTreeSet<String> = valid.iter().map(|live| owner(live).dnat_chain()).collect();
    let stale = listed.iter().filter_map(|rule| {
        let is_stale = |comment: &&str| comment.starts_with(&start) && !live.contains(*comment);
        let comment = rule.comment().filter(is_stale)?;
        let chain = rule.jump().filter(|chain| chain.starts_with(DNAT_PREFIX))?;
        let is_own = belongs(comment, &start, network, chain);
        is_own.then(|| (chain.to_owned(), comment.to_owned()))
    });
    let bare = forgotten.iter().map(|owner| (owner.dnat_chain(), owner.xt_comment()));
    let bare = bare.filter(|(chain, _)| !live_chains.contains(chain));
    let chains: BTreeSet<(String, String)> = stale.chain(bare).collect();
    for (chain, comment) in chains {
        engine.apply(&iptables::remove_chain(&chain, &comment, family))?;
    }
    Ok(())
}

/// Whether the chain is the one that network and container of the comment hash to: the comment alone could be
/// anybody's. Of a container whose ID was cut off nothing but the comment is known.
fn belongs(comment: &str, start: &str, network: &str, chain: &str) -> bool {
    match comment.strip_prefix(start).and_then(|rest| rest.strip_suffix('"')) {
        Some(container) => {
            Owner { network: network.to_owned(), container: container.to_owned() }.dnat_chain() == chain
        }
        None => comment.ends_with(".."),
    }
}

/// Removes the rules of a remembered attachment, unless they lead to an address that somebody has by now, or there are more
/// with its comment than it wrote.
fn from_nftables(record: &Record, sys: &mut Sys<'_>) -> Result<(), Failure> {
    if is_iptables_only(record) {
        return Ok(());
    }
    let attachment = &record.attachment;
    let comment = Owner::of(attachment).nft_comment();
    let families = detach::native_families(sys)?;
    let mut own = Vec::new();
    for &family in &families {
        own.push((family, own_ports(&comment, family, sys)?));
    }
    let leads_to = |rule: &RuleInfo| nftables::leads_to(rule.nft()?);
    let led = own.iter().flat_map(|(_, rules)| rules).filter_map(leads_to).collect();
    let in_use = sys.in_use_among(&led, Some(attachment))?;
    let others = detach::native_others(&Known::of_gone(attachment, in_use), sys);
    if others.are_the_same() {
        return Ok(());
    }
    if others.are_noted {
        return Failure::combine(detach::from_nftables(&comment, &families, sys, |_| others));
    }
    let is_free = |rule: &&RuleInfo| !leads_to(rule).is_some_and(|address| others.have(address));
    for (family, rules) in &own {
        if rules.iter().filter(is_free).count() > nftables::noted(record.notes(Portmap::NAME), *family) {
            return Ok(());
        }
    }
    Failure::combine(detach::from_nftables(&comment, &families, sys, |_| others))
}

/// The native rules of ports with this comment.
fn own_ports(comment: &str, family: Family, sys: &mut Sys<'_>) -> Result<Vec<RuleInfo>, Failure> {
    let mut rules = if_any(sys.engine()?.rules(&nftables::table_ref(family), nftables::PORTS))?;
    rules.retain(|rule| rule.comment() == Some(comment));
    Ok(rules)
}
