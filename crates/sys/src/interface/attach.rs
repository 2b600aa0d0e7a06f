// SPDX-License-Identifier: Apache-2.0
//! ADD, as far as it is the same for every plugin with one interface in the container: create it there, ask the IPAM
//! plugin, configure, report. Each step is taken back when a later one fails.

use cnibox_netlink::{Error, Link, LinkChange};
use cnibox_netns::sysctl;
use cnibox_spec::{CniResult, CniVersion, Dns, IfName, Interface, NetnsPath, check_expressible, quoted};

use crate::call::{Failure, Place, Pod, Sys, Txn, Undo};

/// What an attachment of a single interface reports and how its interface is configured.
#[derive(Clone, Debug)]
pub struct PodPlan<'a> {
    /// The container's namespace.
    pub netns: &'a NetnsPath,
    /// The result's DNS; `None` keeps the IPAM plugin's.
    pub dns: Option<Dns>,
    /// How the interface announces its addresses, if it does.
    pub announce: Option<Announce>,
    /// The version that the result is printed for.
    pub version: CniVersion,
}

/// How an interface announces addresses: settings that are made before it gets any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// Gratuitous ARP (`arp_notify`).
    Arp,
    /// Gratuitous ARP and unsolicited neighbour advertisements (`ndisc_notify`).
    ArpAndNeighbours,
}

impl Sys<'_> {
    /// [`Sys::open_pod`] with the text that interface plugins put in front of a failure.
    ///
    /// # Errors
    /// Those of [`Sys::open_pod`].
    pub fn open_pod_named(&mut self, netns: &NetnsPath) -> Result<&mut Pod, Failure> {
        self.open_pod(netns).map_err(|failure| unopened(failure, netns))
    }

    /// [`Sys::open_pod_if_present`] with the words of [`Sys::open_pod_named`].
    ///
    /// # Errors
    /// Those of [`Sys::open_pod_if_present`].
    pub fn open_pod_named_if_present(&mut self, netns: &NetnsPath) -> Result<Option<&mut Pod>, Failure> {
        self.open_pod_if_present(netns).map_err(|failure| unopened(failure, netns))
    }
}

fn unopened(failure: Failure, netns: &NetnsPath) -> Failure {
    failure.prefixed(&format!("failed to open netns {}: ", quoted(netns.as_str())))
}

impl<'h> Txn<'_, 'h> {
    /// Creates the container's interface. `kind` is what messages call it.
    ///
    /// # Errors
    /// What the kernel says, or what `create` fails with before it asks the kernel.
    pub fn pod_link_add(
        &mut self,
        kind: &'static str,
        ifname: &IfName,
        create: impl FnOnce(&mut Sys<'h>) -> Result<Result<(), Error>, Failure>,
    ) -> Result<Link, Failure> {
        let failed =
            |what: String, error: Error| Failure::from(error).prefixed(&format!("failed to {what}: "));
        let refetched = |error| failed(format!("refetch {kind} {:?}", ifname.as_str()), error);
        if is_name_pattern(ifname) {
            return Err(refetched(Error::LinkNotFound));
        }
        self.sys().attempt_begins()?;
        self.sys().attempt_announces();
        self.step(Undo::Link { place: Place::Pod, name: ifname.to_string() }, |sys| match create(sys)? {
            // Other things than the name can be taken, such as a VLAN. The reference finds a taken name when it renames.
            Err(error)
                if error.is_exists()
                    && !CREATED_IN_PLACE.contains(&kind)
                    && sys.rtnl(Place::Pod)?.link_by_name_if_present(ifname.as_str())?.is_some() =>
            {
                Err(failed(format!("rename {kind} to {:?}", ifname.as_str()), error))
            }
            made => made.map_err(|error| failed(format!("create {kind}"), error)),
        })?;
        self.shared(|sys| {
            let link = sys.rtnl(Place::Pod)?.link_by_name(ifname.as_str());
            let link = link.map_err(refetched)?;
            sys.attempt_made_link(&link)?;
            Ok::<_, Failure>(link)
        })
    }

    /// Configures the container's interface `link` with the IPAM plugin's answer, or just brings it up, and reports it
    /// as the only interface.
    ///
    /// # Errors
    /// What the kernel says; a result that the plan's version cannot express.
    pub fn pod_configure(
        &mut self,
        link: &Link,
        ipam: Option<CniResult>,
        plan: &PodPlan<'_>,
    ) -> Result<CniResult, Failure> {
        let mut result = match ipam {
            None => {
                self.shared(|sys| sys.pod_link_up(link))?;
                CniResult::default()
            }
            Some(result) => result,
        };
        result.interfaces = vec![pod_interface(link, plan.netns)];
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
        if !result.ips.is_empty() {
            self.shared(|sys| {
                plan.announce.map_or(Ok(()), |announce| sys.announce(link, announce))?;
                sys.interface_configure(link, &result)
            })?;
            // Before 0.3.0 there is no result without addresses; as with the reference, such an interface stays all
            // the same.
            check_expressible(plan.version, &result)?;
        }
        if let Some(dns) = &plan.dns {
            result.dns = dns.clone();
        }
        Ok(result)
    }
}

