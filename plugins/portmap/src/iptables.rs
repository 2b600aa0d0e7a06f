// SPDX-License-Identifier: Apache-2.0
//! The layout in iptables' `nat` tables, as data (reference: `portmap_iptables.go`).
//!
//! ```text
//! PREROUTING, OUTPUT --dst-type LOCAL -> CNI-HOSTPORT-DNAT --dports 8080,8081 -> CNI-DN-<hash> -> DNAT
//!                                        CNI-DN-<hash> -s <own subnet>, 127.0.0.1 -> CNI-HOSTPORT-SETMARK
//! POSTROUTING (first) -> CNI-HOSTPORT-MASQ, which masquerades what carries the mark
//! ```

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cnibox_netfilter::xt::{Address, Match, Protocol, Rule, Table, Target};
use cnibox_netfilter::{Batch, Family, Owner as RulesOf, Position, RuleInfo};
use cnibox_spec::everywhere;
use ipnetwork::IpNetwork;

use crate::config::{Config, Mapping, Marking};
use crate::owner::Owner;

/// A rule and the chain it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The chain.
    pub(crate) chain: String,
    /// The rule.
    pub(crate) rule: Rule,
    /// Where it goes.
    pub(crate) at: Position,
}

/// Everything that one family of a container's mappings needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// IPv4 or IPv6.
    pub(crate) family: Family,
    /// The container's own chain.
    pub(crate) chain: String,
    /// Rules that all containers share, chain by chain.
    pub(crate) shared: Vec<Placed>,
    /// Rules of the container's own chain.
    pub(crate) own: Vec<Rule>,
    /// Rules of [`TOP`] that lead into it.
    pub(crate) entries: Vec<Rule>,
}

impl Layout {
    /// The layout for the mappings of `config` to `address`.
    pub(crate) fn new(config: &Config, owner: &Owner, address: IpNetwork) -> Self {
        let family = Family::of(address.ip());
        let mut shared = if config.snat { masquerade_marked(&config.marking) } else { Vec::new() };
        shared.extend(
            ["PREROUTING", "OUTPUT"]
                .map(|chain| placed(chain, vec![Match::DestinationLocal], Target::Jump(TOP.to_owned()))),
        );
        let mappings = config.mappings.iter().filter(|mapping| mapping.applies_to(family));
        Self {
            family,
            chain: owner.dnat_chain(),
            shared,
            own: mappings.flat_map(|mapping| forward(config, mapping, address)).collect(),
            entries: entries(config, owner, family),
        }
    }

    /// The changes that install it, in the reference's order.
    pub(crate) fn install(&self, batch: &mut Batch) {
        let mut changes = batch.xt(self.family, Table::Nat);
        for placed in &self.shared {
            // A chain appears before the first rule that is in it or leads to it.
            for chain in [Some(placed.chain.as_str()), placed.rule.target.jump()].into_iter().flatten() {
                if !BUILT_IN.contains(&chain) {
                    changes = changes.ensure_chain(chain);
                }
            }
            changes = changes.ensure_rule(&placed.chain, placed.rule.clone(), placed.at);
        }
        changes = changes.ensure_chain(&self.chain);
        for rule in &self.own {
            changes = changes.ensure_rule(&self.chain, rule.clone(), Position::Tail);
        }
        for rule in &self.entries {
            changes = changes.ensure_rule(TOP, rule.clone(), Position::Tail);
        }
    }

    /// Tells of a rule of the container's own chain whether it is about one of our ports and is not what we want for it: it
    /// would win, being first. A retried ADD with another address meets such.
    pub(crate) fn contradictions(&self) -> impl Fn(&Rule) -> bool {
        let family = self.family;
        let own: HashSet<Rule> = self.own.iter().map(|rule| rule.canonical(family)).collect();
        let about: HashSet<Subject> = self.own.iter().map(subject).collect();
        move |rule| about.contains(&subject(rule)) && !own.contains(&rule.canonical(family))
    }
}

/// The changes that remove everything of `owner` from one family.
pub(crate) fn remove(owner: &Owner, family: Family) -> Batch {
    remove_chain(&owner.dnat_chain(), &owner.xt_comment(), family)
}

