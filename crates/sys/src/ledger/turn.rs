// SPDX-License-Identifier: Apache-2.0
//! A plugin's turn at its attachment's record: what it finds there, and what it may write.
//!
//! Invariant: nothing is changed in the record of an attachment that lives but what the plugin itself has noted in it.

use std::fs::File;
use std::net::IpAddr;

use cnibox_netfilter::Hint;
use cnibox_spec::{Attachment, NetnsPath};

use super::book::Ledger;
use super::record::{Progress, Record};

/// A plugin's call about one attachment.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) plugin: &'static str,
    /// The record as it was found.
    pub(crate) before: Option<Record>,
    /// The record as it is to be.
    pub(crate) record: Record,
    /// The record is locked while the ADD of this call runs.
    hold: Option<File>,
    /// What this call is to the record.
    pub(crate) part: Part,
    /// What a dead attempt has left, until somebody has taken it over.
    pub(crate) remains: Option<Remains>,
    /// Whether DEL is about another interface of the same names than the record.
    pub(crate) is_elsewhere: bool,
    /// Whether something could not be taken back.
    pub(crate) left_something: bool,
}

/// What a call is to its attachment's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It leaves all but the plugin's notes as they are.
    Reader,
    /// It makes the interface: the record is about its attempt.
    Maker,
    /// It must leave the record as it is: it would make the interface of an attachment that lives, or cannot read what
    /// is there.
    Refused,
    /// It is the first ADD of a plugin further down the chain.
    Follower,
}

impl Turn {
    pub(crate) fn of(plugin: &'static str, attachment: &Attachment) -> Self {
        let read = Ledger::of_host().read_or_fail(attachment);
        // What is there and cannot be read stays as it is.
        let part = if read.is_ok() { Part::Reader } else { Part::Refused };
        let before = read.ok().flatten();
        let record = before.clone().unwrap_or_else(|| Record::new(attachment.clone()));
        Self {
            plugin,
            before,
            record,
            hold: None,
            part,
            remains: None,
            is_elsewhere: false,
            left_something: false,
        }
    }

    /// Where an earlier call put the plugin's rules. Lines that say nothing are left out.
    pub(crate) fn hints(&self) -> impl Iterator<Item = Hint> + '_ {
        let lines = self.record.shares.get(self.plugin).into_iter().flat_map(|share| &share.hints);
        lines.filter_map(|line| line.parse().ok())
    }

    /// Puts the record into the ledger.
    pub(crate) fn write(&mut self) {
        if self.part == Part::Refused {
            return;
        }
        if let Some(file) = Ledger::of_host().write(&self.record) {
            self.hold = (self.record.progress == Progress::Begun).then_some(file);
        }
    }

    /// Puts the record into the ledger, or removes it if it says nothing.
    pub(crate) fn settle(&mut self) {
        if self.part == Part::Refused || !self.record.is_empty() {
            return self.write();
        }
        Ledger::of_host().forget(&self.record.attachment);
        self.hold = None;
    }
}

/// What a dead attempt has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// The namespace in which its interface still is; `None` when no namespace is known to have it.
    pub netns: Option<NetnsPath>,
    /// The addresses that were given to it; `None` when it may have got any, and no time to say so.
    pub addresses: Option<Vec<IpAddr>>,
}
