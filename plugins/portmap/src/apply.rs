// SPDX-License-Identifier: Apache-2.0
//! ADD: writes what the plan says, all of it or nothing.

use std::collections::HashSet;
use std::net::IpAddr;

use cnibox_harness::{AddArgs, Plugin, Request};
use cnibox_netfilter::xt::{Rule, Table};
use cnibox_netfilter::{Batch, TableRef, conntrack};
use cnibox_netns::sysctl;
use cnibox_spec::Attachment;
use cnibox_sys::{Failure, Ledger, OrSay, Record, Sys, Txn, Undo};

use crate::config::{Config, Marking};
use crate::error::PortmapError;
use crate::iptables::Layout;
use crate::others::beside;
use crate::owner::Owner;
use crate::plan::{Desired, Rules};
use crate::{Portmap, iptables, nftables};

/// Installs the rules, opens the way from the host's own 127.0.0.0/8, and ends old UDP flows.
///
/// # Errors
/// The first step that failed; what was done for this container before is taken back.
pub(crate) fn install(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
    desired: &Desired,
) -> Result<(), Failure> {
    let done = match &desired.rules {
        Rules::Iptables(layouts) => {
            require_mark_chain(&request.config, layouts, sys)?;
            install_iptables(sys, desired, layouts, &request.args)
        }
        Rules::Nftables(layouts) => install_nftables(sys, desired, layouts, &request.args),
    };
    done?;
    // The rules are in place: nothing from here on is worth failing for.
    if let Err(error) = conntrack::flush(&desired.flows) {
        sys.warn(format_args!(
            "failed to delete stale UDP conntrack entries for {}: {error}",
            request.args.attachment.container
        ));
    }
    Ok(())
}

/// A foreign chain that marks must be there already; the kernel's own answer would not name it.
fn require_mark_chain(config: &Config, layouts: &[Layout], sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Marking::Chain(chain) = &config.marking else { return Ok(()) };
    for layout in layouts.iter().filter(|layout| config.snat && !layout.own.is_empty()) {
        let table = TableRef::Xt(layout.family, Table::Nat);
        if !sys.engine()?.chain_exists(&table, chain).map_err(PortmapError::Iptables)? {
            let text = format!("unable to setup DNAT: Chain '{chain}' does not exist");
            return Err(Failure::invalid_config(text));
        }
    }
    Ok(())
}

fn install_iptables(
    sys: &mut Sys<'_>,
    desired: &Desired,
    layouts: &[Layout],
    AddArgs { attachment, netns }: &AddArgs,
) -> Result<(), Failure> {
    let known = noted(attachment);
    let is_neighbour =
        |record: &Record| record.attachment.network == attachment.network && record.attachment != *attachment;
    let (mut batch, mut undo) = (Batch::new(), Batch::new());
    for layout in layouts {
        let has_chain = plan_undo(layout, &desired.owner, &mut undo, sys).map_err(PortmapError::Iptables)?;
        // All interfaces of a container on a network share the chain, where the first one keeps the port.
        if has_chain && !known.iter().any(is_neighbour) {
            let beside = beside(attachment, Some(netns), sys);
            clear(layout, &beside, &mut batch, sys).map_err(PortmapError::Iptables)?;
        }
    }
    batch.extend(desired.install());
    Txn::run(sys, |tx| {
        if tx.sys().notes().is_empty() {
            tx.note(vec![IPTABLES_ONLY.to_owned()])?;
        }
        tx.risky_step(Undo::Rules(undo), |sys| {
            sys.engine().and_then(|engine| engine.apply(&batch)).map_err(PortmapError::Iptables)
        })?;
        tx.shared(|sys| open_localnet(sys, desired))
    })
}

