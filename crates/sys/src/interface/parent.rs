// SPDX-License-Identifier: Apache-2.0
//! The link that a container's interface stands on (macvlan, ipvlan, vlan): which one it is, what it allows, and how
//! the container's namespace names it.

use std::os::fd::AsFd;

use cnibox_netlink::{Family, Link, TABLE_MAIN};
use cnibox_netns::NetNs;

use crate::call::{Failure, OrSay, Place, Sys};

impl Sys<'_> {
    /// The link called `master`, or the one that the first default route leads to, IPv4 before IPv6.
    ///
    /// # Errors
    /// When there is none.
    pub fn parent(&mut self, place: Place, master: Option<&str>) -> Result<Link, Failure> {
        let rtnl = self.rtnl(place)?;
        if let Some(name) = master {
            let found = rtnl.link_by_name(name);
            return found.or_say(|error| format!("failed to lookup master {name:?}: {error}"));
        }
        for family in [Family::V4, Family::V6] {
            let routes = rtnl.routes(family, TABLE_MAIN, None)?;
            let mut defaults = routes.iter().filter(|route| route.is_default());
            let oif = defaults.find_map(|route| route.oif.or(route.nexthops.first().map(|hop| hop.oif)));
            if let Some(index) = oif {
                return Ok(rtnl.link_by_index(index)?);
            }
        }
        Err(Failure::internal("no default route interface found"))
    }

    /// [`Sys::parent`] with the MTU that a link on it gets: the configured one, or `None` for the parent's.
    ///
    /// # Errors
    /// When there is none, or the MTU does not fit it.
    pub fn parent_and_mtu(
        &mut self,
        place: Place,
        master: Option<&str>,
        mtu: i64,
    ) -> Result<(Link, Option<u32>), Failure> {
        let parent = match master {
            None => self.parent(place, None)?,
            Some(name) => self.rtnl(place)?.link_by_name(name).map_err(|source| {
                // In the reference's words for plugins that also want the MTU.
                let mut failure = Failure::from(source);
                failure.add_details(&format!("master {name:?}"));
                failure
            })?,
        };
        match u32::try_from(mtu) {
            Ok(mtu) if mtu <= parent.mtu => Ok((parent, (mtu != 0).then_some(mtu))),
            _ => {
                let text = format!("invalid MTU {mtu}, must be [0, master MTU({})]", parent.mtu);
                Err(Failure::invalid_config(text))
            }
        }
    }

    /// The container's number for the namespace that the parent is in; `None` when that is the container's own. A link
    /// asked for from inside the container with this number gets its final name whatever names the host has.
    ///
    /// # Errors
    /// When the kernel refuses; those of [`NetNs::identity`].
    pub fn parent_nsid(&mut self, place: Place) -> Result<Option<i32>, Failure> {
        let home = NetNs::current()?;
        match (place, self.pod()) {
            (Place::Host, Some(pod)) if pod.netns.identity()? != home.identity()? => {
                Ok(Some(pod.rtnl.ensure_nsid(home.as_fd())?))
            }
            _ => Ok(None),
        }
    }
}
