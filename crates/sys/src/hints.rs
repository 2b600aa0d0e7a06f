// SPDX-License-Identifier: Apache-2.0
//! Where ADD put an attachment's packet filter rules, so that CHECK and DEL find them without a listing of everybody
//! else's: on a full node that costs more than all the rest.

use cnibox_netfilter::Hint;
use cnibox_spec::{Attachment, NetworkName};

use crate::{Memo, Memory, Sys, unfinished};

/// The hints of one attachment.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    memory: Memory,
    /// What the plugin itself notes.
    own: Memory,
    attachment: Memo,
}

impl Hints {
    /// What an earlier call noted. Lines that say nothing are left out.
    pub(crate) fn recall(&self) -> Vec<Hint> {
        let memo = self.memory.recall(&self.attachment);
        memo.iter().flat_map(|memo| &memo.notes).filter_map(|note| note.parse().ok()).collect()
    }
}

fn memory(plugin: &str) -> Memory {
    Memory::of(&format!("{plugin}-rules"))
}

impl Sys<'_> {
    /// This call is about an attachment of `plugin`. To be called before the packet filter is used.
    pub fn concerns(&mut self, plugin: &str, attachment: Memo) {
        self.hints = Some(Hints { memory: memory(plugin), own: Memory::of(plugin), attachment });
    }

    /// ADD has succeeded: notes where rules went, besides what an earlier ADD noted. Stale hints lead to nothing.
    pub fn hints_noted(&self) {
        let (Some(Hints { memory, attachment, .. }), Some(engine)) = (&self.hints, &self.engine) else {
            return;
        };
        if engine.added().is_empty() {
            return;
        }
        let mut notes: Vec<_> = engine.added().iter().map(Hint::to_string).collect();
        notes.extend(memory.recall(attachment).map(|memo| memo.notes).unwrap_or_default());
        notes.truncate(LIMIT);
        memory.note(&Memo { notes, ..attachment.clone() });
    }

    /// DEL has succeeded: nothing is left to be found, nor of notes that a killed ADD had no time to write.
    pub fn hints_forgotten(&self) {
        if let Some(Hints { memory, own, attachment }) = &self.hints {
            memory.forget(attachment);
            own.tidy_after(attachment);
        }
    }

    /// GC has succeeded: nothing is left of attachments of the network that are not among `valid`.
    pub fn hints_collected(&self, plugin: &str, network: &NetworkName, valid: &[Attachment]) {
        let memory = memory(plugin);
        memory.stale(network, valid).for_each(|memo| memory.forget(&memo));
        [memory, Memory::of(plugin), unfinished::memory()].iter().for_each(Memory::tidy);
    }
}

/// How many are kept. ADDs that are repeated without DEL add to them; of many, older ones are stale.
const LIMIT: usize = 64;