/// The same where all that is in the container's chain is its own: whatever leads there is about nobody else, also from
/// chains that are not ours, whose rules stay and then lead nowhere.
pub(crate) fn remove_whole(owner: &Owner, family: Family) -> Batch {
    let chain = owner.dnat_chain();
    let mut batch = remove_entries_and_chain(TOP, RulesOf::JumpsTo(chain.clone()), &chain, family);
    batch.xt(family, Table::Nat).flush_chain(&chain);
    batch
}

/// The changes that remove of the container's own chain `rules`, and of `entries` those of `owner` that lead to it for no
/// port but theirs, where what else is in it is another attachment's.
pub(crate) fn remove_apart(
    owner: &Owner,
    family: Family,
    rules: &[RuleInfo],
    entries: &[RuleInfo],
    is_anothers: impl Fn(IpAddr) -> bool,
) -> Batch {
    let known = rules.iter().filter_map(RuleInfo::xt);
    let leads_elsewhere = |rule: &&Rule| leads_to(rule).is_some_and(&is_anothers);
    let kept: HashSet<Subject> = known.filter(leads_elsewhere).map(subject).collect();
    let kept_ports: HashSet<_> = kept.iter().filter_map(|(port, _)| *port).collect();
    let (chain, comment) = (owner.dnat_chain(), owner.xt_comment());
    let mut batch = Batch::new();
    let mut changes = batch.xt(family, Table::Nat);
    for info in rules {
        let goes = |rule: &Rule| {
            leads_to(rule).map_or_else(|| !kept.contains(&subject(rule)), |address| !is_anothers(address))
        };
        if info.xt().is_some_and(goes) {
            changes = changes.delete_found(&chain, info.id.clone());
        }
    }
    for info in entries {
        let is_own = info.jump() == Some(&chain) && info.comment() == Some(&comment);
        let serves_kept = |rule: &Rule| ports(rule).any(|port| kept_ports.contains(&port));
        if is_own && !info.xt().is_some_and(serves_kept) {
            changes = changes.delete_found(TOP, info.id.clone());
        }
    }
    batch
}

/// The container's address that a rule of its own chain leads to.
pub(crate) fn leads_to(rule: &Rule) -> Option<IpAddr> {
    if let Target::Dnat(to) = rule.target { Some(to.ip()) } else { None }
}

/// The ports that an entry leads on.
fn ports(rule: &Rule) -> impl Iterator<Item = (Protocol, u16)> + '_ {
    let ports = rule.matches.iter().filter_map(|condition| {
        if let Match::DestinationPorts { protocol, ports } = condition {
            Some((*protocol, ports))
        } else {
            None
        }
    });
    ports.flat_map(|(protocol, ports)| ports.iter().map(move |port| (protocol, *port)))
}

/// The changes that remove what versions of the reference before 0.8 left.
pub(crate) fn remove_old(owner: &Owner, family: Family) -> Batch {
    let chain = owner.old_snat_chain();
    remove_entries_and_chain("CNI-HOSTPORT-SNAT", RulesOf::JumpsTo(chain.clone()), &chain, family)
}

/// The changes that remove a container's chain and what leads to it with this comment. While others lead there, it is
/// somebody else's, too.
pub(crate) fn remove_chain(chain: &str, comment: &str, family: Family) -> Batch {
    let entries = RulesOf::JumpsToWith { chain: chain.to_owned(), comment: comment.to_owned() };
    remove_entries_and_chain(TOP, entries, chain, family)
}

fn remove_entries_and_chain(top: &str, entries: RulesOf, chain: &str, family: Family) -> Batch {
    let mut batch = Batch::new();
    batch.xt(family, Table::Nat).delete_rules_where(top, entries).delete_chain_if_unreferenced(chain);
    batch
}

/// Marks packets, and masquerades what is marked. The jump must be the first rule of POSTROUTING: the masquerade
/// chains of bridge and ptp end the traversal.
fn masquerade_marked(marking: &Marking) -> Vec<Placed> {
    let Marking::Bit(bit) = *marking else { return Vec::new() };
    vec![
        placed(
            SET_MARK,
            vec![Match::comment("CNI portfwd masquerade mark")],
            Target::SetMark { value: bit, mask: bit },
        ),
        placed(MASQUERADE, vec![Match::mark(bit, bit)], Target::Masquerade),
        Placed {
            chain: "POSTROUTING".to_owned(),
            rule: Rule::new(
                vec![Match::comment("CNI portfwd requiring masquerade")],
                Target::Jump(MASQUERADE.to_owned()),
            ),
            at: Position::Head,
        },
    ]
}

