// SPDX-License-Identifier: Apache-2.0
//! Proof of death: whether an earlier attempt at an attachment may be taken down. Looks, and changes nothing but claims to
//! addresses behind which there is nobody.
//!
//! | the ledger says | and | verdict |
//! | --- | --- | --- |
//! | begun | a process holds the record | living: its ADD runs |
//! | begun | nobody does | dead: the process that began it is gone |
//! | failed | | dead |
//! | begun, failed | the container has another interface of that name than it made, or what it made is another's by now | living |
//! | finished | its link is there, or may be | living |
//! | finished | its link is gone, or what it leads to is | dead |
//! | finished | the link's mark says `failed` | dead |
//! | nothing | the container's interface leads to a link whose mark says `failed` | dead |
//! | nothing | the container has the interface | living |
//! | nothing | it has not | nothing is known of any attempt, and nothing is taken down |
//!
//! What cannot be found out is living. A dead attempt is taken down whole or not at all: one whose interface is in a
//! namespace that cannot be reached counts as living, and so does one whose address somebody has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cnibox_netlink::{Addr, Link, Monitor, Multicast, Rtnl};
use cnibox_netns::NetNs;
use cnibox_spec::{Attachment, LiveAttachment, NetnsPath, NetworkName};

use crate::call::{Failure, Place, Pod, Sys};
use crate::ledger::{Ledger, Mark, Namespace, PodLink, Progress, Record, Remains, Stage};

/// What is known of an earlier attempt at this attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// Nothing.
    Unknown,
    /// It lives, or may.
    Living,
    /// It is dead.
    Dead(Remains),
}

/// Whether an attachment's interface is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    There,
    Gone,
    /// Nobody can tell.
    Unclear,
}

