// SPDX-License-Identifier: Apache-2.0
//! CHECK: compares what the plan says with what is there. It creates nothing.

use cnibox_netfilter::xt::{Rule, Table};
use cnibox_netfilter::{RuleInfo, TableRef};
use cnibox_spec::list;
use cnibox_sys::{Failure, Sys};

use crate::FirewallError;
use crate::plan::{Desired, FORWARD_CHAIN, Placed};

/// Everything of the plan is there.
///
/// # Errors
/// The first thing that is not, in the reference's order and words.
pub(crate) fn present(desired: &[Desired], sys: &mut Sys<'_>) -> Result<(), Failure> {
    for family in desired {
        let mut chains = Chains { family, sys, read: Vec::new() };
        chains.expect_placed(&family.jumps)?;
        for rule in &family.addresses {
            if !chains.has(FORWARD_CHAIN, rule)? {
                return Err(FirewallError::NoRule(list(rule.to_args())).into());
            }
        }
        chains.expect_placed(&family.policy)?;
    }
    Ok(())
}

/// The chains of one family, each read once.
struct Chains<'d, 's, 'h> {
    family: &'d Desired,
    sys: &'s mut Sys<'h>,
    read: Vec<(&'static str, Vec<RuleInfo>)>,
}

impl Chains<'_, '_, '_> {
    fn expect_placed(&mut self, rules: &[Placed]) -> Result<(), Failure> {
        for Placed { chain, rule, .. } in rules {
            if !self.has(chain, rule)? {
                return Err(FirewallError::NoChainRule { chain, rule: list(rule.to_args()) }.into());
            }
        }
        Ok(())
    }

    fn has(&mut self, chain: &'static str, rule: &Rule) -> Result<bool, Failure> {
        if !self.read.iter().any(|(known, _)| *known == chain) {
            let table = TableRef::Xt(self.family.family, Table::Filter);
            let engine = self.sys.engine().map_err(FirewallError::of)?;
            self.read.push((chain, engine.rules(&table, chain).map_err(FirewallError::of)?));
        }
        let rules = self.read.iter().filter(|(known, _)| *known == chain).flat_map(|(_, rules)| rules);
        Ok(rules.filter_map(|info| info.xt.as_ref()).any(|xt| xt.is_same(rule)))
    }
}
