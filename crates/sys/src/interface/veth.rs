// SPDX-License-Identifier: Apache-2.0
//! A veth pair between container and host, each end created where it belongs under its final name
//! (reference: `pkg/ip/link_linux.go`).

use std::hash::{BuildHasher, Hasher};
use std::os::fd::AsFd;

use cnibox_netlink::{Error, Link, LinkChange, Mac, VethSpec, unless};
use cnibox_netns::{NetNs, sysctl};
use cnibox_spec::IfName;

use super::attach::is_name_pattern;
use crate::call::{Failure, OrSay, Place, Sys, Txn, Undo};

/// A pair. Both ends are down.
#[derive(Clone, Debug)]
pub struct Veth {
    /// The host end.
    pub host: Link,
    /// The container end.
    pub pod: Link,
}

impl Txn<'_, '_> {
    /// Creates a pair from inside the container's namespace with the host end directly in ours. `mtu` is of both ends, in
    /// bytes, `mac` the container end's; `None` leaves them to the kernel. The host end has no transmit queue, as the
    /// reference leaves it. Its name is noted before it is tried: the kernel takes no alias for a link that is being made, so
    /// whoever is killed right behind that has left a link that only its name gives away.
    ///
    /// # Errors
    /// When there is an interface of that name, or the kernel refuses.
    pub fn veth_add(&mut self, ifname: &IfName, mtu: Option<u32>, mac: Option<Mac>) -> Result<Veth, Failure> {
        if is_name_pattern(ifname) {
            // The kernel would choose another name for the container's end.
            return Err(Failure::internal("failed to make veth pair: Link not found"));
        }
        self.sys().attempt_begins()?;
        let undo = Undo::Link { place: Place::Pod, name: ifname.to_string() };
        let name = ifname.as_str();
        let peer = self.step(undo, |sys| sys.veth_make(name, mtu, mac))?;
        self.shared(|sys| sys.veth_look(name, &peer))
    }
}

impl Sys<'_> {
    /// Makes the pair and answers with the host end's name.
    fn veth_make(&mut self, name: &str, mtu: Option<u32>, mac: Option<Mac>) -> Result<String, Failure> {
        let home = NetNs::current()?;
        for _ in 0..NAME_ATTEMPTS {
            let peer = random_name();
            self.attempt_announces_link(&peer);
            let rtnl = self.rtnl(Place::Pod)?;
            let spec = VethSpec { name, mac, peer_name: &peer, peer_netns: Some(home.as_fd()), mtu };
            let made = unless(rtnl.link_add_veth(&spec), Error::is_exists);
            if made.or_say(|error| format!("failed to make veth pair: {error}"))?.is_some() {
                return Ok(peer);
            }
            if rtnl.link_by_name_if_present(name)?.is_some() {
                let msg = format!("container veth name ({name:?}) peer provided ({peer:?}) already exists");
                return Err(Failure::internal(msg));
            }
            // The host end's name is taken: another one.
        }
        Err(Failure::internal("failed to find a unique veth name"))
    }

    fn veth_look(&mut self, name: &str, peer: &str) -> Result<Veth, Failure> {
        let pod = self.rtnl(Place::Pod)?.link_by_name(name);
        let pod = pod.or_say(|error| format!("failed to lookup {name:?}: {error}"))?;
        let host = self.host()?.link_by_name(peer);
        let host = host.or_say(|error| format!("failed to lookup {peer:?}: {error}"))?;
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
