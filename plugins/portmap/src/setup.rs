// SPDX-License-Identifier: Apache-2.0
//! ADD: writes what the plan says, all of it or nothing.

use cnibox_harness::{AddArgs, Request};
use cnibox_netfilter::xt::{Rule, Table};
use cnibox_netfilter::{Batch, RuleInfo, TableRef, conntrack};
use cnibox_netns::sysctl;
use cnibox_sys::{Failure, Memo, Memory, Sys, Txn, Undo};

use crate::config::{Config, Marking};
use crate::owner::Owner;
use crate::plan::{Desired, Rules};
use crate::{PortmapError, iptables, nftables};

/// Installs the rules, opens the way from the host's own 127.0.0.0/8, and ends old UDP flows.
///
/// # Errors
/// The first step that failed; what was done for this container before is taken back.
pub(crate) fn install(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
    desired: &Desired,
) -> Result<(), Failure> {
    let attachment = Memo::new(&request.conf.network, &request.args.container, &request.args.ifname);
    let done = match &desired.rules {
        Rules::Iptables(layouts) => {
            require_mark_chain(&request.config, layouts, sys)?;
            install_iptables(sys, desired, layouts, &attachment)
        }
        Rules::Nftables(layouts) => install_nftables(sys, desired, layouts, &attachment),
    };
    done?;
    // The rules are in place: nothing from here on is worth failing for.
    if let Err(error) = conntrack::flush(&desired.flows) {
        sys.warn(format_args!(
            "failed to delete stale UDP conntrack entries for {}: {error}",
            request.args.container
        ));
    }
    Ok(())
}

/// A foreign chain that marks must be there already; the kernel's own answer would not name it.
fn require_mark_chain(
    config: &Config,
    layouts: &[iptables::Layout],
    sys: &mut Sys<'_>,
) -> Result<(), Failure> {
    let Marking::Chain(chain) = &config.marking else { return Ok(()) };
    for layout in layouts.iter().filter(|layout| config.snat && !layout.own.is_empty()) {
        let table = TableRef::Xt(layout.family, Table::Nat);
        if !sys.engine()?.chain_exists(&table, chain).map_err(PortmapError::Iptables)? {
            return Err(PortmapError::MarkChain(chain.clone()).into());
        }
    }
    Ok(())
}

fn install_iptables(
    sys: &mut Sys<'_>,
    desired: &Desired,
    layouts: &[iptables::Layout],
    attachment: &Memo,
) -> Result<(), Failure> {
    let memory = Memory::of(MEMORY);
    let known = memory.of_container(&attachment.container);
    let is_known = known.iter().any(|memo| memo.is_about(attachment));
    let is_neighbour = |memo: &Memo| memo.network == attachment.network && !memo.is_about(attachment);
    let (mut batch, mut undo) = (Batch::new(), Batch::new());
    for layout in layouts {
        let leftovers = Leftovers::read(layout, sys).map_err(PortmapError::Iptables)?;
        // All interfaces of a container on a network share the chain, where the first one keeps the port.
        if !known.iter().any(is_neighbour) {
            leftovers.clear(layout, &mut batch);
        }
        leftovers.undo(layout, &desired.owner, &mut undo);
    }
    batch.extend(desired.install());
    if !is_known {
        memory.note(&Memo { notes: vec![IPTABLES_ONLY.to_owned()], ..attachment.clone() });
    }
    Txn::run(sys, |tx| {
        tx.attempt(Undo::Rules(undo), |sys| {
            sys.engine().and_then(|engine| engine.apply(&batch)).map_err(PortmapError::Iptables)
        })?;
        tx.shared(|sys| open_localnet(sys, desired))
    })
    .inspect_err(|_| {
        if !is_known {
            memory.forget(attachment);
        }
    })
}

/// What the container has already: of an ADD that was cut off, or of another interface on the network.
struct Leftovers {
    /// Its chain; `None` if it has none, and nothing leads to it then.
    rules: Option<Vec<RuleInfo>>,
    entries: Vec<RuleInfo>,
}