impl Sys<'_> {
    /// What is known of an earlier attempt at the attachment of this call, of which this is the record as it was found. The
    /// container's namespace is open.
    pub(crate) fn earlier(&mut self, record: &Record) -> Result<Earlier, Failure> {
        if record.progress == Progress::Foreign {
            return self.earlier_by_mark(&record.attachment);
        }
        if Ledger::of_host().is_held(&record.attachment) {
            return Ok(Earlier::Living);
        }
        let here = self.namespace_of_pod()?;
        let made_here =
            here.as_ref().zip(record.namespace.as_ref()).is_some_and(|(here, made)| here.is_same(made));
        match record.progress {
            Progress::Begun | Progress::Failed => self.earlier_unfinished(record, made_here),
            Progress::Finished | Progress::Foreign => self.earlier_finished(record, made_here),
        }
    }

    /// Without a record: the container's interface leads to the host's end, which may be marked.
    fn earlier_by_mark(&mut self, attachment: &Attachment) -> Result<Earlier, Failure> {
        let Some(pod) = self.rtnl(Place::Pod)?.link_by_name_if_present(attachment.ifname.as_str())? else {
            return Ok(Earlier::Unknown);
        };
        let host = pod.peer_index.filter(|_| pod.is_kind("veth"));
        let host = host.map(|index| self.host()?.link_by_index(index)).and_then(Result::ok);
        let stage = host.and_then(|host| Mark::of(attachment).stage_of(&host));
        let netns = self.pod().map(|pod| pod.path.clone());
        Ok(match stage {
            Some(Stage::Failed) => Earlier::Dead(Remains { netns, addresses: None }),
            Some(Stage::Ready) | None => Earlier::Living,
        })
    }

    /// Its record says that it is dead; what is left to find out is whether all of it can be reached.
    fn earlier_unfinished(&mut self, record: &Record, made_here: bool) -> Result<Earlier, Failure> {
        let dead = |netns| Ok(Earlier::Dead(Remains { netns, addresses: known_addresses(record) }));
        let Some(namespace) = &record.namespace else { return dead(None) };
        let is_anothers = taken_over_by(record).is_some();
        if made_here {
            if is_anothers || self.is_made_anew(record)? {
                return Ok(Earlier::Living);
            }
            return dead(self.pod().map(|pod| pod.path.clone()));
        }
        // An end on the host leads to the other one wherever that is; what is another's leads nowhere.
        if record.host_link.is_some() || is_anothers {
            return dead(None);
        }
        if let Some(mut there) = reach(namespace) {
            let has_it = match record.pod_link {
                Some(link) => there.rtnl.link_by_index_if_present(link.index)?.is_some(),
                None => true,
            };
            return dead(has_it.then_some(there.path));
        }
        match record.pod_link {
            Some(_) if !self.is_going(record)? => Ok(Earlier::Living),
            _ => dead(None),
        }
    }

    /// Whether the container has another interface of that name by now than the attempt made: DEL and ADD of plugins that keep
    /// no ledger leave the record as it was.
    fn is_made_anew(&mut self, record: &Record) -> Result<bool, Failure> {
        let ifname = record.attachment.ifname.as_str();
        let found = self.rtnl(Place::Pod)?.link_by_name_if_present(ifname)?;
        found.map_or(Ok(false), |found| self.is_another_than_made(record, &found))
    }

    /// Whether the container's interface `found` is another than the attempt made.
    pub(crate) fn is_another_than_made(&mut self, record: &Record, found: &Link) -> Result<bool, Failure> {
        if let Some(made) = record.pod_link {
            return Ok(made.index != found.index);
        }
        if record.host_link.is_none() {
            return Ok(false);
        }
        let host = self.host_link_of(record)?;
        Ok(host
            .is_none_or(|host| found.peer_index != Some(host.index) || host.peer_index != Some(found.index)))
    }

    fn earlier_finished(&mut self, record: &Record, made_here: bool) -> Result<Earlier, Failure> {
        let netns = self.pod().map(|pod| pod.path.clone()).filter(|_| made_here);
        if let Some(link) = self.host_link_of(record)?
            && Mark::of(&record.attachment).stage_of(&link) == Some(Stage::Failed)
        {
            return Ok(Earlier::Dead(Remains { netns, addresses: known_addresses(record) }));
        }
        if self.presence(record)? != Presence::Gone && !self.is_going(record)? {
            return Ok(Earlier::Living);
        }
        // An interface of that name is another's: of a plugin that keeps no ledger.
        let ifname = record.attachment.ifname.as_str();
        if self.rtnl(Place::Pod)?.link_by_name_if_present(ifname)?.is_some() {
            return Ok(Earlier::Living);
        }
        Ok(Earlier::Dead(Remains { netns: None, addresses: known_addresses(record) }))
    }

    /// Whether the interface goes within a moment: its namespace's path has gone, but who was in there may still be ending,
    /// and runtimes that have removed one try again at once.
    fn is_going(&mut self, record: &Record) -> Result<bool, Failure> {
        self.is_gone_by(record, Instant::now() + LINGER)
    }

    /// Waits for the interfaces of the network's attachments that are not among the `living`, as far as they go within a
    /// moment: for all of them as long as for one. A call that was killed leaves a socket that holds the container's namespace
    /// for a grace period more (`netlink_release` of `net/netlink/af_netlink.c`).
    pub fn going_awaited(&mut self, network: &NetworkName, living: &[LiveAttachment]) {
        let deadline = Instant::now() + LINGER;
        for record in Ledger::of_host().stale(network, living) {
            // One of which the kernel does not tell is for the caller to judge.
            let _ = self.is_gone_by(&record, deadline);
        }
    }

    fn is_gone_by(&mut self, record: &Record, deadline: Instant) -> Result<bool, Failure> {
        if record.namespace.as_ref().is_none_or(|namespace| reach(namespace).is_some()) {
            return Ok(false);
        }
        let mut numbers = Monitor::of(Multicast::Nsid)?;
        while self.presence(record)? == Presence::There {
            if !numbers.wait_any(deadline)? {
                // That nobody holds a namespace any more is no news before the kernel gets to its end.
                break;
            }
        }
        Ok(self.presence(record)? == Presence::Gone)
    }

    /// Whether the attachment of a record may live: nothing shows that its interface is gone.
    pub fn may_live(&mut self, record: &Record) -> bool {
        !matches!(self.presence(record), Ok(Presence::Gone))
    }

    /// Whether the ledger knows of the attachment and its interface is there, wherever that is.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn has_interface(&mut self, attachment: &Attachment) -> Result<bool, Failure> {
        let record = Ledger::of_host().read(attachment);
        record.map_or(Ok(false), |record| Ok(self.presence(&record)? == Presence::There))
    }

    /// Whether the interface of this call's attachment may live although its namespace at `named` cannot be opened: the
    /// ledger shows that it does, or the runtime has named no namespace and nothing shows that it is gone.
    pub fn interface_may_live(&mut self, named: Option<&NetnsPath>) -> bool {
        let Some((record, plugin)) = self.turn.as_ref().map(|turn| (turn.record.clone(), turn.plugin)) else {
            return named.is_none();
        };
        if record.shares.get(plugin).is_some_and(|share| share.superseded) {
            return false;
        }
        match self.presence(&record) {
            Ok(Presence::There) => !self.is_going(&record).unwrap_or(false),
            Ok(Presence::Gone) => false,
            Ok(Presence::Unclear) | Err(_) => named.is_none(),
        }
    }

    /// Whether the attachment's interface is there.
    pub(crate) fn presence(&mut self, record: &Record) -> Result<Presence, Failure> {
        if record.host_link.is_some() {
            return Ok(match self.host_link_of(record)? {
                Some(link) if !self.is_dying(&link)? => Presence::There,
                _ => Presence::Gone,
            });
        }
        let (Some(link), Some(namespace)) = (record.pod_link, &record.namespace) else {
            return Ok(Presence::Unclear);
        };
        match reach(namespace) {
            // The container may have moved it to a namespace of its own.
            Some(mut there) => Ok(match there.rtnl.link_by_index(link.index) {
                Ok(_) => Presence::There,
                Err(_) => Presence::Unclear,
            }),
            None => self.presence_by_nsid(link),
        }
    }

    /// Whether nobody holds the namespace any more in which the other end of the host's link is: the kernel takes both away,
    /// now or when it has ended many others.
    fn is_dying(&mut self, link: &Link) -> Result<bool, Failure> {
        let Some(nsid) = link.peer_netns_id else { return Ok(false) };
        let rtnl = self.host()?;
        if nsid == DYING {
            return Ok(true);
        }
        if rtnl.nsid_is_held(nsid)? {
            return Ok(false);
        }
        // The end may have been moved elsewhere between the two looks.
        let now = rtnl.link_by_index_if_present(link.index)?;
        Ok(now.is_none_or(|now| [Some(nsid), Some(DYING)].contains(&now.peer_netns_id)))
    }

    fn presence_by_nsid(&mut self, link: PodLink) -> Result<Presence, Failure> {
        let found = self.host()?.link_in(link.nsid, link.index)?;
        // The number may be another namespace's by now.
        Ok(if found.is_some_and(|found| found.mac.map(|mac| mac.0) == link.mac) {
            Presence::There
        } else {
            Presence::Gone
        })
    }

    /// The host's end of the attachment's interface. One that was made and had no time to be marked is known by its
    /// name alone, which is random.
    pub(crate) fn host_link_of(&mut self, record: &Record) -> Result<Option<Link>, Failure> {
        let Some(name) = &record.host_link else { return Ok(None) };
        let found = self.host()?.link_by_name_if_present(name)?;
        let mark = Mark::of(&record.attachment);
        let is_unmarked = |link: &Link| link.alias.as_deref().unwrap_or_default().is_empty();
        Ok(found.filter(|link| mark.stage_of(link).is_some() || link.is_kind("veth") && is_unmarked(link)))
    }

    /// Those of `addresses` that somebody has: this namespace, or one that it has a number for. What a container gives itself
    /// is its own affair: one that the ledger knows has what is noted of it, and what is on other interfaces that the host has
    /// given it. What is noted of the attachment `but` is no other's, and says nothing of what else is where that was made.
    /// Every namespace is asked.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn in_use_among(
        &mut self,
        addresses: &BTreeSet<IpAddr>,
        but: Option<&Attachment>,
    ) -> Result<BTreeSet<IpAddr>, Failure> {
        if addresses.is_empty() {
            return Ok(BTreeSet::new());
        }
        let rtnl = self.host()?;
        let asked = |addr: &Addr| addresses.contains(&addr.net.ip());
        let mut in_use: BTreeSet<_> =
            rtnl.addrs_in(None)?.iter().filter(|addr| asked(addr)).map(|addr| addr.net.ip()).collect();
        let mut elsewhere = Vec::new();
        for nsid in rtnl.nsids()? {
            elsewhere.extend(rtnl.addrs_in(Some(nsid))?.into_iter().filter(asked).map(|addr| (nsid, addr)));
        }
        if elsewhere.is_empty() {
            return Ok(in_use);
        }
        let (own, others): (Vec<_>, Vec<_>) =
            Ledger::of_host().all().into_iter().partition(|record| but == Some(&record.attachment));
        let (own, others) = (self.noted(own)?, self.noted(others)?);
        for (nsid, addr) in elsewhere {
            let address = addr.net.ip();
            let own = own.get(&nsid);
            let counts = match others.get(&nsid) {
                Some(noted) if noted.addresses.contains(&address) => true,
                Some(noted) => {
                    let is_noted = noted.links.contains(&addr.index)
                        || own.is_some_and(|own| own.links.contains(&addr.index));
                    !is_noted && self.is_of_host(nsid, addr.index)?
                }
                None => own.is_none_or(|own| !own.addresses.contains(&address)),
            };
            if counts {
                in_use.insert(address);
            }
        }
        Ok(in_use)
    }

    /// What is noted in `records`, by the host's number for the namespace in which the interface is, and for the one in which
    /// it was made.
    fn noted(&mut self, records: Vec<Record>) -> Result<BTreeMap<i32, Noted>, Failure> {
        let mut all: BTreeMap<i32, Noted> = BTreeMap::new();
        for record in records {
            let made = record.namespace.as_ref().and_then(reach);
            let made = made
                .map(|there| self.host()?.nsid(there.netns.as_fd()).map_err(Failure::from))
                .transpose()?;
            let interface = self.interface_of(&record)?;
            for nsid in [interface.map(|(nsid, _)| nsid), made.flatten()].into_iter().flatten() {
                all.entry(nsid).or_default().addresses.extend(&record.addresses);
            }
            if let Some((nsid, index)) = interface {
                all.entry(nsid).or_default().links.insert(index);
            }
        }
        Ok(all)
    }

    /// Where the interface of a record is: the host's number for the namespace, and its index there.
    fn interface_of(&mut self, record: &Record) -> Result<Option<(i32, u32)>, Failure> {
        if record.host_link.is_some() {
            let link = self.host_link_of(record)?;
            return Ok(link.and_then(|link| link.peer_netns_id.zip(link.peer_index)));
        }
        let Some(link) = record.pod_link else { return Ok(None) };
        Ok((self.presence_by_nsid(link)? == Presence::There).then_some((link.nsid, link.index)))
    }

    /// Whether only the host can have given the namespace this link.
    fn is_of_host(&mut self, nsid: i32, index: u32) -> Result<bool, Failure> {
        let Some(link) = self.host()?.link_in(nsid, index)? else { return Ok(false) };
        self.came_from_host(Place::Host, &link)
    }

    /// Whether only the host can have given a container `link`, of which the namespace at `asked` has told: it is one of the
    /// machine's devices, or its other end or parent is in this namespace.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn came_from_host(&mut self, asked: Place, link: &Link) -> Result<bool, Failure> {
        let Some(of) = link.peer_netns_id else { return Ok(link.kind.is_none() && link.index != LOOPBACK) };
        let here = NetNs::current()?;
        Ok(self.rtnl(asked)?.nsid(here.as_fd())? == Some(of))
    }

    /// Whether a living attachment was given the address of this network. A cheap look: mostly there is no note of it.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn address_is_held(&mut self, network: &NetworkName, address: IpAddr) -> Result<bool, Failure> {
        let ledger = Ledger::of_host();
        let Some(owner) = ledger.claimant(network, address) else { return Ok(false) };
        let Ok(record) = ledger.read_or_fail(&owner) else { return Ok(true) };
        match record.filter(|record| record.addresses.contains(&address)) {
            Some(record) => Ok(self.presence(&record)? == Presence::There),
            None => {
                ledger.disclaim(address, &owner);
                Ok(false)
            }
        }
    }

    /// Of the addresses, which this call's attachment once had, those that are somebody else's by now, so that what is keyed
    /// by them is theirs: those of living attachments for which this plugin has noted something, too, of this network or of
    /// one whose addresses overlap; or, once the attachment's own interface is gone, anybody's. A plugin without a ledger may
    /// have made that one. The attachment's interface would be in the namespace at `netns`.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn addresses_of_others(
        &mut self,
        addresses: &BTreeSet<IpAddr>,
        netns: Option<&NetnsPath>,
    ) -> Result<BTreeSet<IpAddr>, Failure> {
        let Some(turn) = &self.turn else { return Ok(BTreeSet::new()) };
        let (record, plugin) = (turn.record.clone(), turn.plugin);
        let own = &record.attachment;
        let mut of_others = BTreeSet::new();
        for (address, other) in Ledger::of_host().claimants(addresses) {
            let is_anothers = other.attachment != *own && other.shares.contains_key(plugin);
            if is_anothers && self.presence(&other)? == Presence::There {
                of_others.insert(address);
            }
        }
        let is_known = record.progress != Progress::Foreign;
        if is_known && self.presence(&record)? != Presence::Gone {
            return Ok(of_others);
        }
        // What the ledger says is gone may have been made again by somebody who does not write there.
        let is_reached = netns.is_some_and(|netns| matches!(self.open_pod_if_present(netns), Ok(Some(_))));
        let still_its = match is_reached {
            true => self.pod_addresses(|name| name == own.ifname.as_str()).ok(),
            false => is_known.then(Vec::new),
        };
        let Some(still_its) = still_its else { return Ok(of_others) };
        // Every namespace is asked, but only where nothing else tells, and once for all of them.
        let given_up = addresses.iter().filter(|address| !still_its.contains(address)).copied().collect();
        of_others.extend(self.in_use_among(&given_up, Some(own))?);
        Ok(of_others)
    }

    /// The container's namespace, to be known again.
    pub(crate) fn namespace_of_pod(&mut self) -> Result<Option<Namespace>, Failure> {
        Ok(self.pod().map(|pod| namespace_of(pod)).transpose()?)
    }
}

