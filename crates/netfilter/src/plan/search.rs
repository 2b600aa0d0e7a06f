// SPDX-License-Identifier: Apache-2.0
//! Whether a chain has rules, by reading no further than needed.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Reader;
use super::rule::RuleInfo;
use crate::error::Result;
use crate::rule::{AnyRule, RuleId, TableRef, Wanted};

/// For each of the wanted rules whether the chain has it. Rules with the `hints` are looked at first.
pub(crate) fn search(
    reader: &mut dyn Reader,
    table: &TableRef,
    chain: &str,
    wanted: &[Arc<Wanted>],
    hints: &[RuleId],
) -> Result<Vec<bool>> {
    // Those that have not been found yet.
    let mut open: HashSet<&AnyRule> = wanted.iter().filter_map(|wanted| wanted.canon()).collect();
    for id in hints {
        if let Some(listed) = reader.rule(table, chain, id)? {
            close(&mut open, &listed);
        }
    }
    if !open.is_empty() {
        reader.scan(table, chain, &mut |listed| {
            close(&mut open, &listed);
            if open.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    let found = wanted.iter().map(|wanted| match wanted.canon() {
        Some(canon) => Ok(!open.contains(canon)),
        None => is_among(reader, table, chain, wanted),
    });
    found.collect()
}

fn close(open: &mut HashSet<&AnyRule>, listed: &RuleInfo) {
    if let Some(canon) = listed.canon() {
        open.remove(&**canon);
    }
}

/// A rule without canonical form is compared by the tool, if there is anything to compare it with.
fn is_among(reader: &mut dyn Reader, table: &TableRef, chain: &str, wanted: &Wanted) -> Result<bool> {
    let mut candidate = false;
    reader.scan(table, chain, &mut |listed| {
        candidate = listed.may_be(wanted);
        if candidate { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(candidate && reader.holds(table, chain, wanted)?)
}
