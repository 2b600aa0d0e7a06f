// SPDX-License-Identifier: Apache-2.0
//! The layout in the native tables `ip cni_hostport` and `ip6 cni_hostport`, as data (reference:
//! `portmap_nftables.go`).
//!
//! Asked for by name, they are the reference's: masquerade is for the container's own packets to itself and for those from
//! 127.0.0.1, and `masqAll` has no effect. Another container of the subnet reaches the port only with `br_netfilter`, since
//! the answer takes the short way. Where they stand in for iptables' tables, which the kernel lacks, they do what those do:
//!
//! ```text
//! hostports:    <port> ip saddr <own subnet>, 127.0.0.1 meta mark set <bit>
//! hostports:    <port> dnat
//! masquerading: meta mark <bit> masquerade
//! ```

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cnibox_netfilter::nft::{Chain, ChainType, Family as Table, Hook, HookPoint, Rule, Statement, Verdict};
use cnibox_netfilter::{Batch, Error, Family, Owner as RulesOf, Position, TableRef, if_any};
use cnibox_sys::Sys;
use ipnetwork::IpNetwork;

use crate::config::{Config, Mapping, Marking};
use crate::iptables;
use crate::owner::Owner;

/// Everything that one family of a container's mappings needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// IPv4 or IPv6.
    pub(crate) family: Family,
    /// The user's conditions.
    conditions: Vec<Statement>,
    /// Rules of [`PORTS`].
    pub(crate) ports: Vec<Rule>,
    /// Rules of [`MASQUERADE`]; `None` without `snat`, when there is no such chain either.
    pub(crate) masquerade: Option<Vec<Rule>>,
    /// The first rule of [`MASQUERADE`], which all containers share.
    pub(crate) marked: Option<Rule>,
}

impl Layout {
    /// The layout for the mappings of `config` to `address`.
    pub(crate) fn new(config: &Config, owner: &Owner, address: IpNetwork) -> Self {
        let family = Family::of(address.ip());
        let comment = owner.nft_comment();
        let mark = match config.marking {
            Marking::Bit(bit) if config.snat && config.backend.is_none() => Some(bit),
            Marking::Bit(_) | Marking::Chain(_) => None,
        };
        let mappings = config.mappings.iter().filter(|mapping| mapping.applies_to(family));
        let forwarded = mappings.flat_map(|mapping| forward(config, mapping, address, mark));
        let own = || if mark.is_some() { Vec::new() } else { masquerade(address.ip(), &comment) };
        Self {
            family,
            conditions: Statement::conditions(config.conditions(family)),
            ports: forwarded.map(|rule| rule.with_comment(&comment)).collect(),
            masquerade: config.snat.then(own),
            marked: mark.map(|bit| Rule::new(vec![Statement::Marked(bit), Statement::Masquerade])),
        }
    }

    /// The changes that install it. The shared chains are filled anew each time, so that they follow the conditions
    /// of the last ADD. Rules that are there are not doubled.
    pub(crate) fn install(&self, batch: &mut Batch) {
        let to_ports = |chain: &str| Rule::new(vec![Verdict::Jump(chain.to_owned()).into()]);
        let mut changes = batch
            .nft(table(self.family), TABLE)
            .ensure_table(Some("CNI portmap plugin"))
            .ensure_chain(Chain::regular(PORTS))
            .ensure_chain(Chain::regular(OLD_PORTS))
            .ensure_chain(Chain::regular(ALL_PORTS))
            .flush_chain(ALL_PORTS)
            .append_rule(ALL_PORTS, to_ports(OLD_PORTS))
            .append_rule(ALL_PORTS, to_ports(PORTS));
        for (chain, point) in ENTRANCES {
            changes = changes
                .ensure_chain(Chain::base(chain, Hook::new(ChainType::Nat, point, DSTNAT)))
                .flush_chain(chain)
                .append_rule(chain, self.entrance());
        }
        if self.masquerade.is_some() {
            let hook = Hook::new(ChainType::Nat, HookPoint::Postrouting, SRCNAT);
            changes = changes.ensure_chain(Chain::base(MASQUERADE, hook));
        }
        if let Some(rule) = &self.marked {
            changes = changes.ensure_rule(MASQUERADE, rule.clone(), Position::Head);
        }
        let mut before = HashSet::with_capacity(self.ports.len());
        for rule in &self.ports {
            // A mapping that is given twice is there twice, as with the reference, whose CHECK counts them.
            changes = match before.insert(rule) {
                true => changes.ensure_rule(PORTS, rule.clone(), Position::Tail),
                false => changes.append_rule(PORTS, rule.clone()),
            };
        }
        for rule in self.masquerade.iter().flatten() {
            changes = changes.ensure_rule(MASQUERADE, rule.clone(), Position::Tail);
        }
    }

    /// The changes that take the container's own rules back.
    pub(crate) fn uninstall(&self, batch: &mut Batch) {
        let mut changes = batch.nft(table(self.family), TABLE);
        for rule in &self.ports {
            changes = changes.delete_rule(PORTS, rule.clone());
        }
        for rule in self.masquerade.iter().flatten() {
            changes = changes.delete_rule(MASQUERADE, rule.clone());
        }
    }

    fn entrance(&self) -> Rule {
        let jump = [Statement::DestinationLocal, Verdict::Jump(ALL_PORTS.to_owned()).into()];
        Rule::new(self.conditions.iter().cloned().chain(jump).collect())
    }
}

