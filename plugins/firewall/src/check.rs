// SPDX-License-Identifier: Apache-2.0
//! CHECK: compares what the plan says with what is there. It creates nothing.

use std::slice::from_ref;

use cnibox_netfilter::xt::Table;
use cnibox_spec::list;
use cnibox_sys::Sys;

use crate::apply::is_native;
use crate::config::Backend;
use crate::error::FirewallError;
use crate::native;
use crate::plan::{Desired, FORWARD_CHAIN, Placed};

/// Everything of the plan is there.
///
/// # Errors
/// The first thing that is not, in the reference's order and words.
pub(crate) fn present(backend: Backend, desired: &[Desired], sys: &mut Sys<'_>) -> Result<(), FirewallError> {
    let (asked, other): (Form, Form) =
        if is_native(backend, desired, sys)? { (natively, in_iptables) } else { (in_iptables, natively) };
    // What the kernel can hold may have changed since ADD: either will do.
    asked(desired, sys).or_else(|missing| match backend {
        Backend::Nftables => Err(missing),
        Backend::Iptables | Backend::Firewalld => other(desired, sys).map_err(|_| missing),
    })
}

type Form = fn(&[Desired], &mut Sys<'_>) -> Result<(), FirewallError>;

fn natively(desired: &[Desired], sys: &mut Sys<'_>) -> Result<(), FirewallError> {
    match native::missing(desired, sys)? {
        Some(step) => Err(FirewallError::NoNativeRule(step.to_string())),
        None => Ok(()),
    }
}

fn in_iptables(desired: &[Desired], sys: &mut Sys<'_>) -> Result<(), FirewallError> {
    for family in desired {
        placed(family, &family.jumps, sys)?;
        let missing =
            sys.engine()?.missing(family.family, Table::Filter, FORWARD_CHAIN, &family.addresses)?;
        if let Some(rule) = missing.first() {
            return Err(FirewallError::NoRule(list(rule.to_args())));
        }
        placed(family, &family.policy, sys)?;
    }
    Ok(())
}

fn placed(family: &Desired, rules: &[Placed], sys: &mut Sys<'_>) -> Result<(), FirewallError> {
    for Placed { chain, rule, .. } in rules {
        let missing = sys.engine()?.missing(family.family, Table::Filter, chain, from_ref(rule))?;
        if !missing.is_empty() {
            return Err(FirewallError::NoChainRule { chain, rule: list(rule.to_args()) });
        }
    }
    Ok(())
}
