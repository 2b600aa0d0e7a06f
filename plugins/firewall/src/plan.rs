// SPDX-License-Identifier: Apache-2.0
//! The rules of the `filter` tables, as data (reference: `iptables.go`, `ingresspolicy.go`).
//!
//! Rules of an address carry neither comment nor key: attachments with the same address share them.

use std::net::IpAddr;

use cnibox_netfilter::xt::{CtState, Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Family, Position};
use cnibox_spec::{CniResult, IfName};
use ipnetwork::IpNetwork;

use crate::config::{Config, ConfigError, IngressPolicy};

/// What one family needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    /// IPv4 or IPv6.
    pub(crate) family: Family,
    /// Rules that lead to the chains of addresses and overrides.
    pub(crate) jumps: Vec<Placed>,
    /// Rules of the container's addresses, all in [`FORWARD_CHAIN`].
    pub(crate) addresses: Vec<Rule>,
    /// Rules of the ingress policy.
    pub(crate) policy: Vec<Placed>,
}

/// A rule and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The chain.
    pub(crate) chain: &'static str,
    /// Where it goes when it is missing.
    pub(crate) at: Position,
    /// The rule.
    pub(crate) rule: Rule,
}

/// What the addresses of prevResult need, IPv4 first; all of them, whatever interface they are on.
///
/// # Errors
/// The policy is about a bridge and prevResult names none.
pub(crate) fn desired(config: &Config, result: &CniResult) -> Result<Vec<Desired>, ConfigError> {
    let bridge = bridge(config.policy, result)?;
    let addresses: Vec<IpAddr> = result.ips.iter().map(|ip| ip.address.ip()).collect();
    let families = [Family::Ipv4, Family::Ipv6].into_iter();
    let of = |family: Family| addresses.iter().copied().filter(move |ip| Family::of(*ip) == family);
    Ok(families
        .filter(|family| of(*family).next().is_some())
        .map(|family| Desired {
            family,
            jumps: jumps(&config.admin_chain),
            addresses: of(family).flat_map(address_rules).collect(),
            policy: bridge.map_or_else(Vec::new, |bridge| isolation(config.policy, bridge)),
        })
        .collect())
}

/// What is left to the packet filter where another backend has the addresses.
pub(crate) fn policy_only(desired: Vec<Desired>) -> Vec<Desired> {
    let policies = desired.into_iter().filter(|family| !family.policy.is_empty());
    policies.map(|family| Desired { jumps: Vec::new(), addresses: Vec::new(), ..family }).collect()
}

impl Desired {
    /// The changes that make it true, in the reference's order: isolation ends up above everything else.
    pub(crate) fn install(&self, batch: &mut Batch) {
        self.install_accepts(batch);
        self.place(&self.policy, batch);
    }

    /// The same without the ingress policy.
    pub(crate) fn install_accepts(&self, batch: &mut Batch) {
        self.place(&self.jumps, batch);
        let mut changes = batch.xt(self.family, Table::Filter);
        for rule in &self.addresses {
            changes = changes.ensure_rule(FORWARD_CHAIN, rule.clone(), Position::Tail);
        }
    }

    /// Rules after the chains that they lead to.
    fn place(&self, rules: &[Placed], batch: &mut Batch) {
        let mut changes = batch.xt(self.family, Table::Filter);
        for chain in rules.iter().filter_map(|placed| placed.rule.target.jump()) {
            changes = changes.ensure_chain(chain);
        }
        for placed in rules {
            changes = changes.ensure_rule(placed.chain, placed.rule.clone(), placed.at);
        }
    }
}

/// The changes that make all of it true.
pub(crate) fn install(desired: &[Desired]) -> Batch {
    let mut batch = Batch::new();
    desired.iter().for_each(|family| family.install(&mut batch));
    batch
}

/// The changes that remove the rules of these addresses.
pub(crate) fn remove(addresses: impl IntoIterator<Item = IpAddr>) -> Batch {
    let mut batch = Batch::new();
    for ip in addresses {
        for rule in address_rules(ip) {
            batch.xt(Family::of(ip), Table::Filter).delete_rule(FORWARD_CHAIN, rule);
        }
    }
    batch
}

/// Answers to the container, and everything from it.
fn address_rules(ip: IpAddr) -> [Rule; 2] {
    let host = IpNetwork::from(ip);
    [
        Rule::new(
            vec![Match::destination(host), Match::ConntrackState(CtState::RELATED_ESTABLISHED)],
            Target::Accept,
        ),
        Rule::new(vec![Match::source(host)], Target::Accept),
    ]
}

fn jumps(admin_chain: &str) -> Vec<Placed> {
    let jump = |chain, comment: &str, to: &str| Placed {
        chain,
        at: Position::Head,
        rule: Rule::new(vec![Match::comment(comment)], Target::Jump(to.to_owned())),
    };
    vec![
        jump("FORWARD", "CNI firewall plugin rules", FORWARD_CHAIN),
        jump(FORWARD_CHAIN, "CNI firewall plugin admin overrides", admin_chain),
    ]
}

/// The bridge that a policy is about: the first interface, as in the reference.
fn bridge(policy: IngressPolicy, result: &CniResult) -> Result<Option<&str>, ConfigError> {
    if policy == IngressPolicy::Open {
        return Ok(None);
    }
    let first = result.interfaces.first().ok_or(ConfigError::NoInterface(policy))?;
    match first.name.as_str() {
        "" => Err(ConfigError::NoBridgeName),
        name if IfName::new(name).is_ok() => Ok(Some(name)),
        name => Err(ConfigError::BridgeName(name.to_owned())),
    }
}

/// Packets that leave a bridge pass stage 1 to stage 2, where those that enter another such bridge are dropped.
fn isolation(policy: IngressPolicy, bridge: &str) -> Vec<Placed> {
    let own = format!("CNI firewall plugin rules (ingressPolicy: {})", policy.name());
    let placed = |chain, at, mut matches: Vec<Match>, (comment, target): (&str, Target)| {
        matches.push(Match::comment(comment));
        Placed { chain, at, rule: Rule::new(matches, target) }
    };
    let inward = || Match::in_interface(bridge);
    let mut rules = vec![
        placed("FORWARD", Position::Head, vec![], (SHARED_COMMENT, Target::Jump(STAGE_1.to_owned()))),
        placed(
            STAGE_1,
            Position::Head,
            vec![inward(), Match::not_out_interface(bridge)],
            (&own, Target::Jump(STAGE_2.to_owned())),
        ),
    ];
    if policy == IngressPolicy::Isolated {
        let within = vec![inward(), Match::out_interface(bridge)];
        rules.push(placed(STAGE_1, Position::Head, within, (&own, Target::Drop)));
    }
    rules.extend([
        placed(STAGE_1, Position::Tail, vec![], (SHARED_COMMENT, Target::Return)),
        placed(STAGE_2, Position::Head, vec![Match::out_interface(bridge)], (SHARED_COMMENT, Target::Drop)),
        placed(STAGE_2, Position::Tail, vec![], (SHARED_COMMENT, Target::Return)),
    ]);
    rules
}

/// The chain of all addresses.
pub(crate) const FORWARD_CHAIN: &str = "CNI-FORWARD";
const STAGE_1: &str = "CNI-ISOLATION-STAGE-1";
const STAGE_2: &str = "CNI-ISOLATION-STAGE-2";
const SHARED_COMMENT: &str = "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)";

#[cfg(test)]
mod tests;
