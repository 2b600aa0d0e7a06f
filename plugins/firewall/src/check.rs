// SPDX-License-Identifier: Apache-2.0
//! CHECK: compares what the plan says with what is there. It creates nothing.

use std::slice::from_ref;

use cnibox_netfilter::xt::{Rule, Table};
use cnibox_spec::list;
use cnibox_sys::{Failure, Sys};

use crate::apply::is_native;
use crate::config::Backend;
use crate::error::FirewallError;
use crate::native;
use crate::plan::{Desired, FORWARD_CHAIN, Placed};

/// Everything of the plan is there.
///
/// # Errors
/// The first thing that is not, in the reference's order and words.
pub(crate) fn present(backend: Backend, desired: &[Desired], sys: &mut Sys<'_>) -> Result<(), Failure> {
    let (asked, other): (Form, Form) =
        if is_native(backend, desired, sys)? { (natively, in_iptables) } else { (in_iptables, natively) };
    // What the kernel can hold may have changed since ADD: either will do.
    asked(desired, sys).or_else(|missing| match backend {
        Backend::Nftables => Err(missing),
        Backend::Iptables | Backend::Firewalld => other(desired, sys).map_err(|_| missing),
    })
}

type Form = fn(&[Desired], &mut Sys<'_>) -> Result<(), Failure>;

fn natively(desired: &[Desired], sys: &mut Sys<'_>) -> Result<(), Failure> {
    match native::missing(desired, sys)? {
        Some(step) => Err(FirewallError::NoNativeRule(step.to_string()).into()),
        None => Ok(()),
    }
}

fn in_iptables(desired: &[Desired], sys: &mut Sys<'_>) -> Result<(), Failure> {
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
