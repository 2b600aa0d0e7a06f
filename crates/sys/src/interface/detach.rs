// SPDX-License-Identifier: Apache-2.0
//! DEL and GC, as far as they are the same for every interface plugin: everything is tried, what is missing is no
//! error, and all failures are reported together.

use std::net::IpAddr;

use cnibox_netlink::Link;
use cnibox_spec::{Attachment, IfName, LiveAttachment, NetnsPath, NetworkName, Verb};

use crate::call::{Failure, Place, Sys};
use crate::ledger::Mark;
use crate::node::Masquerade;

impl Sys<'_> {
    /// DEL of an attachment that is one interface in the container. The IPAM plugin is first, as in the reference:
    /// dhcp wants the interface to give its lease back.
    ///
    /// # Errors
    /// What could not be removed; everything else was.
    pub fn detach(
        &mut self,
        netns: Option<&NetnsPath>,
        ifname: &IfName,
        ipam: Option<&str>,
    ) -> Result<(), Failure> {
        let released = self.ipam_forward(Verb::Del, ipam);
        let deleted = self.pod_link_del(netns, ifname);
        Failure::combine([released, deleted].into_iter().filter_map(Result::err))
    }

    /// GC of attachments that are one interface in the container each: those that are not among the `living` go where they
    /// can be reached, and then their addresses.
    ///
    /// # Errors
    /// What could not be removed; everything else was.
    pub fn collect(
        &mut self,
        network: &NetworkName,
        living: &[LiveAttachment],
        ipam: Option<&str>,
    ) -> Result<(), Failure> {
        let deleted = self.stale_interfaces_del(network, living);
        let collected = self.ipam_forward(Verb::Gc, ipam);
        Failure::combine([deleted, collected].into_iter().filter_map(Result::err))
    }

    /// The addresses that the container has on interfaces other than `ifname` only; `None` when its namespace is gone. Where
    /// `netns` names none, it is the one in which the ledger says that this attachment's interface is. An address that
    /// `ifname` has, too, is an address of two networks; one that was given to this attachment is its own, wherever the
    /// container has put it.
    ///
    /// # Errors
    /// When the namespace cannot be opened although it is there, or the kernel refuses.
    pub fn addresses_beside(
        &mut self,
        netns: Option<&NetnsPath>,
        ifname: &IfName,
    ) -> Result<Option<Vec<IpAddr>>, Failure> {
        let made_in = if netns.is_none() { self.made_in()? } else { None };
        let Some(netns) = netns.or(made_in.as_ref()) else { return Ok(None) };
        if self.open_pod_if_present(netns)?.is_none() {
            return Ok(None);
        }
        let mut others = self.pod_addresses(|name| name != ifname.as_str())?;
        if !others.is_empty() {
            let own = self.pod_addresses(|name| name == ifname.as_str())?;
            let given = self.given_addresses();
            others.retain(|address| !own.contains(address) && !given.contains(address));
        }
        Ok(Some(others))
    }

    /// Takes down a pair whose addresses may be masqueraded. The link goes before the rules, as in the reference: behind
    /// their removal the kernel would be in a grace period already, and the one that the link waits for only begin after it.
    /// Nor do they go on another thread while it waits: with what the packet filter leaves to collect that takes a grace
    /// period more.
    /// `host_end` deletes what is on the host where the container's namespace is not to be found: its path can be gone while
    /// a process still holds it, and the pair with it.
    ///
    /// # Errors
    /// What could not be removed; everything else was.
    pub fn masqueraded_pair_del(
        &mut self,
        attachment: &Attachment,
        netns: Option<&NetnsPath>,
        host_end: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let masquerade = Masquerade::of(attachment);
        let beside = netns.map_or(Ok(None), |_| self.addresses_beside(netns, &attachment.ifname));
        let (in_use, unseen) = match beside {
            Ok(in_use) => (in_use, None),
            Err(failure) => (None, Some(failure)),
        };
        let outcomes = match in_use {
            Some(in_use) => [
                self.pod_link_del(netns, &attachment.ifname),
                self.announced_link_del(),
                self.masquerade_remove(&masquerade, &in_use),
            ],
            // What has gone with the link is in use no more.
            None => [
                host_end(self),
                self.announced_link_del(),
                self.masqueraded_for_others(&masquerade)
                    .and_then(|in_use| self.masquerade_remove(&masquerade, &in_use)),
            ],
        };
        Failure::combine(unseen.into_iter().chain(outcomes.into_iter().filter_map(Result::err)))
    }

    /// Deletes the container's interface, which may be gone. One of another attachment that was given the same namespace
    /// stays.
    ///
    /// # Errors
    /// When the namespace cannot be opened although it is there, or the kernel refuses.
    pub fn pod_link_del(&mut self, netns: Option<&NetnsPath>, ifname: &IfName) -> Result<(), Failure> {
        let is_reached = match netns {
            Some(netns) => self.open_pod_if_present(netns)?.is_some(),
            None => false,
        };
        if !is_reached {
            return self.unreachable_link_del();
        }
        let named = self.rtnl(Place::Pod)?.link_by_name_if_present(ifname.as_str())?;
        // By that name the container may have anything, its loopback even; and the interface may have another one.
        let named = named.filter(|link| link.name == ifname.as_str());
        for link in [named, self.noted_in_pod()?].into_iter().flatten() {
            if link.kind.is_some() && !self.is_anothers(&link)? {
                self.rtnl(Place::Pod)?.link_del_by_name_if_present(&link.name)?;
            }
        }
        Ok(())
    }

    /// Deletes the attachment's links on the host, found by its mark.
    ///
    /// # Errors
    /// When the kernel does not tell what there is, or refuses.
    pub fn marked_links_del(&mut self, links: &[Link], attachment: &Attachment) -> Result<(), Failure> {
        let mark = Mark::of(attachment);
        // What was made elsewhere bears the same one.
        let elsewhere = self.turn.as_ref().filter(|turn| turn.is_elsewhere);
        let elsewhere = elsewhere.and_then(|turn| turn.record.host_link.clone());
        self.host_links_del(links, |link| {
            mark.stage_of(link).is_some() && elsewhere.as_ref() != Some(&link.name)
        })
    }
}
