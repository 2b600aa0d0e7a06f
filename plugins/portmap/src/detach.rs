// SPDX-License-Identifier: Apache-2.0
//! DEL: removes whatever the container has in either backend, goes on past errors and reports them all.

use std::net::IpAddr;

use cnibox_harness::{DelArgs, Request};
use cnibox_netfilter::conntrack::{self, Flow};
use cnibox_netfilter::xt::{Protocol, Table};
use cnibox_netfilter::{Batch, Error, Family, RuleInfo, TableRef, if_any};
use cnibox_sys::{Backend, Failure, Ledger, Sys};

use crate::apply::is_iptables_only;
use crate::config::Config;
use crate::error::PortmapError;
use crate::others::{Known, Others};
use crate::owner::Owner;
use crate::plan::udp_flows;
use crate::{iptables, nftables};

/// Removes the container's rules of this network from both backends, since the configuration may have changed, and
/// ends its UDP flows.
pub(crate) fn everything(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args: DelArgs { attachment, netns }, .. } = request;
    let owner = Owner::of(attachment);
    let known = Known::of(attachment, config.prev_result.as_ref(), netns.as_ref(), sys);
    let mut failures = Vec::new();
    // A look at the connection tracking table costs more than everything else: only where there were rules.
    let mut flows = Vec::new();
    failures.extend(from_iptables(&known, config, sys, &mut flows));
    match native_families(sys) {
        Ok(families) => {
            flows.extend(native_flows(&known, config, &families, sys));
            let others = |sys: &mut Sys<'_>| native_others(&known, sys);
            failures.extend(from_nftables(&owner.nft_comment(), &families, sys, others));
        }
        Err(failure) => failures.push(failure),
    }
    if let Err(error) = conntrack::flush(&flows) {
        sys.warn(format_args!(
            "failed to delete stale UDP conntrack entries for {}: {error}",
            owner.container
        ));
    }
    Failure::combine(failures)
}

/// Removes a container from iptables' tables; its UDP ports are added to `flows`. A family whose tables cannot even be
/// read is not in use, unless it is neither of them and rules would have to be there.
fn from_iptables(known: &Known, config: &Config, sys: &mut Sys<'_>, flows: &mut Vec<Flow>) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut unusable = Vec::new();
    for family in FAMILIES {
        let removed = remove_family(known, family, sys).map_err(|source| (source, probe(family, sys)));
        match removed {
            Ok(found) => flows.extend(found),
            Err((_, Err(Error::ToolMissing { .. }))) => {}
            Err((source, Err(_))) => unusable.push(source),
            Err((source, Ok(_))) => {
                failures.push(PortmapError::Teardown { family: name(family), source }.into())
            }
        }
    }
    let mut unusable = unusable.into_iter();
    if let (Some(v4), Some(v6)) = (unusable.next(), unusable.next())
        && !sys.backend(config.backend, Batch::new).is_ok_and(|backend| backend == Backend::Nftables)
    {
        failures.push(Failure::internal(format!(
            "neither iptables nor ip6tables is usable, (iptables) {v4}, (ip6tables) {v6}"
        )));
    }
    failures
}

fn remove_family(known: &Known, family: Family, sys: &mut Sys<'_>) -> Result<Vec<Flow>, Error> {
    let owner = &Owner::of(&known.attachment);
    let engine = sys.engine()?;
    let table = TableRef::Xt(family, Table::Nat);
    if engine.is_unused(family, Table::Nat) {
        return Ok(Vec::new());
    }
    if engine.chain_exists(&table, &owner.old_snat_chain())? {
        // As in the reference, no reason to fail.
        let _ = engine.apply(&iptables::remove_old(owner, family));
    }
    if !engine.chain_exists(&table, &owner.dnat_chain())? {
        return Ok(Vec::new());
    }
    let rules = engine.rules(&table, &owner.dnat_chain())?;
    let others = sharers(known, &rules, sys);
    let engine = sys.engine()?;
    if others.is_empty() {
        let is_whole =
            leads_to(&rules).next().is_some() && leads_to(&rules).all(|to| known.own.contains(&to));
        let removal = if is_whole { iptables::remove_whole } else { iptables::remove };
        engine.apply(&removal(owner, family))?;
    } else {
        let entries = engine.rules(&table, iptables::TOP)?;
        let is_anothers = |address| others.have(address);
        engine.apply(&iptables::remove_apart(owner, family, &rules, &entries, is_anothers))?;
    }
    Ok(rules.iter().filter_map(|info| flow_of(info, family, &others)).collect())
}