/// The other attachment, which lives or is being made, whose interface the one is by now that the record says was made: a
/// device of the host that was given back by somebody who had no time to say so, and was lent again. Reads all of the
/// ledger.
pub(crate) fn taken_over_by(record: &Record) -> Option<Attachment> {
    let (link, namespace) = (record.pod_link?, record.namespace.as_ref()?);
    let ledger = Ledger::of_host();
    let has_it = |other: &Record| other.attachment != record.attachment && other.made(link.index, namespace);
    let lives = |other: &Record| other.progress == Progress::Finished || ledger.is_held(&other.attachment);
    let taker = ledger.all().into_iter().find(|other| has_it(other) && lives(other));
    taker.map(|other| other.attachment)
}

/// Whether what is at the path is certainly another namespace.
pub(crate) fn is_other_than(namespace: &Namespace, path: &NetnsPath) -> bool {
    let found = NetNs::open(path.as_str()).and_then(|netns| netns.identity());
    found.is_ok_and(|found| found != namespace.inode)
}

/// The namespace, if it is still where it was.
pub(crate) fn reach(namespace: &Namespace) -> Option<Pod> {
    let netns = NetNs::open(&namespace.path).ok()?;
    let rtnl = netns.run(Rtnl::open).ok()?.ok()?;
    let there = Pod { path: NetnsPath::new(&namespace.path)?, netns, rtnl };
    namespace.is_same(&namespace_of(&there).ok()?).then_some(there)
}

/// The namespace, to be known again.
fn namespace_of(pod: &Pod) -> Result<Namespace, cnibox_netns::Error> {
    Ok(Namespace {
        path: pod.path.as_str().to_owned(),
        inode: pod.netns.identity()?,
        cookie: pod.rtnl.netns_cookie(),
    })
}

/// What the ledger says of a namespace.
#[derive(Default)]
struct Noted {
    addresses: BTreeSet<IpAddr>,
    /// Indexes of the interfaces.
    links: BTreeSet<u32>,
}

fn known_addresses(record: &Record) -> Option<Vec<IpAddr>> {
    let silent = record.addresses.is_empty() && record.progress == Progress::Begun;
    (!silent).then(|| record.addresses.clone())
}

/// The number of a namespace that nobody holds any more and whose end the kernel is working at
/// (`NETNSA_NSID_NOT_ASSIGNED`; `peernet2id_alloc` of `net/core/net_namespace.c`).
const DYING: i32 = -1;
/// The index of every namespace's loopback (`LOOPBACK_IFINDEX` of `include/net/flow.h`).
const LOOPBACK: u32 = 1;
/// A namespace that nobody holds ends within this time on a machine that is not overloaded; one that lives costs it.
const LINGER: Duration = Duration::from_secs(2);
