// SPDX-License-Identifier: Apache-2.0
//! What is remembered of an attachment where the kernel has no place for it: the host link that is being made and has
//! no alias yet, and that there are rules against forged MACs, which say nothing of their network.

use std::cell::Cell;

use cnibox_harness::Plugin;
use cnibox_netlink::Link;
use cnibox_spec::{Attachment, ContainerId, IfName, NetworkName};
use cnibox_sys::{Failure, Memo, Memory, Owner, Stage, Sys};

use crate::Bridge;
use crate::spoof::SpoofCheck;

/// The memory of one attachment.
#[derive(Debug)]
pub(crate) struct Notebook {
    memory: Memory,
    attachment: Memo,
    before: Option<Memo>,
    /// Whether it is noted that the host link is being made.
    announced: Cell<bool>,
}

impl Notebook {
    pub(crate) fn open(network: &NetworkName, container: &ContainerId, ifname: &IfName) -> Self {
        let memory = Memory::of(Bridge::NAME);
        let attachment = Memo::new(network, container, ifname);
        let before = memory.recall(&attachment);
        Self { memory, attachment, before, announced: Cell::new(false) }
    }

    /// Notes the name that the host link is going to have.
    pub(crate) fn announce(&self, link: &str) {
        let memo = Memo { notes: vec![link.to_owned()], ..self.attachment.clone() };
        self.announced.set(self.memory.note(&memo));
    }

    /// What the host link is marked with while it is being made: it need not say what is noted here.
    pub(crate) fn stage(&self) -> Stage {
        if self.announced.get() { Stage::Ready } else { Stage::Pending }
    }

    /// The attachment is finished, and its link says whose it is. Only rules still need remembering.
    pub(crate) fn finish(&self, has_rules: bool) {
        if has_rules {
            self.memory.note(&self.attachment);
        } else {
            self.memory.forget(&self.attachment);
        }
    }

    /// The ADD failed: what was remembered of an earlier one is remembered again.
    pub(crate) fn restore(&self) {
        match &self.before {
            Some(memo) => {
                self.memory.note(memo);
            }
            None => self.memory.forget(&self.attachment),
        }
    }

    /// Whether `link` is the one that was announced and got no further than having `owner`'s mark.
    pub(crate) fn is_announced(&self, link: &Link, owner: &Owner) -> bool {
        let is_named = |memo: &Memo| memo.notes.contains(&link.name) && owner.stage_of(link).is_some();
        self.before.as_ref().is_some_and(|memo| memo.announces(link) || is_named(memo))
    }

    /// Deletes the announced link.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn clear(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        self.before.as_ref().map_or(Ok(()), |memo| sys.announced_links_del(memo))
    }

    /// There is nothing left to remember. What could not be read stays for the next DEL.
    pub(crate) fn forget(&self) {
        self.before.iter().for_each(|memo| self.memory.forget(memo));
    }
}

/// Removes what is remembered of the network's attachments that are not among `valid`.
///
/// # Errors
/// What could not be removed; that is remembered further.
pub(crate) fn collect(sys: &mut Sys<'_>, network: &NetworkName, valid: &[Attachment]) -> Result<(), Failure> {
    let memory = Memory::of(Bridge::NAME);
    let mut failures = Vec::new();
    for memo in memory.stale(network, valid) {
        let link = sys.announced_links_del(&memo);
        let rules = SpoofCheck::new(&memo.container, &memo.ifname).remove_if_present(sys);
        if link.is_ok() && rules.is_ok() {
            memory.forget(&memo);
        }
        failures.extend([link, rules].into_iter().filter_map(Result::err));
    }
    Failure::collect(failures)
}