/// The other attachments whose rules are in the container's chain. All of the ledger is read only where a rule leads to
/// an address that is not known to be the attachment's.
fn sharers(known: &Known, rules: &[RuleInfo], sys: &mut Sys<'_>) -> Others {
    if leads_to(rules).all(|address| known.own.contains(&address)) {
        return Others::default();
    }
    let chain = Owner::of(&known.attachment).dnat_chain();
    let mut records = Ledger::of_host().all();
    records.retain(|record| Owner::of(&record.attachment).dnat_chain() == chain);
    let others = Others::among(records, known, sys);
    if leads_to(rules).any(|address| others.have(address)) { others } else { Others::default() }
}

/// Where the rules of a container's own chain lead.
fn leads_to(rules: &[RuleInfo]) -> impl Iterator<Item = IpAddr> + '_ {
    rules.iter().filter_map(|info| iptables::leads_to(info.xt()?))
}

/// The other attachments whose native rules have the same comment.
pub(crate) fn native_others(known: &Known, sys: &mut Sys<'_>) -> Others {
    let mut records = Ledger::of_host().of_container(&known.attachment.container);
    records.retain(|record| !is_iptables_only(record));
    Others::among(records, known, sys)
}

/// Removes the native rules with this comment in `families` that are not for the `others`, who are not looked for where
/// there are none.
pub(crate) fn from_nftables(
    comment: &str,
    families: &[Family],
    sys: &mut Sys<'_>,
    others: impl FnOnce(&mut Sys<'_>) -> Others,
) -> Vec<Failure> {
    if families.is_empty() {
        return Vec::new();
    }
    let others = others(sys);
    let mut failures = Vec::new();
    for &family in families {
        let batch = if others.is_empty() {
            Ok(nftables::remove(comment, family))
        } else {
            nftables::remove_apart(comment, family, |address| others.have(address), sys)
        };
        let removed = batch.and_then(|batch| sys.engine()?.apply(&batch));
        failures.extend(removed.err().map(|error| PortmapError::NftTeardown(error).into()));
    }
    failures
}

/// The families that have native tables. An nf_tables that is not there holds none.
///
/// # Errors
/// When the kernel refuses to tell.
pub(crate) fn native_families(sys: &mut Sys<'_>) -> Result<Vec<Family>, Failure> {
    let mut found = Vec::new();
    for family in FAMILIES {
        let table = nftables::table_ref(family);
        let ports = sys.engine().and_then(|engine| engine.chain_exists(&table, nftables::PORTS));
        if if_any(ports).map_err(PortmapError::NftTeardown)? {
            found.push(family);
        }
    }
    Ok(found)
}

/// The UDP flows that a rule of a container's chain forwards, if not to one of the `others`.
fn flow_of(info: &RuleInfo, family: Family, others: &Others) -> Option<Flow> {
    let rule = info.xt()?;
    let to = iptables::leads_to(rule).filter(|address| !others.have(*address))?;
    let (Some((Protocol::Udp, port)), net) = iptables::subject(rule) else { return None };
    let address = net.map(|net| net.ip());
    Some(Flow { family, protocol: Protocol::Udp, port, address, answered_by: Some(to) })
}

/// The UDP flows that native rules forward to the container. Those are not looked for, so only what this plugin noted of
/// an attachment says that it had some; a repeated DEL is about nobody any more.
fn native_flows(known: &Known, config: &Config, families: &[Family], sys: &Sys<'_>) -> Vec<Flow> {
    if !sys.has_finished() {
        return Vec::new();
    }
    let flows = udp_flows(&config.mappings, families);
    let answered = |flow: &Flow| {
        let own = known.own.iter().filter(|address| Family::of(**address) == flow.family);
        own.map(|address| Flow { answered_by: Some(*address), ..*flow }).collect::<Vec<_>>()
    };
    flows.iter().flat_map(answered).collect()
}

fn probe(family: Family, sys: &mut Sys<'_>) -> Result<bool, Error> {
    sys.engine()?.chain_exists(&TableRef::Xt(family, Table::Nat), "OUTPUT")
}

/// As the reference names families in its messages.
pub(crate) fn name(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}

/// Both.
pub(crate) const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];
