// SPDX-License-Identifier: Apache-2.0
//! Records of attachments that somebody has detached who knows no ledger, such as the Go plugins: nobody else would ever
//! remove them.
//!
//! Invariant: a record goes only when its attachment is dead and nothing is left that the record helps to take down. A
//! container that has died and waits for its DEL has its rules still, and keeps its record.

use std::collections::BTreeMap;

use cnibox_netfilter::{Error, RuleId, TableRef};

use super::life::Presence;
use crate::call::Sys;
use crate::ledger::{Ledger, Part, Progress, Record};

impl Sys<'_> {
    /// Looks at the few records that lie beside the one of this call's attachment.
    pub(super) fn sweep_beside(&mut self) {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.part == Part::Maker) else { return };
        let beside = Ledger::of_host().beside(&turn.attachment.clone());
        self.sweep(beside);
    }

    /// Removes those of the records whose attachments are detached.
    pub(super) fn sweep(&mut self, records: Vec<Record>) {
        let ledger = Ledger::of_host();
        for record in records.iter().filter(|record| record.progress == Progress::Finished) {
            let Some(leaves_rules) = leaves_rules(record).filter(|_| !ledger.is_held(&record.attachment))
            else {
                continue;
            };
            if matches!(self.presence(record), Ok(Presence::Gone))
                && (!leaves_rules || self.rules_are_gone(record).unwrap_or(false))
            {
                ledger.drop_record(record);
            }
        }
    }

    /// Whether one of the chains that were made for the rules is gone, and the rules are in no other.
    fn rules_are_gone(&mut self, record: &Record) -> Result<bool, Error> {
        let engine = self.engine()?;
        // The tool's rules have no handles, and asking for them starts it.
        if engine.uses_tool() {
            return Ok(false);
        }
        let mut chains: BTreeMap<(&str, &str), Vec<RuleId>> = BTreeMap::new();
        for hint in record.shares.values().flat_map(|share| &share.hints) {
            let Some((table, handle, chain)) = read_hint(hint) else { return Ok(false) };
            chains.entry((table, chain)).or_default().push(RuleId::Handle(handle));
        }
        let mut there = Vec::new();
        let count = chains.len();
        for ((table, chain), handles) in chains {
            let table: TableRef = table.parse()?;
            if engine.chain_exists(&table, chain)? {
                there.push((table, chain, handles));
            }
        }
        // Chains that others use are long: they are listed where all points to a DEL.
        if there.len() == count {
            return Ok(false);
        }
        for (table, chain, handles) in there {
            if engine.rules(&table, chain)?.iter().any(|rule| handles.contains(&rule.id)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether an attachment that has died leaves rules until it is detached; `None` where it may leave what cannot be looked
/// for: an address may be reserved still, and what a note is about only its plugin knows.
fn leaves_rules(record: &Record) -> Option<bool> {
    let mut shares = record.shares.values();
    if shares.clone().any(|share| !share.hints.is_empty()) {
        return shares.all(|share| share.notes.is_empty() || !share.hints.is_empty()).then_some(true);
    }
    (record.addresses.is_empty() && shares.all(|share| share.notes.is_empty())).then_some(false)
}

/// Table, handle and chain of a line such as `ip nat 17 POSTROUTING`.
fn read_hint(line: &str) -> Option<(&str, u64, &str)> {
    let family = line.find(' ')?;
    let table = family + 1 + line[family + 1..].find(' ')?;
    let (handle, chain) = line[table + 1..].split_once(' ')?;
    Some((&line[..table], handle.parse().ok()?, chain))
}
