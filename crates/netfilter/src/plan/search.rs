// SPDX-License-Identifier: Apache-2.0
//! Whether a chain has rules, by reading no further than needed.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use super::Reader;
use super::rule::{Canon, Listed, Wanted};
use crate::batch::{RuleId, TableRef};
use crate::error::Result;

/// For each of the wanted rules whether the chain has it. Rules with the `hints` are looked at first.
pub(crate) fn search(
    reader: &mut dyn Reader,
    table: &TableRef,
    chain: &str,
    wanted: &[Rc<Wanted>],
    hints: &[RuleId],
) -> Result<Vec<bool>> {
    let mut open = Open::new(wanted);
    for id in hints {
        if let Some(listed) = reader.rule(table, chain, id)? {
            open.close(&listed);
        }
    }
    if !open.by_canon.is_empty() {
        reader.scan(table, chain, &mut |listed| {
            open.close(&listed);
            if open.by_canon.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    let mut found = open.found;
    for (wanted, found) in wanted.iter().zip(&mut found).filter(|(wanted, _)| wanted.canon().is_none()) {
        *found = is_among(reader, table, chain, wanted)?;
    }
    Ok(found)
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

/// Wanted rules that have not been found yet.
struct Open<'w> {
    by_canon: HashMap<&'w Canon, Vec<usize>>,
    found: Vec<bool>,
}

impl<'w> Open<'w> {
    fn new(wanted: &'w [Rc<Wanted>]) -> Self {
        let mut by_canon: HashMap<_, Vec<usize>> = HashMap::new();
        for (at, wanted) in wanted.iter().enumerate() {
            if let Some(canon) = wanted.canon() {
                by_canon.entry(canon).or_default().push(at);
            }
        }
        Self { by_canon, found: vec![false; wanted.len()] }
    }

    fn close(&mut self, listed: &Listed) {
        let known = listed.canon().and_then(|canon| self.by_canon.remove(&**canon));
        for at in known.into_iter().flatten() {
            if let Some(found) = self.found.get_mut(at) {
                *found = true;
            }
        }
    }
}
