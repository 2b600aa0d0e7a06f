// SPDX-License-Identifier: Apache-2.0
//! The ADD of a plugin further down the chain: until it has succeeded, the attachment that it completes is no living one.
//!
//! A runtime that tries ADD again without DEL (Nomad does) gets a clean start when such a plugin failed or was killed,
//! instead of "already exists". While it works, a note of an unfinished attachment says so; once it has failed, or where
//! no note can be kept, the alias of the attachment's links on the host. An alias would do for all of it, but a new one
//! is news for the whole kernel, which walks through all IPv6 routes: its cost grows with the number of containers.

use cnibox_spec::CniResult;

use crate::unfinished::memory;
use crate::{Failure, Memo, Stage, Sys};

/// The mark of a chained plugin's ADD that is running.
#[derive(Clone, Debug)]
pub struct ChainedAdd {
    attachment: Memo,
    /// The names of links on the host that may be the attachment's.
    links: Vec<String>,
    noted: bool,
}

impl Sys<'_> {
    /// Marks the attachment of `prev_result` as unfinished.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn chained_add_begins(
        &mut self,
        prev_result: &CniResult,
        attachment: Memo,
    ) -> Result<ChainedAdd, Failure> {
        let interfaces = &prev_result.interfaces;
        let on_host = interfaces.iter().filter(|interface| interface.sandbox.is_empty());
        let links: Vec<_> = on_host.map(|interface| interface.name.clone()).collect();
        let known = interfaces.iter().any(|interface| interface.name == attachment.ifname);
        let noted = known && memory().note(&attachment);
        if !noted {
            self.mark_links(&attachment, &links, Stage::Pending)?;
        }
        Ok(ChainedAdd { attachment, links, noted })
    }

    /// The ADD has succeeded, or what it did is taken back; then the attachment stays unfinished. Its links say so where
    /// it has any, so that no file is left; those of other implementations say nothing.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn chained_add_ends(&mut self, add: &ChainedAdd, succeeded: bool) -> Result<(), Failure> {
        let ChainedAdd { attachment, links, noted } = add;
        match (succeeded, noted) {
            (true, true) => {}
            (true, false) => self.mark_links(attachment, links, Stage::Ready)?,
            (false, _) => self.mark_links(attachment, links, Stage::Failed)?,
        }
        if *noted && (succeeded || !links.is_empty()) {
            memory().forget(attachment);
        }
        Ok(())
    }

    /// Deletes the links on the host that plugins of an unfinished chain made for the attachment: the one that makes its
    /// interface starts again, and knows nothing of theirs.
    ///
    /// # Errors
    /// What the kernel refuses; the others are deleted.
    pub fn chain_links_del(&mut self, attachment: &Memo) -> Result<(), Failure> {
        let owner = attachment.owner();
        let links = self.host()?.links()?;
        self.host_links_del(&links, |link| owner.stage_of(link).is_some())
    }

    /// Marks those of the `links` that have the attachment's mark.
    fn mark_links(&mut self, attachment: &Memo, links: &[String], stage: Stage) -> Result<(), Failure> {
        let owner = attachment.owner();
        for name in links {
            let rtnl = self.host()?;
            let Some(link) = rtnl.link_by_name_if_present(name)? else { continue };
            if owner.stage_of(&link).is_some() {
                rtnl.link_set_alias(link.index, &owner.alias(stage))?;
            }
        }
        Ok(())
    }
}