/// Whether the kernel would take the name for a pattern (`eth%d`) and choose another, which nobody would find (`dev_alloc_name`
/// in net/core/dev.c). The reference finds that out when it looks for the name.
#[must_use]
pub fn is_name_pattern(ifname: &IfName) -> bool {
    ifname.as_str().contains("%d")
}

impl Sys<'_> {
    /// Makes the settings. As in the reference nobody minds a failure: IPv6 may be missing altogether.
    fn announce(&mut self, link: &Link, announce: Announce) -> Result<(), Failure> {
        let _ = self.rtnl(Place::Pod)?.link_set(LinkChange::new(link.index).arp_notify());
        if announce == Announce::ArpAndNeighbours {
            let name = sysctl::conf("ipv6", &link.name, "ndisc_notify");
            let _ = self.inside(Place::Pod, || sysctl::write(&name, "1"))?;
        }
        Ok(())
    }

    /// Tells the neighbours of the addresses of the container's interface `link`, which has `arp_notify` set, once more. What
    /// it said when it came up is lost where the host's end is a bridge's port, which does not forward before the kernel
    /// has seen its carrier; and who remembers the last owner of an address goes on sending to that one, for up to eight
    /// seconds (`neigh_timer_handler` in net/core/neighbour.c: five until it doubts, three questions to the old
    /// owner). The kernel tells whenever a hardware address is set, also to what it is (`inetdev_event` in
    /// net/ipv4/devinet.c, `ndisc_netdev_event` in net/ipv6/ndisc.c). Nobody minds a failure.
    ///
    /// # Errors
    /// When the container's namespace cannot be entered.
    pub fn announce_again(&mut self, link: &Link, has_ipv6: bool) -> Result<(), Failure> {
        let Some(mac) = link.mac else { return Ok(()) };
        let notify = sysctl::conf("ipv6", &link.name, "ndisc_notify");
        let former = if has_ipv6 {
            let on = || sysctl::read(&notify).and_then(|former| sysctl::write(&notify, "1").map(|()| former));
            self.inside(Place::Pod, on)?.ok()
        } else {
            None
        };
        let _ = self.rtnl(Place::Pod)?.link_set(LinkChange::new(link.index).mac(mac));
        if let Some(former) = former {
            let _ = self.inside(Place::Pod, || sysctl::write(&notify, &former))?;
        }
        Ok(())
    }
}

/// A link of the host as results list it.
#[must_use]
pub fn host_interface(link: &Link) -> Interface {
    Interface { name: link.name.clone(), mac: link.mac_text(), ..Interface::default() }
}

/// A link of the container as results list it.
#[must_use]
pub fn pod_interface(link: &Link, netns: &NetnsPath) -> Interface {
    Interface { sandbox: netns.as_str().to_owned(), ..host_interface(link) }
}

/// Kinds that the reference, too, creates under their final name.
const CREATED_IN_PLACE: &[&str] = &["dummy"];
