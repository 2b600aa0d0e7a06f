// SPDX-License-Identifier: Apache-2.0
//! DEL's and GC's side of the ledger: which interface is meant, whose it is, and what is forgotten with it.

use std::net::IpAddr;

use cnibox_netlink::Link;
use cnibox_spec::{Attachment, LiveAttachment, NetnsPath, NetworkName};

use super::life::{Presence, reach, taken_over_by};
use crate::call::{Failure, Place, Pod, Sys};
use crate::ledger::{Ledger, Mark, Record, Remains, is_of_network};

impl Sys<'_> {
    /// DEL of this call has succeeded. `made_interface` is whether the plugin is the one that makes it.
    pub fn del_ends(&mut self, made_interface: bool) {
        let Some(turn) = &mut self.turn else { return };
        if !self.keeps_notes {
            turn.record.shares.remove(turn.plugin);
        }
        if made_interface && !turn.is_elsewhere {
            forget_interface(&mut turn.record);
        }
        turn.settle();
    }

    /// This call is DEL of an attachment whose interface the runtime says is in the namespace at `netns`. Answers with
    /// where it is: a runtime may have lost the path. An interface that was made elsewhere, in a namespace that the
    /// runtime does not name, is another one: nothing says that it is dead.
    ///
    /// # Errors
    /// When the namespace cannot be opened although it is there.
    pub fn del_begins(&mut self, netns: Option<NetnsPath>) -> Result<Option<NetnsPath>, Failure> {
        let record = self.turn.as_ref().map(|turn| &turn.record);
        let Some(made) = record.and_then(|record| record.namespace.clone()) else { return Ok(netns) };
        let Some(named) = netns else { return self.made_in() };
        if named.as_str() == made.path {
            return Ok(Some(named));
        }
        let is_another = match self.open_pod_if_present(&named) {
            Ok(Some(_)) => self.namespace_of_pod()?.is_some_and(|found| !found.is_same(&made)),
            // Nothing is there: the runtime has lost the path, or the namespace.
            Ok(None) => {
                return Ok(self.made_in()?.or(Some(named)));
            }
            // The plugin complains in its own words.
            Err(_) => return Ok(Some(named)),
        };
        if let Some(turn) = &mut self.turn {
            turn.is_elsewhere = is_another && !turn.record.is_unfinished();
        }
        Ok(Some(named))
    }

    /// The path of the namespace in which the record's interface was made, as long as it leads there and no other interface
    /// has its name by now: DEL and ADD of plugins that keep no ledger leave the record as it was.
    pub(crate) fn made_in(&mut self) -> Result<Option<NetnsPath>, Failure> {
        let Some(record) = self.turn.as_ref().map(|turn| turn.record.clone()) else { return Ok(None) };
        let Some(made) = &record.namespace else { return Ok(None) };
        let Some(mut there) = reach(made) else { return Ok(None) };
        let found = there.rtnl.link_by_name_if_present(record.attachment.ifname.as_str())?;
        if let Some(found) = found
            && self.is_another_than_made(&record, &found)?
        {
            return Ok(None);
        }
        Ok(Some(there.path))
    }

    /// The addresses that were given to the attachment that DEL is about. What is keyed by them may be there although this
    /// plugin has noted nothing: another attachment that had them before may have left it to this one.
    #[must_use]
    pub fn given_addresses(&self) -> &[IpAddr] {
        let turn = self.turn.as_ref().filter(|turn| !turn.is_elsewhere);
        turn.map(|turn| turn.record.addresses.as_slice()).unwrap_or_default()
    }

    /// Where a dead attempt at the attachment has its interface, if that is another namespace than the one at `netns` that
    /// the runtime names: an ADD that was killed before it could take it down. What DEL of the plugin takes down there goes
    /// without its addresses, until [`Sys::elsewhere_taken_down`] says that it has gone. An interface with an end on the host
    /// is found by that; one that is not the noted one any more may be anybody's, and stays.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn elsewhere_begins(&mut self, netns: Option<&NetnsPath>) -> Result<Option<NetnsPath>, Failure> {
        let Some(turn) = &mut self.turn else { return Ok(None) };
        let record = &turn.record;
        if !record.is_unfinished() || record.host_link.is_some() {
            return Ok(None);
        }
        let (Some(link), Some(made)) = (record.pod_link, &record.namespace) else { return Ok(None) };
        if netns.is_none_or(|named| named.as_str() == made.path)
            || Ledger::of_host().is_held(&record.attachment)
        {
            return Ok(None);
        }
        let Some(mut there) = reach(made) else { return Ok(None) };
        let found = there.rtnl.link_by_index_if_present(link.index)?;
        if found.is_none_or(|found| found.name != record.attachment.ifname.as_str())
            || taken_over_by(record).is_some()
        {
            return Ok(None);
        }
        turn.remains = Some(Remains { netns: Some(there.path.clone()), addresses: None });
        Ok(Some(there.path))
    }

    /// The interface of the dead attempt is gone: from here on DEL is about everything else.
    pub fn elsewhere_taken_down(&mut self) {
        self.turn.iter_mut().for_each(|turn| turn.remains = None);
    }

    /// Whether the ledger says that the attachment's interface is in another namespace than the one that DEL names.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.is_elsewhere)
    }

    /// Deletes the host's end of the interface, whatever name the container's has by now, and also one that an ADD had
    /// no time to mark.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn announced_link_del(&mut self) -> Result<(), Failure> {
        let turn = self.turn.as_ref().filter(|turn| !turn.is_elsewhere);
        let Some(record) = turn.map(|turn| turn.record.clone()) else { return Ok(()) };
        match self.host_link_of(&record)? {
            Some(link) => Ok(self.host()?.link_del_by_name_if_present(&link.name).map(drop)?),
            None => Ok(()),
        }
    }

    /// Deletes the interface where the runtime names no namespace that can be opened.
    pub(crate) fn unreachable_link_del(&mut self) -> Result<(), Failure> {
        let turn = self.turn.as_ref().filter(|turn| !turn.is_elsewhere);
        turn.map(|turn| turn.record.clone()).map_or(Ok(()), |record| self.made_link_del(&record))
    }

    /// Deletes the interface that the record says was made: in its namespace, if that is where it was, by its index, which no
    /// other link gets that the container does not give it; else by the kernel's number for the namespace. That may be
    /// another namespace's by now: only a link whose hardware address was chosen at random is known again.
    fn made_link_del(&mut self, record: &Record) -> Result<(), Failure> {
        let (Some(made), Some(namespace)) = (record.pod_link, &record.namespace) else { return Ok(()) };
        if let Some(Pod { mut rtnl, .. }) = reach(namespace) {
            let found = rtnl.link_by_index_if_present(made.index)?.filter(|link| link.kind.is_some());
            return Ok(found.map_or(Ok(()), |link| rtnl.link_del_by_name_if_present(&link.name).map(drop))?);
        }
        let rtnl = self.host()?;
        let found = rtnl.link_in(made.nsid, made.index)?;
        let is_its = |link: &Link| {
            RANDOM_ADDRESS.iter().any(|kind| link.is_kind(kind)) && link.mac.map(|mac| mac.0) == made.mac
        };
        if found.as_ref().is_some_and(is_its) {
            rtnl.link_del_in(made.nsid, made.index)?;
        }
        Ok(())
    }

    /// The network's attachments whose ADD runs: no runtime has them in a list before that is done.
    #[must_use]
    pub fn running(&self, network: &NetworkName) -> Vec<LiveAttachment> {
        let ledger = Ledger::of_host();
        let mut attachments: Vec<_> = ledger.all().into_iter().map(|record| record.attachment).collect();
        attachments.retain(|attachment| attachment.network == *network && ledger.is_held(attachment));
        attachments.iter().map(LiveAttachment::from).collect()
    }

    /// Deletes the interfaces of attachments of the network that are not among the `living`, as far as they can be
    /// reached.
    ///
    /// # Errors
    /// What the kernel refuses; the others are deleted.
    pub(crate) fn stale_interfaces_del(
        &mut self,
        network: &NetworkName,
        living: &[LiveAttachment],
    ) -> Result<(), Failure> {
        let stale = Ledger::of_host().stale(network, living);
        let failed = stale.iter().filter_map(|record| self.made_link_del(record).err());
        Failure::combine(failed.collect::<Vec<_>>())
    }

    /// The attachment's interface in the container, whose namespace is open: the one that was noted, whatever it is called
    /// by now; else the one with the name.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn interface_in_pod(&mut self, attachment: &Attachment) -> Result<Option<Link>, Failure> {
        if let Some(noted) = self.noted_in_pod()? {
            return Ok(Some(noted));
        }
        Ok(self.rtnl(Place::Pod)?.link_by_name_if_present(attachment.ifname.as_str())?)
    }

    /// The interface that was noted, if the container's namespace that is open is the one in which it was made.
    pub(crate) fn noted_in_pod(&mut self) -> Result<Option<Link>, Failure> {
        let record = self.turn.as_ref().map(|turn| &turn.record);
        let made = record.and_then(|record| record.pod_link.zip(record.namespace.clone()));
        let Some((made, namespace)) = made else { return Ok(None) };
        if !self.namespace_of_pod()?.is_some_and(|here| here.is_same(&namespace)) {
            return Ok(None);
        }
        Ok(self.rtnl(Place::Pod)?.link_by_index_if_present(made.index)?)
    }

    /// Whether the container's interface `link` is another attachment's, as far as its mark or the ledger can tell: two
    /// containers may have been given one namespace. What a plugin would take back from it is not its own then.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn is_anothers(&mut self, link: &Link) -> Result<bool, Failure> {
        let Some(turn) = &self.turn else { return Ok(false) };
        let attachment = turn.record.attachment.clone();
        let Some(peer) = link.peer_index.filter(|_| link.is_kind("veth")) else {
            return Ok(self.noted_as_anothers(link)?.is_some());
        };
        if let Some(host) = self.host()?.link_by_index_if_present(peer)? {
            let mark = Mark::of(&attachment);
            if mark.is_another(&host) || mark.stage_of(&host).is_some() {
                return Ok(mark.is_another(&host));
            }
        }
        // Nothing says so on the host: it may be a device that the same container was lent.
        let of_container = || Ledger::of_host().of_container(&attachment.container);
        Ok(self.noted_among(of_container, link)?.is_some())
    }

    /// Whether the host's link `name` is there and marked as that of another attachment than this one.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn is_marked_as_anothers(&mut self, name: &str, attachment: &Attachment) -> Result<bool, Failure> {
        let link = self.host()?.link_by_name_if_present(name)?;
        Ok(link.is_some_and(|link| Mark::of(attachment).is_another(&link)))
    }

    /// The other attachment for which the ledger says that the container's interface `link` was made. Reads all of it
    /// where it does not say that the interface is this one's, or that this one came to no end.
    ///
    /// # Errors
    /// When the container's namespace cannot be identified.
    pub fn noted_as_anothers(&mut self, link: &Link) -> Result<Option<Attachment>, Failure> {
        self.noted_among(|| Ledger::of_host().all(), link)
    }

    /// The same, of these records.
    fn noted_among(
        &mut self,
        records: impl FnOnce() -> Vec<Record>,
        link: &Link,
    ) -> Result<Option<Attachment>, Failure> {
        let Some(record) = self.turn.as_ref().map(|turn| turn.record.clone()) else { return Ok(None) };
        let Some(here) = self.namespace_of_pod()? else { return Ok(None) };
        if record.made(link.index, &here) {
            return Ok(record.is_unfinished().then(|| taken_over_by(&record)).flatten());
        }
        let mut others = records().into_iter();
        let owner =
            others.find(|other| other.attachment != record.attachment && other.made(link.index, &here));
        Ok(owner.map(|made| made.attachment))
    }

    /// GC of this call has succeeded: nothing of the plugin is left of the network's attachments that are not among the
    /// `living`. What killed calls were writing goes, whoever's it was: one that lives has it locked.
    pub fn gc_ends(
        &mut self,
        plugin: &str,
        made_interfaces: bool,
        network: &NetworkName,
        living: &[LiveAttachment],
    ) {
        let ledger = Ledger::of_host();
        for mut record in ledger.stale(network, living) {
            // One that could not be reached has its addresses still.
            let is_gone = made_interfaces && !matches!(self.presence(&record), Ok(Presence::There));
            // An ADD may have begun since the records were read, and even be done.
            if !ledger.is_as_read(&record) {
                continue;
            }
            if !self.keeps_notes {
                record.shares.remove(plugin);
            }
            if is_gone {
                forget_interface(&mut record);
            }
            if record.is_empty() {
                ledger.forget(&record.attachment);
            } else {
                let _ = ledger.write(&record);
            }
        }
        ledger.sweep();
    }

    /// Deletes the host's `links` that belong to attachments of the network that are not among the `living`, and to no
    /// ADD that runs.
    ///
    /// # Errors
    /// What the kernel refuses; the others are deleted.
    pub fn stale_links_del(
        &mut self,
        links: &[Link],
        network: &NetworkName,
        living: &[LiveAttachment],
    ) -> Result<(), Failure> {
        let running = self.running(network);
        let kept = living.iter().chain(&running).filter_map(|live| {
            Attachment::new(network.as_str(), &live.container_id, &live.ifname).ok().as_ref().map(Mark::of)
        });
        let kept: Vec<_> = kept.collect();
        let mut announced = Vec::new();
        for record in Ledger::of_host().stale(network, living) {
            announced.extend(self.host_link_of(&record)?);
        }
        // An ADD that ended meanwhile is among the records, too.
        let is_stale = |link: &Link| kept.iter().all(|mark| mark.stage_of(link).is_none());
        let outcomes = [
            self.host_links_del(links, |link| is_of_network(link, network) && is_stale(link)),
            self.host_links_del(&announced, is_stale),
        ];
        Failure::combine(outcomes.into_iter().filter_map(Result::err))
    }

    /// Deletes those of the host's `links` that are `doomed`.
    ///
    /// # Errors
    /// What the kernel refuses; the others are deleted.
    pub(crate) fn host_links_del(
        &mut self,
        links: &[Link],
        doomed: impl Fn(&Link) -> bool,
    ) -> Result<(), Failure> {
        let rtnl = self.host()?;
        let doomed = links.iter().filter(|link| doomed(link));
        let failed = |link: &Link| rtnl.link_del_by_name_if_present(&link.name).err().map(Failure::from);
        Failure::combine(doomed.filter_map(failed).collect::<Vec<_>>())
    }
}

fn forget_interface(record: &mut Record) {
    let ledger = Ledger::of_host();
    record.addresses.iter().for_each(|address| ledger.disclaim(*address, &record.attachment));
    record.clear_interface();
    // What plugins behind it have kept is about no interface any more.
    record.shares.values_mut().for_each(|share| share.superseded = true);
}

/// Kinds of links that the kernel gives an address at random.
const RANDOM_ADDRESS: &[&str] = &["macvlan", "dummy", "tun"];