/// Has `undo` take back what is not there before. Answers whether the container has its chain already: of an ADD that was
/// cut off, or of another interface on the network.
fn plan_undo(
    layout: &Layout,
    owner: &Owner,
    undo: &mut Batch,
    sys: &mut Sys<'_>,
) -> cnibox_netfilter::Result<bool> {
    let engine = sys.engine()?;
    if !engine.chain_exists(&TableRef::Xt(layout.family, Table::Nat), &layout.chain)? {
        // Nothing leads to it then.
        undo.extend(iptables::remove(owner, layout.family));
        return Ok(false);
    }
    for (chain, rules) in [(layout.chain.as_str(), &layout.own), (iptables::TOP, &layout.entries)] {
        for rule in engine.missing(layout.family, Table::Nat, chain, rules)? {
            undo.xt(layout.family, Table::Nat).delete_rule(chain, rule.clone());
        }
    }
    Ok(true)
}

/// Removes rules for our ports that would win over ours, and lead to none of the addresses `beside`.
fn clear(
    layout: &Layout,
    beside: &HashSet<IpAddr>,
    batch: &mut Batch,
    sys: &mut Sys<'_>,
) -> cnibox_netfilter::Result<()> {
    let contradicts = layout.contradictions();
    let is_free = |rule: &Rule| !iptables::leads_to(rule).is_some_and(|address| beside.contains(&address));
    for info in sys.engine()?.rules(&TableRef::Xt(layout.family, Table::Nat), &layout.chain)? {
        if info.xt().is_some_and(|rule| contradicts(rule) && is_free(rule)) {
            batch.xt(layout.family, Table::Nat).delete_found(&layout.chain, info.id);
        }
    }
    Ok(())
}

fn install_nftables(
    sys: &mut Sys<'_>,
    desired: &Desired,
    layouts: &[nftables::Layout],
    AddArgs { attachment, netns }: &AddArgs,
) -> Result<(), Failure> {
    let (mut batch, mut undo) = (Batch::new(), Batch::new());
    // Remembered, and never deleted: an ADD that was cut off. Its rules would win over ours.
    let beside = is_only_one(attachment).then(|| beside(attachment, Some(netns), sys));
    for layout in layouts {
        if let Some(beside) = &beside {
            let is_anothers = |address| beside.contains(&address);
            let comment = desired.owner.nft_comment();
            let removal = nftables::remove_apart(&comment, layout.family, is_anothers, sys);
            batch.extend(removal.map_err(PortmapError::Nftables)?);
        }
        layout.uninstall(&mut undo);
    }
    batch.extend(desired.install());
    Txn::run(sys, |tx| {
        tx.note(nftables::notes(layouts))?;
        tx.risky_step(Undo::Rules(undo), |sys| {
            sys.engine().and_then(|engine| engine.apply(&batch)).map_err(PortmapError::Nftables)
        })?;
        tx.shared(|sys| open_localnet(sys, desired))
    })
}

/// The attachments of the container that this plugin has noted something of.
fn noted(attachment: &Attachment) -> Vec<Record> {
    let mut records = Ledger::of_host().of_container(&attachment.container);
    records.retain(|record| record.shares.contains_key(Portmap::NAME));
    records
}

/// Whether rules with the container's comment can only be this attachment's own: the comment says no network.
fn is_only_one(attachment: &Attachment) -> bool {
    let mut known = noted(attachment);
    known.retain(|record| !is_iptables_only(record));
    !known.is_empty() && known.iter().all(|record| record.attachment == *attachment)
}

/// Whether the attachment has rules in iptables' tables only.
pub(crate) fn is_iptables_only(record: &Record) -> bool {
    record.notes(Portmap::NAME) == [IPTABLES_ONLY]
}

/// Packets from 127.0.0.0/8 may leave by the interface behind which the container is. Without a route there is
/// nothing to open, as in the reference.
fn open_localnet(sys: &mut Sys<'_>, desired: &Desired) -> Result<(), Failure> {
    let Some(ip) = desired.localnet else { return Ok(()) };
    let rtnl = sys.host()?;
    let Ok(route) = rtnl.route_lookup(ip) else { return Ok(()) };
    let Some(link) = route.oif.and_then(|index| rtnl.link_by_index(index).ok()) else { return Ok(()) };
    let name = sysctl::conf("ipv4", &link.name, "route_localnet");
    sysctl::ensure(&name, "1").or_say(|error| format!("unable to enable route_localnet: {error}"))?;
    Ok(())
}

/// The note on an attachment that [`is_iptables_only`].
const IPTABLES_ONLY: &str = "iptables";