/// The rules of one mapping. Marks come first, since DNAT ends the traversal.
fn forward(config: &Config, mapping: &Mapping, address: IpNetwork) -> Vec<Rule> {
    let mut base = vec![Match::DestinationPort { protocol: mapping.protocol, port: mapping.host_port }];
    base.extend(mapping.destination().map(Match::destination));
    let with =
        |condition: Option<Match>, target| Rule::new(base.iter().cloned().chain(condition).collect(), target);
    let mut rules = Vec::new();
    if config.snat {
        let mark = || {
            Target::Jump(match &config.marking {
                Marking::Bit(_) => SET_MARK.to_owned(),
                Marking::Chain(chain) => chain.clone(),
            })
        };
        rules.extend(marked_sources(config, address).map(|source| with(Some(Match::source(source)), mark())));
    }
    rules.push(with(None, Target::Dnat(SocketAddr::new(address.ip(), mapping.container_port))));
    rules
}

/// From where packets to a mapping could not find back by themselves: the container's own subnet and the host's 127.0.0.1;
/// from everywhere where the user says so.
pub(crate) fn marked_sources(config: &Config, address: IpNetwork) -> impl Iterator<Item = Address> + use<> {
    let hairpin = if config.masq_all { everywhere(address.is_ipv4()) } else { address };
    let host = (address.is_ipv4() && !config.masq_all).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    std::iter::once(hairpin.into()).chain(host.map(Into::into))
}

/// One rule for up to 15 ports of a protocol. All mappings are in here, whatever the family of their hostIP, as in
/// the reference: the container's chain decides.
fn entries(config: &Config, owner: &Owner, family: Family) -> Vec<Rule> {
    let mut groups: Vec<(&str, Protocol, Vec<u16>)> = Vec::new();
    for mapping in &config.mappings {
        match groups.iter_mut().find(|(text, ..)| *text == mapping.protocol_text) {
            Some((.., ports)) => ports.push(mapping.host_port),
            None => groups.push((&mapping.protocol_text, mapping.protocol, vec![mapping.host_port])),
        }
    }
    groups.sort_by_key(|(text, ..)| *text);
    let conditions = Match::conditions(config.conditions(family));
    let rule = |protocol: Protocol, ports: &[u16]| {
        let mut matches = vec![
            Match::comment(owner.xt_comment()),
            Match::DestinationPorts { protocol, ports: ports.to_vec() },
        ];
        matches.extend(conditions.iter().cloned());
        Rule::new(matches, Target::Jump(owner.dnat_chain()))
    };
    groups
        .iter()
        .flat_map(|(_, protocol, ports)| ports.chunks(MULTIPORT_LIMIT).map(|ports| rule(*protocol, ports)))
        .collect()
}

/// A port and the host's address.
pub(crate) type Subject = (Option<(Protocol, u16)>, Option<IpNetwork>);

/// What a rule of a container's chain is about, without its source.
pub(crate) fn subject(rule: &Rule) -> Subject {
    let mut subject = (None, None);
    for condition in &rule.matches {
        if let Match::DestinationPort { protocol, port } = condition {
            subject.0 = Some((*protocol, *port));
        }
        if let Match::Destination { address, negated: false } = condition {
            subject.1 = Some(match address {
                Address::Host(ip) => IpNetwork::from(*ip),
                Address::Net(net) => *net,
            });
        }
    }
    subject
}

fn placed(chain: &str, matches: Vec<Match>, target: Target) -> Placed {
    Placed { chain: chain.to_owned(), rule: Rule::new(matches, target), at: Position::Tail }
}

/// The chain through which packets to local addresses go.
pub(crate) const TOP: &str = "CNI-HOSTPORT-DNAT";
const SET_MARK: &str = "CNI-HOSTPORT-SETMARK";
const MASQUERADE: &str = "CNI-HOSTPORT-MASQ";
const BUILT_IN: [&str; 3] = ["PREROUTING", "OUTPUT", "POSTROUTING"];
/// `XT_MULTI_PORTS` of the kernel's `xt_multiport.h`.
const MULTIPORT_LIMIT: usize = 15;

#[cfg(test)]
mod tests;
