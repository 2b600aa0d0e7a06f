// SPDX-License-Identifier: Apache-2.0
//! ADD's side of the ledger: what a dead attempt has left, what this one makes, and how it ends.
//!
//! Invariant: nothing is noted of an attempt whose interface was there before.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::AsFd;

use cnibox_netfilter::{Engine, Hint};
use cnibox_netlink::{Link, LinkChange};
use cnibox_spec::{Attachment, CniResult, NetnsPath};

use super::life::{Earlier, is_other_than};
use crate::call::{Failure, Place, Sys};
use crate::ledger::{HINTS, Ledger, Mark, Part, PodLink, Progress, Record, Remains, Stage, Turn};

impl Sys<'_> {
    /// This call is ADD of a plugin that makes the container's interface. What an earlier attempt that is dead has left is
    /// answered, for the caller to take down; its links are gone then. An attachment that lives, or may, is left alone
    /// from here on. A namespace that cannot be opened is the plugin's to complain of.
    ///
    /// # Errors
    /// When the kernel does not tell what there is, or refuses to delete a link.
    pub fn maker_begins(&mut self, netns: &NetnsPath) -> Result<Option<Remains>, Failure> {
        if !matches!(self.open_pod_if_present(netns), Ok(Some(_))) {
            return Ok(None);
        }
        let Some(record) = self.turn.as_ref().map(|turn| turn.record.clone()) else { return Ok(None) };
        let remains = match self.earlier(&record)? {
            Earlier::Living => return Ok(self.refuse_to_make()),
            Earlier::Unknown => None,
            Earlier::Dead(remains) => {
                self.dead_links_del(&record)?;
                let given = remains.addresses.iter().flatten().copied().collect();
                // Where its interface still is, that has them, and goes next.
                if remains.netns.is_none() && !self.in_use_among(&given, None)?.is_empty() {
                    return Ok(self.refuse_to_make());
                }
                Some(remains)
            }
        };
        if let Some(turn) = &mut self.turn {
            turn.remains.clone_from(&remains);
        }
        Ok(remains)
    }

    fn refuse_to_make(&mut self) -> Option<Remains> {
        self.turn.iter_mut().for_each(|turn| turn.part = Part::Refused);
        None
    }

    /// Deletes the links on the host of an attachment that is dead: those that are marked as its own, and those whose
    /// names were noted before they could be.
    fn dead_links_del(&mut self, record: &Record) -> Result<(), Failure> {
        let announced = self.host_link_of(record)?;
        let mark = Mark::of(&record.attachment);
        let links = self.host()?.links()?;
        self.host_links_del(&links, |link| {
            mark.stage_of(link).is_some() || announced.as_ref().is_some_and(|known| known.index == link.index)
        })
    }

    /// What the dead attempt left is taken down, as far as it is this plugin's. The plugins behind it take down what is
    /// theirs when it is their turn.
    pub fn remains_taken_down(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        // Its addresses, too: once the record is written without them, nothing else remembers them.
        let given_up = turn.remains.iter().filter_map(|remains| remains.addresses.as_ref()).flatten();
        given_up.for_each(|address| Ledger::of_host().disclaim(*address, &turn.record.attachment));
        turn.record.clear_interface();
        turn.record.shares.remove(turn.plugin);
        turn.record.shares.values_mut().for_each(|share| share.superseded = true);
    }

    /// The container's interface is about to be made: the attempt begins, unless there is an interface of that name,
    /// which the kernel will refuse.
    ///
    /// # Errors
    /// When the kernel does not say whether there is one.
    pub fn attempt_begins(&mut self) -> Result<(), Failure> {
        let Some(Turn { part: Part::Reader, record, .. }) = &self.turn else { return Ok(()) };
        let ifname = record.attachment.ifname.clone();
        let Ok(rtnl) = self.rtnl(Place::Pod) else { return Ok(()) };
        if rtnl.link_by_name_if_present(ifname.as_str())?.is_some() {
            self.refuse_to_make();
            return Ok(());
        }
        let namespace = self.namespace_of_pod()?;
        if let Some(turn) = &mut self.turn {
            turn.part = Part::Maker;
            turn.record.progress = Progress::Begun;
            turn.record.namespace = namespace;
        }
        Ok(())
    }

    /// Notes something of the attempt, before it is done or right behind it.
    fn attempt_notes(&mut self, note: impl FnOnce(&mut Record)) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.part == Part::Maker) {
            note(&mut turn.record);
            turn.write();
        }
    }

    /// Notes that the attempt has begun, before anything is made for it.
    pub(crate) fn attempt_announces(&mut self) {
        self.attempt_notes(|_| {});
    }

    /// Notes the name that the host's end of the interface is going to have.
    pub(crate) fn attempt_announces_link(&mut self, link: &str) {
        self.attempt_notes(|record| record.host_link = Some(link.to_owned()));
    }

    /// Notes the interface, which has no end on the host. Where nothing may be noted its namespace gets a number all the
    /// same, by which others find out what addresses it has.
    ///
    /// # Errors
    /// When the kernel gives its namespace no number.
    pub fn attempt_made_link(&mut self, link: &Link) -> Result<(), Failure> {
        let Some(pod) = self.pod() else { return Ok(()) };
        let fd = pod.netns.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|source| cnibox_netlink::Error::Socket { operation: "dup", source })?;
        let nsid = self.host()?.ensure_nsid(fd.as_fd())?;
        let (index, mac) = (link.index, link.mac.map(|mac| mac.0));
        self.attempt_notes(|record| record.pod_link = Some(PodLink { nsid, index, mac }));
        Ok(())
    }

    /// The interface in the container, as it was noted.
    #[must_use]
    pub fn made_link(&self) -> Option<PodLink> {
        self.turn.as_ref().and_then(|turn| turn.record.pod_link)
    }

    /// Notes the addresses that the attachment was given, and whose they are.
    pub(crate) fn attempt_was_given(&mut self, result: &CniResult) {
        let addresses: Vec<IpAddr> = result.ips.iter().map(|ip| ip.address.ip()).collect();
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.part == Part::Maker) else { return };
        turn.record.addresses.clone_from(&addresses);
        turn.write();
        let owner = turn.record.attachment.clone();
        for address in addresses {
            self.take_over(address, &owner);
        }
    }

    /// The record of who had the address before goes if its interface is gone: it can only have been given away after
    /// a DEL that does not know of the ledger. Addresses that the configuration chooses may be several attachments'.
    fn take_over(&mut self, address: IpAddr, owner: &Attachment) {
        let ledger = Ledger::of_host();
        let former = ledger.claimant(&owner.network, address).filter(|former| former != owner);
        if let Some(record) = former.and_then(|former| ledger.read(&former))
            && record.addresses.contains(&address)
        {
            if ledger.is_held(&record.attachment) || self.may_live(&record) {
                return;
            }
            record.addresses.iter().for_each(|address| ledger.disclaim(*address, &record.attachment));
            ledger.forget(&record.attachment);
        }
        ledger.claim(address, owner);
    }

    /// Whether `address`, which the IPAM plugin keeps for this attachment, is what a dead attempt had, so that it may be
    /// released.
    pub(crate) fn may_release(&mut self, address: IpAddr) -> Result<bool, Failure> {
        let Some(remains) = self.remains().filter(|_| !self.another_may_live()) else { return Ok(false) };
        let was_its = remains.addresses.as_ref().is_none_or(|known| known.contains(&address));
        Ok(was_its && self.in_use_among(&BTreeSet::from([address]), None)?.is_empty())
    }

    /// Whether an attachment of these names may live that this call has not made.
    pub(crate) fn another_may_live(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.part == Part::Refused)
    }

    /// This call is ADD of a plugin behind the one that makes the interface, in the namespace at `netns`. Until it has
    /// succeeded, the attachment is no finished one; one that was made in another namespace may live, and is left as it is.
    /// True if there is something left of a dead attempt that only this plugin can take down.
    #[must_use]
    pub fn follower_begins(&mut self, netns: &NetnsPath) -> bool {
        let Some(turn) = &mut self.turn else { return false };
        let is_elsewhere = turn.record.namespace.as_ref().is_some_and(|made| is_other_than(made, netns));
        let share = turn.record.shares.get(turn.plugin);
        let (superseded, repeated) =
            share.map_or((false, false), |share| (share.superseded, share.finished && !share.superseded));
        // A repeated ADD says nothing about an attachment that lives.
        if turn.record.progress == Progress::Finished && !repeated && !is_elsewhere {
            turn.part = Part::Follower;
            turn.record.progress = Progress::Begun;
            turn.write();
        }
        superseded
    }

    /// What was left of the dead attempt is taken down.
    pub fn follower_took_down(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.record.shares.remove(turn.plugin);
        }
    }

    /// The ADD of this call is over. A failed one has taken back all that it could.
    ///
    /// # Errors
    /// When the kernel refuses to mark the links of an attachment that has become none.
    pub fn add_ends(&mut self, succeeded: bool, previous: Option<&CniResult>) -> Result<(), Failure> {
        let hints = self.engine.iter().flat_map(Engine::added).map(Hint::to_string).collect();
        let Some(turn) = &mut self.turn else { return Ok(()) };
        if succeeded {
            if turn.part == Part::Refused {
                // Two interfaces of one attachment: without addresses of its own nothing forbids them.
                return Ok(());
            }
            finish(turn, hints);
            self.sweep_beside();
            return Ok(());
        }
        match turn.part {
            Part::Reader if previous.is_some() && turn.before.is_none() => self.mark_failed(previous),
            Part::Reader | Part::Refused => Ok(()),
            Part::Maker => {
                take_back(turn);
                Ok(())
            }
            Part::Follower => {
                turn.record.progress = Progress::Failed;
                turn.settle();
                self.mark_failed(previous)
            }
        }
    }

    /// Marks those of the attachment's links on the host that bear its mark.
    fn mark_failed(&mut self, previous: Option<&CniResult>) -> Result<(), Failure> {
        let Some(turn) = &self.turn else { return Ok(()) };
        let mark = Mark::of(&turn.record.attachment);
        let interfaces = previous.iter().flat_map(|previous| &previous.interfaces);
        for interface in interfaces.filter(|interface| interface.sandbox.is_empty()) {
            let rtnl = self.host()?;
            let Some(link) = rtnl.link_by_name_if_present(&interface.name)? else { continue };
            if mark.stage_of(&link).is_some() {
                rtnl.link_set(LinkChange::new(link.index).alias(&mark.alias(Stage::Failed)))?;
            }
        }
        Ok(())
    }

    /// Removes records that say nothing worth keeping, of attachments that the Go plugins have detached: a few at a time.
    fn sweep_beside(&mut self) {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.part == Part::Maker) else { return };
        let ledger = Ledger::of_host();
        for record in ledger.beside(&turn.record.attachment.clone()) {
            let says_nothing = record.addresses.is_empty()
                && record.shares.values().all(|share| share.notes.is_empty() && share.hints.is_empty());
            if says_nothing && record.progress == Progress::Finished && !self.may_live(&record) {
                ledger.forget(&record.attachment);
            }
        }
    }
}

fn finish(turn: &mut Turn, hints: Vec<String>) {
    if matches!(turn.part, Part::Maker | Part::Follower) {
        turn.record.progress = Progress::Finished;
    }
    let known = turn.record.progress != Progress::Foreign;
    let has_share = turn.record.shares.contains_key(turn.plugin);
    if known || has_share || !hints.is_empty() {
        let share = turn.record.share(turn.plugin);
        share.finished = true;
        let older = std::mem::take(&mut share.hints);
        share.hints = hints.into_iter().chain(older).take(HINTS).collect();
        turn.write();
    }
}

/// The attempt failed. What it left is noted, and so is what a dead one before it had left and nobody took over.
fn take_back(turn: &mut Turn) {
    let ledger = Ledger::of_host();
    if turn.left_something {
        turn.record.progress = Progress::Failed;
        turn.write();
        return;
    }
    turn.record.addresses.iter().for_each(|address| ledger.disclaim(*address, &turn.record.attachment));
    match turn.before.take().filter(|_| turn.remains.is_some()) {
        Some(before) => turn.record = Record { progress: Progress::Failed, ..before },
        None => {
            turn.record.clear_interface();
            turn.record.shares.remove(turn.plugin);
        }
    }
    turn.settle();
}
