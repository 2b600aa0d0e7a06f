// SPDX-License-Identifier: Apache-2.0
//! CHECK: compares what the plan says with what is there. It creates nothing.

use std::slice::from_ref;

use cnibox_netfilter::xt::{Rule, Table};
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
        placed(family, &family.jumps, sys)?;
        if let Some(rule) = missing(family, FORWARD_CHAIN, &family.addresses, sys)? {
            return Err(FirewallError::NoRule(list(rule.to_args())).into());
        }
        placed(family, &family.policy, sys)?;
    }
    Ok(())
}

fn placed(family: &Desired, rules: &[Placed], sys: &mut Sys<'_>) -> Result<(), Failure> {
    for Placed { chain, rule, .. } in rules {
        if missing(family, chain, from_ref(rule), sys)?.is_some() {
            return Err(FirewallError::NoChainRule { chain, rule: list(rule.to_args()) }.into());
        }
    }
    Ok(())
}

/// The first of `rules` that is not in the chain.
fn missing<'r>(
    family: &Desired,
    chain: &str,
    rules: &'r [Rule],
    sys: &mut Sys<'_>,
) -> Result<Option<&'r Rule>, Failure> {
    let engine = sys.engine().map_err(FirewallError::of)?;
    let missing = engine.missing(family.family, Table::Filter, chain, rules).map_err(FirewallError::of)?;
    Ok(missing.first().copied())
}
