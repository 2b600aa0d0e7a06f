// SPDX-License-Identifier: Apache-2.0
//! A veth pair between container and host, each end created where it belongs under its final name
//! (reference: `pkg/ip/link_linux.go`).

use std::hash::{BuildHasher, Hasher};
use std::os::fd::AsFd;

use cnibox_netlink::{Error, Link, LinkChange, Mac, VethSpec};
use cnibox_netns::{NetNs, sysctl};
use cnibox_spec::{Code, IfName};

use super::attach::is_name_pattern;
use crate::call::{Failure, Place, Sys, Txn, Undo};

/// What is wanted of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethPlan {
    /// The container end's name.
    pub ifname: IfName,
    /// MTU of both ends in bytes; `None` leaves the kernel's.
    pub mtu: Option<u32>,
    /// The container end's MAC; `None` lets the kernel choose.
    pub mac: Option<Mac>,
}

/// A pair. Both ends are down.
#[derive(Clone, Debug)]
pub struct Veth {
    /// The host end.
    pub host: Link,
    /// The container end.
    pub pod: Link,
}

impl Txn<'_, '_> {
    /// Creates a pair from inside the container's namespace with the host end directly in ours. The host end has no
    /// transmit queue, as the reference leaves it. Its name is noted before it is tried: the kernel takes no alias for a link
    /// that is being made, so whoever is killed right behind that has left a link that only its name gives away.
    ///
    /// # Errors
    /// When there is an interface of that name, or the kernel refuses.
    pub fn veth_add(&mut self, plan: &VethPlan) -> Result<Veth, Failure> {
        if is_name_pattern(&plan.ifname) {
            // The kernel would choose another name for the container's end.
            return Err(Failure::new(Code::INTERNAL, "failed to make veth pair: Link not found"));
        }
        self.sys().attempt_begins()?;
        let undo = Undo::Link { place: Place::Pod, name: plan.ifname.to_string() };
        let peer = self.step(undo, |sys| sys.veth_make(plan))?;
        self.shared(|sys| sys.veth_look(plan, &peer))
    }
}

impl Sys<'_> {
    /// Makes the pair and answers with the host end's name.
    fn veth_make(&mut self, plan: &VethPlan) -> Result<String, Failure> {
        let home = NetNs::current()?;
        for _ in 0..NAME_ATTEMPTS {
            let peer = random_name();
            self.attempt_announces_link(&peer);
            let rtnl = self.rtnl(Place::Pod)?;
            let spec = VethSpec {
                name: plan.ifname.as_str(),
                mac: plan.mac,
                peer_name: &peer,
                peer_netns: Some(home.as_fd()),
                mtu: plan.mtu,
            };
            match rtnl.link_add_veth(&spec) {
                Ok(()) => return Ok(peer),
                Err(error) if !error.is_exists() => {
                    return Err(Failure::from(error).prefixed("failed to make veth pair: "));
                }
                Err(_) if rtnl.link_by_name_if_present(plan.ifname.as_str())?.is_some() => {
                    let ifname = plan.ifname.as_str();
                    let msg =
                        format!("container veth name ({ifname:?}) peer provided ({peer:?}) already exists");
                    return Err(Failure::new(Code::INTERNAL, msg));
                }
                // The host end's name is taken: another one.
                Err(_) => {}
            }
        }
        Err(Failure::new(Code::INTERNAL, "failed to find a unique veth name"))
    }

    fn veth_look(&mut self, plan: &VethPlan, peer: &str) -> Result<Veth, Failure> {
        let unfound =
            |name: &str, error| Failure::from(error).prefixed(&format!("failed to lookup {name:?}: "));
        let ifname = plan.ifname.as_str();
        let pod = self.rtnl(Place::Pod)?.link_by_name(ifname).map_err(|error| unfound(ifname, error))?;
        let host = self.host()?.link_by_name(peer).map_err(|error| unfound(peer, error))?;
        Ok(Veth { host, pod })
    }

    /// Brings up the host end, with what else is to `change` of it. It takes no router advertisements.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn veth_host_up(&mut self, veth: &Veth, change: LinkChange) -> Result<(), Error> {
        // "we want to own the routes": missing without IPv6, so nobody minds a failure.
        let _ = sysctl::write(&sysctl::conf("ipv6", &veth.host.name, "accept_ra"), "0");
        self.host()?.link_set(change.up())
    }
}

/// `veth` and eight hexadecimal digits: NetworkManager and others leave such names alone.
#[must_use]
pub fn random_name() -> String {
    // The standard library seeds its hashers from the kernel's random numbers.
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("veth{:08x}", random & 0xffff_ffff)
}

const NAME_ATTEMPTS: u32 = 10;
