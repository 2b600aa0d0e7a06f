// SPDX-License-Identifier: Apache-2.0
//! DEL and GC, as far as they are the same for every interface plugin: everything is tried, what is missing is no
//! error, and all failures are reported together.

use std::net::IpAddr;

use cnibox_netlink::Link;
use cnibox_spec::{IfName, NetnsPath};

use crate::{Failure, Owner, Place, Stage, Sys, Verb};

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
        let deleted = self.pod_link_del(netns, ifname).map(drop);
        Failure::collect([released, deleted].into_iter().filter_map(Result::err))
    }

    /// Calls the IPAM plugin, if there is one, with a verb that has no result.
    ///
    /// # Errors
    /// The plugin's own.
    pub fn ipam_forward(&mut self, verb: Verb, ipam: Option<&str>) -> Result<(), Failure> {
        match ipam {
            Some(plugin) => Ok(self.delegate(verb, plugin).map(drop)?),
            None => Ok(()),
        }
    }

    /// The addresses that the container has on interfaces other than `ifname` only; `None` when its namespace is gone. One
    /// that `ifname` has, too, is an address of two networks.
    ///
    /// # Errors
    /// When the namespace cannot be opened although it is there, or the kernel refuses.
    pub fn pod_addresses_if_present(
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

    /// Deletes the container's interface, which may be gone; false when the container's namespace is.
    ///
    /// # Errors
    /// When the namespace cannot be opened although it is there, or the kernel refuses.
    pub fn pod_link_del(&mut self, netns: Option<&NetnsPath>, ifname: &IfName) -> Result<bool, Failure> {
        let Some(netns) = netns else { return Ok(false) };
        if self.open_pod_if_present(netns)?.is_none() {
            return Ok(false);
        }
        self.rtnl(Place::Pod)?.link_del_by_name_if_present(ifname.as_str())?;
        Ok(true)
    }

    /// Deletes those of the host's `links` that are `doomed`.
    ///
    /// # Errors
    /// What the kernel refuses; the others are deleted.
    pub fn host_links_del(&mut self, links: &[Link], doomed: impl Fn(&Link) -> bool) -> Result<(), Failure> {
        let rtnl = self.host()?;
        let doomed = links.iter().filter(|link| doomed(link));
        let failed = |link: &Link| rtnl.link_del_by_name_if_present(&link.name).err().map(Failure::from);
        Failure::collect(doomed.filter_map(failed).collect::<Vec<_>>())
    }

    /// Whether the container's interface is what an unfinished ADD of the same attachment left: one that was killed, or
    /// whose chain failed later on. Some runtimes (Nomad) try again without DEL. A finished attachment stays, and ADD
    /// fails on it.
    ///
    /// # Errors
    /// When the kernel refuses to tell; [`crate::PodNotOpen`].
    pub fn attachment_is_unfinished(&mut self, owner: &Owner, ifname: &IfName) -> Result<bool, Failure> {
        let found = self.rtnl(Place::Pod)?.link_by_name_if_present(ifname.as_str())?;
        let Some(peer) = found.and_then(|pod| pod.peer_index) else { return Ok(false) };
        let stage = self.host()?.link_by_index(peer).ok().and_then(|host| owner.stage_of(&host));
        Ok(matches!(stage, Some(Stage::Pending | Stage::Failed)))
    }
}