/// The rules of one mapping. Marks come first, since DNAT ends the traversal.
fn forward(config: &Config, mapping: &Mapping, address: IpNetwork, mark: Option<u32>) -> Vec<Rule> {
    let mut base: Vec<_> = mapping.destination().map(Statement::destination).into_iter().collect();
    base.push(Statement::destination_port(mapping.protocol, mapping.host_port));
    let with = |rest: [Option<Statement>; 2]| {
        Rule::new(base.iter().cloned().chain(rest.into_iter().flatten()).collect())
    };
    let marks = mark.into_iter().flat_map(|bit| {
        let sources = iptables::marked_sources(config, address);
        sources.map(move |source| [Some(Statement::source(source.net())), Some(Statement::SetMark(bit))])
    });
    let to = Statement::Dnat(SocketAddr::new(address.ip(), mapping.container_port));
    marks.chain([[Some(to), None]]).map(with).collect()
}

/// Packets that a container sends to itself, and those of the host's own address, would not find back.
fn masquerade(ip: IpAddr, comment: &str) -> Vec<Rule> {
    let from = |source: IpAddr| {
        let statements = vec![Statement::source(source), Statement::destination(ip), Statement::Masquerade];
        Rule::new(statements).with_comment(comment)
    };
    let host = ip.is_ipv4().then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    std::iter::once(ip).chain(host).map(from).collect()
}

/// The changes that remove every rule of a container from one family, whatever network it was made for: the rules do
/// not say.
pub(crate) fn remove(comment: &str, family: Family) -> Batch {
    let mut batch = Batch::new();
    let mut changes = batch.nft(table(family), TABLE);
    for chain in [PORTS, OLD_PORTS, MASQUERADE] {
        changes = changes.delete_rules_where(chain, RulesOf::Comment(comment.to_owned()));
    }
    drop(changes);
    batch
}

/// The same, without those that lead to an address which is another attachment's.
pub(crate) fn remove_apart(
    comment: &str,
    family: Family,
    is_anothers: impl Fn(IpAddr) -> bool,
    sys: &mut Sys<'_>,
) -> Result<Batch, Error> {
    let mut batch = Batch::new();
    for chain in [PORTS, OLD_PORTS, MASQUERADE] {
        let mut rules = if_any(sys.engine()?.rules(&table_ref(family), chain))?;
        rules.retain(|info| info.comment() == Some(comment));
        let leads_elsewhere = |rule: &&Rule| leads_to(rule).is_some_and(&is_anothers);
        let known = rules.iter().filter_map(|info| info.nft());
        let kept: HashSet<Subject<'_>> = known.filter(leads_elsewhere).map(subject).collect();
        for info in &rules {
            let stays =
                |rule: &Rule| leads_to(rule).map_or_else(|| kept.contains(&subject(rule)), &is_anothers);
            if !info.nft().is_some_and(stays) {
                batch.nft(table(family), TABLE).delete_found(chain, info.id.clone());
            }
        }
    }
    Ok(batch)
}

/// A port and the host's address.
type Subject<'r> = Vec<&'r Statement>;

/// What a rule of [`PORTS`] is about, without its source.
fn subject(rule: &Rule) -> Subject<'_> {
    let is_subject = |statement: &&Statement| {
        matches!(statement, Statement::DestinationAddress { .. } | Statement::DestinationPort { .. })
    };
    rule.statements.iter().filter(is_subject).collect()
}

/// The container's address that a rule is about; of a mark, which is about a port, none.
pub(crate) fn leads_to(rule: &Rule) -> Option<IpAddr> {
    let mut masqueraded = None;
    for statement in &rule.statements {
        if let Statement::SetMark(_) = statement {
            return None;
        }
        if let Statement::Dnat(to) = statement {
            return Some(to.ip());
        }
        if let Statement::DestinationAddress { net, negated: false } = statement {
            masqueraded = Some(net.ip());
        }
    }
    masqueraded
}

/// How many rules of [`PORTS`] each family got, as notes for this plugin's memory.
pub(crate) fn notes(layouts: &[Layout]) -> Vec<String> {
    layouts.iter().map(|layout| format!("{} {}", table(layout.family).name(), layout.ports.len())).collect()
}

/// The number that [`notes`] has for a family.
pub(crate) fn noted(notes: &[String], family: Family) -> usize {
    let number = |note: &String| note.strip_prefix(table(family).name())?.strip_prefix(' ')?.parse().ok();
    notes.iter().find_map(number).unwrap_or(0)
}

/// The table of a family.
pub(crate) fn table_ref(family: Family) -> TableRef {
    TableRef::Nft(table(family), TABLE.to_owned())
}

fn table(family: Family) -> Table {
    family.into()
}

const TABLE: &str = "cni_hostport";
/// The rules of all containers.
pub(crate) const PORTS: &str = "hostports";
/// Where versions of the reference before 1.9 put mappings with a hostIP; kept for them.
pub(crate) const OLD_PORTS: &str = "hostip_hostports";
/// What the base chains jump to.
pub(crate) const ALL_PORTS: &str = "hostports_all";
/// The base chain of the masquerade rules.
pub(crate) const MASQUERADE: &str = "masquerading";
/// The base chains through which packets come in.
pub(crate) const ENTRANCES: [(&str, HookPoint); 2] =
    [("prerouting", HookPoint::Prerouting), ("output", HookPoint::Output)];
/// `dstnat` of `nft(8)`.
const DSTNAT: i32 = -100;
/// `srcnat` of `nft(8)`.
const SRCNAT: i32 = 100;

#[cfg(test)]
mod tests;
