// SPDX-License-Identifier: Apache-2.0
//! Attachments whose ADD has begun and has not succeeded, remembered where no link can carry it: interfaces that are
//! all in the container have no end on the host that could be marked, and a link that is being made has no mark yet.
//!
//! Some runtimes (Nomad) try ADD again without DEL. What is remembered here was never a living attachment, so that the
//! next ADD may clear it. Invariant: nothing is remembered of an attachment whose interface was there before.

use cnibox_netlink::Link;
use cnibox_spec::{Attachment, ContainerId, IfName, NetworkName};

use crate::{Failure, Memo, Memory, Place, Stage, Sys};

/// The ADD that this call is.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    memo: Memo,
    /// Whether anything has been remembered.
    noted: bool,
    /// Whether something could not be taken back.
    leftovers: bool,
}

pub(crate) fn memory() -> Memory {
    Memory::of("unfinished")
}

impl Sys<'_> {
    /// This call is ADD of a plugin that makes the container's interface. True when an earlier one of the same
    /// attachment came to no end; what it left must be cleared first.
    pub fn attempt(&mut self, network: &NetworkName, container: &ContainerId, ifname: &IfName) -> bool {
        let memo = Memo::new(network, container, ifname);
        let earlier = memory().recall(&memo).is_some();
        self.attempt = Some(Attempt { memo, noted: earlier, leftovers: false });
        earlier
    }

    /// Remembers that the container's interface is about to be made, unless there is one of that name, which the kernel
    /// will refuse.
    ///
    /// # Errors
    /// When the kernel does not say whether there is one; [`crate::PodNotOpen`].
    pub fn attempt_begins(&mut self) -> Result<(), Failure> {
        let Some(Attempt { memo, noted: false, .. }) = &self.attempt else { return Ok(()) };
        let memo = memo.clone();
        if self.rtnl(Place::Pod)?.link_by_name_if_present(&memo.ifname)?.is_none() {
            let noted = memory().note(&memo);
            self.attempt.iter_mut().for_each(|attempt| attempt.noted = noted);
        }
        Ok(())
    }

    /// Remembers the name that the host's end of the interface is going to have.
    pub(crate) fn attempt_announces(&mut self, link: &str) {
        if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.noted) {
            attempt.memo.notes = vec![link.to_owned()];
            memory().note(&attempt.memo);
        }
    }

    /// What a link that this ADD makes is marked with: it need not say what is remembered.
    #[must_use]
    pub fn attempt_stage(&self) -> Stage {
        if self.attempt.as_ref().is_some_and(|attempt| attempt.noted) { Stage::Ready } else { Stage::Pending }
    }

    /// Something could not be taken back, so that the attachment stays unfinished.
    pub(crate) fn attempt_left_something(&mut self) {
        self.attempt.iter_mut().for_each(|attempt| attempt.leftovers = true);
    }

    /// The ADD is over: all is made, or all is taken back.
    pub fn attempt_ends(&mut self) {
        if let Some(Attempt { memo, noted: true, leftovers: false }) = self.attempt.take() {
            memory().forget(&memo);
        }
    }

    /// Deletes the host link that an unfinished ADD of this attachment announced.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attempt_link_del(
        &mut self,
        network: &NetworkName,
        container: &ContainerId,
        ifname: &IfName,
    ) -> Result<(), Failure> {
        let memo = memory().recall(&Memo::new(network, container, ifname));
        memo.map_or(Ok(()), |memo| self.announced_links_del(&memo))
    }

    /// The same for every attachment of the network that is not among `valid`.
    ///
    /// # Errors
    /// What the kernel refuses; the others are deleted.
    pub fn attempt_links_collect(
        &mut self,
        network: &NetworkName,
        valid: &[Attachment],
    ) -> Result<(), Failure> {
        let failures: Vec<_> =
            memory().stale(network, valid).filter_map(|memo| self.announced_links_del(&memo).err()).collect();
        Failure::collect(failures)
    }

    /// Deletes the links whose names are noted, if they got no further than that.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn announced_links_del(&mut self, memo: &Memo) -> Result<(), Failure> {
        for name in &memo.notes {
            let rtnl = self.host()?;
            if rtnl.link_by_name_if_present(name)?.is_some_and(|link| memo.announces(&link)) {
                rtnl.link_del_by_name_if_present(name)?;
            }
        }
        Ok(())
    }

    /// Whether an ADD of a plugin further down this attachment's chain failed or was killed.
    #[must_use]
    pub fn chain_is_unfinished(
        &self,
        network: &NetworkName,
        container: &ContainerId,
        ifname: &IfName,
    ) -> bool {
        memory().recall(&Memo::new(network, container, ifname)).is_some_and(|memo| memo.notes.is_empty())
    }

    /// The attachment is gone. A plugin that did not make the interface leaves what is noted to the one that did.
    pub fn attempt_forgotten(
        &self,
        network: &NetworkName,
        container: &ContainerId,
        ifname: &IfName,
        made_by_caller: bool,
    ) {
        let memo = Memo::new(network, container, ifname);
        if made_by_caller || memory().recall(&memo).is_some_and(|found| found.notes.is_empty()) {
            memory().forget(&memo);
        }
    }

    /// So are all of the network that are not among `valid`.
    pub fn attempts_forgotten(&self, network: &NetworkName, valid: &[Attachment], made_by_caller: bool) {
        memory()
            .stale(network, valid)
            .filter(|memo| made_by_caller || memo.notes.is_empty())
            .for_each(|memo| memory().forget(&memo));
    }
}

impl Memo {
    /// Whether `link` is one whose name is noted and that got no further: a finished one has its owner's alias, and
    /// somebody else's may have got the name since.
    #[must_use]
    pub fn announces(&self, link: &Link) -> bool {
        let unmarked = link.alias.as_deref().unwrap_or_default().is_empty();
        unmarked && (link.is_kind("veth") || link.is_kind("ifb")) && self.notes.contains(&link.name)
    }
}
