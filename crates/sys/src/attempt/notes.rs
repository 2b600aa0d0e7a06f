// SPDX-License-Identifier: Apache-2.0
//! What a plugin notes of its attachment, as a step that is taken back like any other.

use cnibox_spec::Attachment;

use crate::call::{Failure, Sys, Txn, UndoStep};
use crate::ledger::Turn;

/// Puts the plugin's notes back as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Notes(Option<Vec<String>>);

impl UndoStep for Notes {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.notes_set(self.0.clone());
        Ok(())
    }
}

impl Txn<'_, '_> {
    /// Notes these lines in place of what the plugin has noted of the attachment. Where no note can be kept, nobody
    /// minds.
    ///
    /// # Errors
    /// None but a test's.
    pub fn note(&mut self, notes: Vec<String>) -> Result<(), Failure> {
        let turn = self.sys().turn.as_ref();
        let share = turn.and_then(|turn| turn.record.shares.get(turn.plugin));
        let before = Notes(share.map(|share| share.notes.clone()));
        self.risky_step(before, |sys| {
            sys.notes_set(Some(notes));
            Ok::<_, Failure>(())
        })
    }
}

impl Sys<'_> {
    /// This call is about an attachment of `plugin`. To be called before anything else is asked of the system.
    pub fn turn_begins(&mut self, plugin: &'static str, attachment: &Attachment) {
        self.turn = Some(Turn::of(plugin, attachment));
    }

    /// What the plugin has noted of the attachment.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.turn.as_ref().map(|turn| turn.record.notes(turn.plugin)).unwrap_or_default()
    }

    /// Whether the plugin's ADD succeeded for this attachment, as far as that is noted.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        let share = self.turn.as_ref().and_then(|turn| turn.record.shares.get(turn.plugin));
        share.is_some_and(|share| share.finished)
    }

    /// What the plugin has noted is kept for another DEL or GC, although this one succeeds.
    pub fn notes_kept(&mut self) {
        self.keeps_notes = true;
    }

    fn notes_set(&mut self, notes: Option<Vec<String>>) {
        let Some(turn) = &mut self.turn else { return };
        match notes {
            Some(notes) => turn.record.share(turn.plugin).notes = notes,
            None => drop(turn.record.shares.remove(turn.plugin)),
        }
        turn.settle();
    }
}
