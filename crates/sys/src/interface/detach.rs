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
        Failure::collect([released, deleted].into_iter().filter_map(Result::err))
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
        Failure::collect([deleted, collected].into_iter().filter_map(Result::err))
    }

    /// The addresses that the container has on interfaces other than `ifname` only; `None` when its namespace is gone. One
    /// that `ifname` has, too, is an address of two networks.
    fn pod_addresses_if_present(
        &mut self,
        netns: Option<&NetnsPath>,
        ifname: &IfName,
    ) -> Result<Option<Vec<IpAddr>>, Failure> {
        let Some(netns) = netns else { return Ok(None) };
        if self.open_pod_if_present(netns)?.is_none() {
            return Ok(None);
        }
        let mut others = self.pod_addresses(|name| name != ifname.as_str())?;
        if !others.is_empty() {
            let own = self.pod_addresses(|name| name == ifname.as_str())?;
            others.retain(|address| !own.contains(address));
        }
        Ok(Some(others))
    }

    /// Takes down a pair whose addresses may be masqueraded. The rules go before the link: the kernel frees both after grace
    /// periods of the same kind, which then pass together. `host_end` deletes what is on the host where the container's
    /// namespace is not to be found: its path can be gone while a process still holds it, and the pair with it. Answers with
    /// what could not be removed; everything else was.
    pub fn masqueraded_pair_del(
        &mut self,
        attachment: &Attachment,
        netns: Option<&NetnsPath>,
        host_end: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Vec<Failure> {
        let mut failures = Vec::new();
        let in_use = self.pod_addresses_if_present(netns, &attachment.ifname).unwrap_or_else(|failure| {
            failures.push(failure);
            None
        });
        let masquerade = Masquerade::of(attachment);
        failures.extend(self.masquerade_remove(&masquerade, in_use.as_deref().unwrap_or_default()).err());
        let gone = match in_use {
            Some(_) => self.pod_link_del(netns, &attachment.ifname),
            None => host_end(self),
        };
        failures.extend(gone.err());
        failures.extend(self.announced_link_del().err());
        failures
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
        let Some(link) = self.rtnl(Place::Pod)?.link_by_name_if_present(ifname.as_str())? else {
            return Ok(());
        };
        if !self.is_anothers(&link)? {
            self.rtnl(Place::Pod)?.link_del_by_name_if_present(ifname.as_str())?;
        }
        Ok(())
    }

    /// Deletes the attachment's links on the host, found by its mark.
    ///
    /// # Errors
    /// When the kernel does not tell what there is, or refuses.
    pub fn marked_links_del(&mut self, links: &[Link], attachment: &Attachment) -> Result<(), Failure> {
        let mark = Mark::of(attachment);
        let own: Vec<_> = links.iter().filter(|link| mark.stage_of(link).is_some()).collect();
        let own: Vec<_> = own.into_iter().filter(|link| !self.is_of_another(link)).cloned().collect();
        self.host_links_del(&own, |_| true)
    }
}
