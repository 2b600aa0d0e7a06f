// SPDX-License-Identifier: Apache-2.0
//! CHECK: compares what the plan says with what is there. It changes nothing.

use cnibox_netfilter::xt::{Rule, Table};
use cnibox_netfilter::{Engine, Family, RuleInfo, TableRef};
use cnibox_spec::list;
use cnibox_sys::{Failure, Sys};

use crate::owner::Owner;
use crate::plan::{Desired, Rules};
use crate::{detach, iptables, nftables};

/// Everything of the plan is there.
pub(crate) fn present(desired: &Desired, sys: &mut Sys<'_>) -> Result<(), Failure> {
    match &desired.rules {
        Rules::Iptables(layouts) => {
            for layout in layouts {
                let engine = sys.engine()?;
                let family = detach::name(layout.family);
                // What the packet filter does not answer is drift, too.
                compare(layout, engine).map_err(|drift| {
                    let drift = &drift.object().msg;
                    Failure::internal(format!("could not check {family} dnat: {drift}"))
                })?;
            }
        }
        Rules::Nftables(layouts) => {
            for layout in layouts {
                compare_native(layout, &desired.owner, sys)?;
            }
        }
    }
    Ok(())
}

fn compare(layout: &iptables::Layout, engine: &mut Engine) -> Result<(), Failure> {
    let table = TableRef::Xt(layout.family, Table::Nat);
    if !engine.chain_exists(&table, &layout.chain)? {
        let text = format!("chain {} not found in iptables table nat", layout.chain);
        return Err(Failure::internal(text));
    }
    let words = |rules: &[Rule]| list(rules.iter().map(|rule| list(rule.to_args())));
    check_rules(layout, engine, (&layout.chain, &layout.own), words)?;
    check_rules(layout, engine, (iptables::TOP, &layout.entries), |rules| {
        list(rules.iter().map(conditions))
    })?;
    for placed in &layout.shared {
        check_rules(layout, engine, (&placed.chain, std::slice::from_ref(&placed.rule)), words)?;
    }
    Ok(())
}

/// One rule's words without its target, which the reference does not print for entry rules.
fn conditions(rule: &Rule) -> String {
    let words = rule.to_args();
    let end = words.iter().rposition(|word| word == "-j").unwrap_or(words.len());
    list(words.iter().take(end))
}

/// All of `rules` are in the chain; otherwise `text` says which should be.
fn check_rules(
    layout: &iptables::Layout,
    engine: &mut Engine,
    (chain, rules): (&str, &[Rule]),
    text: impl Fn(&[Rule]) -> String,
) -> Result<(), Failure> {
    if engine.missing(layout.family, Table::Nat, chain, rules)?.is_empty() {
        return Ok(());
    }
    let text = format!("rule {} in chain {chain} not found in table nat", text(rules));
    Err(Failure::internal(text))
}

/// As many rules with the container's comment as there are mappings, as in the reference, and the way to them.
fn compare_native(layout: &nftables::Layout, owner: &Owner, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let missing = |chain: &str| Err(Failure::internal(format!("missing hostport rules in {chain:?} chain")));
    let comment = owner.nft_comment();
    let own = |rule: &&RuleInfo| rule.comment() == Some(&comment);
    let mut ports = read(layout.family, nftables::PORTS, sys)?;
    // An older version's mappings with a hostIP.
    ports.extend(read(layout.family, nftables::OLD_PORTS, sys)?);
    if ports.iter().filter(own).count() < layout.ports.len() {
        return missing(nftables::PORTS);
    }
    let masquerade = layout.masquerade.as_ref().map_or(0, Vec::len);
    if masquerade > 0 || layout.marked.is_some() {
        let found = read(layout.family, nftables::MASQUERADE, sys)?;
        let is_marked = |rule: &RuleInfo| rule.nft() == layout.marked.as_ref();
        if found.iter().filter(own).count() < masquerade
            || !(layout.marked.is_none() || found.iter().any(is_marked))
        {
            return missing(nftables::MASQUERADE);
        }
    }
    if layout.ports.is_empty() {
        return Ok(());
    }
    let entrances = nftables::ENTRANCES.map(|(chain, _)| (chain, nftables::ALL_PORTS));
    for (chain, to) in entrances.into_iter().chain([(nftables::ALL_PORTS, nftables::PORTS)]) {
        if !read(layout.family, chain, sys)?.iter().any(|rule| rule.jump() == Some(to)) {
            return missing(chain);
        }
    }
    Ok(())
}

fn read(family: Family, chain: &str, sys: &mut Sys<'_>) -> Result<Vec<RuleInfo>, Failure> {
    Ok(sys.engine()?.rules(&nftables::table_ref(family), chain)?)
}