impl Leftovers {
    fn read(layout: &iptables::Layout, sys: &mut Sys<'_>) -> cnibox_netfilter::Result<Self> {
        let table = TableRef::Xt(layout.family, Table::Nat);
        let engine = sys.engine()?;
        if !engine.chain_exists(&table, &layout.chain)? {
            return Ok(Self { rules: None, entries: Vec::new() });
        }
        let rules = engine.rules(&table, &layout.chain)?;
        Ok(Self { rules: Some(rules), entries: engine.rules(&table, iptables::TOP)? })
    }

    /// Removes rules for our ports that would win over ours.
    fn clear(&self, layout: &iptables::Layout, batch: &mut Batch) {
        let contradicting = |info: &&RuleInfo| info.xt.as_ref().is_some_and(|rule| layout.contradicts(rule));
        for info in self.rules.iter().flatten().filter(contradicting) {
            batch.xt(layout.family, Table::Nat).delete_found(&layout.chain, info.id.clone());
        }
    }

    /// Takes back what was not there before.
    fn undo(&self, layout: &iptables::Layout, owner: &Owner, undo: &mut Batch) {
        let Some(rules) = &self.rules else { return undo.extend(iptables::remove(owner, layout.family)) };
        let missing = |rule: &Rule, among: &[RuleInfo]| {
            !among.iter().any(|info| info.xt.as_ref().is_some_and(|xt| xt.is_same(rule)))
        };
        let mut changes = undo.xt(layout.family, Table::Nat);
        for rule in layout.own.iter().filter(|rule| missing(rule, rules)) {
            changes = changes.delete_rule(&layout.chain, rule.clone());
        }
        for rule in layout.entries.iter().filter(|rule| missing(rule, &self.entries)) {
            changes = changes.delete_rule(iptables::TOP, rule.clone());
        }
    }
}

fn install_nftables(
    sys: &mut Sys<'_>,
    desired: &Desired,
    layouts: &[nftables::Layout],
    attachment: &Memo,
) -> Result<(), Failure> {
    let memory = Memory::of(MEMORY);
    let (mut batch, mut undo) = (Batch::new(), Batch::new());
    for layout in layouts {
        // Remembered, and never deleted: an ADD that was cut off. Its rules would win over ours.
        if is_only_one(&memory, attachment) {
            batch.extend(nftables::remove(&desired.owner.nft_comment(), layout.family));
        }
        layout.uninstall(&mut undo);
    }
    batch.extend(desired.install());
    memory.note(&Memo { notes: nftables::notes(layouts), ..attachment.clone() });
    Txn::run(sys, |tx| {
        tx.attempt(Undo::Rules(undo), |sys| {
            sys.engine().and_then(|engine| engine.apply(&batch)).map_err(PortmapError::Nftables)
        })?;
        tx.shared(|sys| open_localnet(sys, desired))
    })
    .inspect_err(|_| memory.forget(attachment))
}

/// Whether rules with the container's comment can only be this attachment's own: the comment says no network.
fn is_only_one(memory: &Memory, attachment: &Memo) -> bool {
    let mut known = memory.of_container(&attachment.container);
    known.retain(|memo| !is_iptables_only(memo));
    !known.is_empty() && known.iter().all(|memo| memo.is_about(attachment))
}

/// Whether the attachment has rules in iptables' tables only.
pub(crate) fn is_iptables_only(memo: &Memo) -> bool {
    memo.notes == [IPTABLES_ONLY]
}

/// Packets from 127.0.0.0/8 may leave by the interface behind which the container is. Without a route there is
/// nothing to open, as in the reference.
fn open_localnet(sys: &mut Sys<'_>, desired: &Desired) -> Result<(), Failure> {
    let Some(ip) = desired.localnet else { return Ok(()) };
    let rtnl = sys.host()?;
    let Ok(route) = rtnl.route_lookup(ip) else { return Ok(()) };
    let Some(link) = route.oif.and_then(|index| rtnl.link_by_index(index).ok()) else { return Ok(()) };
    let name = sysctl::conf("ipv4", &link.name, "route_localnet");
    sysctl::ensure(&name, "1").map_err(PortmapError::RouteLocalnet)?;
    Ok(())
}

/// Native rules do not say which network they are for, and no rules which interface; this plugin's memory does.
pub(crate) const MEMORY: &str = "portmap";
/// The note on an attachment that [`is_iptables_only`].
const IPTABLES_ONLY: &str = "iptables";
