// SPDX-License-Identifier: Apache-2.0
//! Deletes connection tracking entries (`conntrack -D`): the kernel deletes by itself what matches, or where it cannot,
//! one listing for each address family and protocol tells what to delete.
//!
//! Needed where a forwarded port appears or goes: the kernel keeps sending packets of a known UDP flow where it sent them
//! before, whatever the rules say now.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use netlink_bindings::conntrack::{ConntrackAttrs, IterableTupleAttrs, PushConntrackAttrs};
use netlink_bindings::utils::{NLA_F_NESTED, find_attr, push_header};

use super::message::{ACK, DUMP, NFGENMSG, header, single};
use super::socket::Socket;
use crate::error::Result;
use crate::xt::{Family, Protocol};

/// `NFNL_SUBSYS_CTNETLINK << 8`
const CTNETLINK: u16 = 1 << 8;
const NEW: u16 = CTNETLINK;
const GET: u16 = CTNETLINK | 1;
const DELETE: u16 = CTNETLINK | 2;
const TUPLE_ORIG: u16 = 1;
const ID: u16 = 12;
const ZONE: u16 = 18;
/// `CTA_FILTER_FLAG(CTA_PROTO_NUM)`, `net/netfilter/nf_conntrack_netlink.c`
const FILTER_PROTOCOL: u32 = 1 << 3;
/// `CTA_FILTER_FLAG(CTA_PROTO_DST_PORT)`
const FILTER_DESTINATION_PORT: u32 = 1 << 5;
/// `CTA_FILTER_FLAG(CTA_IP_SRC)`
const FILTER_SOURCE: u32 = 1;
/// `CTA_FILTER_FLAG(CTA_IP_DST)`
const FILTER_DESTINATION: u32 = 1 << 1;
/// The kernel goes over all buckets for every filtered deletion; for more flows than this, one listing costs less.
const MOST_FILTERED: usize = 32;
const DELETING: &str = "delete connection tracking entries";

/// Entries whose first packet went to this port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Address family of the entries.
    pub family: Family,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Destination port of the original direction.
    pub port: u16,
    /// Destination address of the original direction; `None` for any.
    pub address: Option<IpAddr>,
    /// Source address of the other direction, where the packets were forwarded to; `None` for any.
    pub answered_by: Option<IpAddr>,
}

impl Flow {
    /// Whether the kernel's filter says the same. With IPv6 addresses it finds what has others
    /// (`ctnetlink_filter_match_tuple` takes `ipv6_addr_cmp` for a yes).
    fn is_filterable(&self) -> bool {
        [self.address, self.answered_by].into_iter().flatten().all(|address| address.is_ipv4())
    }

    /// The flow of one entry; `None` for an entry without ports, or of a protocol that no [`Flow`] has.
    fn parse(attrs: &[u8]) -> Option<Self> {
        let attrs = ConntrackAttrs::new(attrs);
        let original = attrs.get_tuple_orig().ok()?;
        let (ip, transport) = (original.get_tuple_ip().ok()?, original.get_tuple_proto().ok()?);
        let address =
            ip.get_ip_v4_dst().map(IpAddr::V4).or_else(|_| ip.get_ip_v6_dst().map(IpAddr::V6)).ok()?;
        Some(Self {
            family: Family::of(address),
            protocol: Protocol::from_number(transport.get_proto_num().ok()?)?,
            port: transport.get_proto_dst_port().ok()?,
            address: Some(address),
            answered_by: attrs.get_tuple_reply().ok().and_then(source),
        })
    }

    /// Whether an entry belongs to it.
    fn covers(&self, entry: &Self) -> bool {
        let fits = |wanted: Option<IpAddr>, found| wanted.is_none() || wanted == found;
        (self.family, self.protocol, self.port) == (entry.family, entry.protocol, entry.port)
            && fits(self.address, entry.address)
            && fits(self.answered_by, entry.answered_by)
    }
}

/// Deletes all entries that belong to one of `flows` in the network namespace of the calling thread.
///
/// # Errors
/// [`crate::Error::Kernel`] if the table cannot be read or changed, [`crate::Error::Socket`]. Entries that end meanwhile
/// are no error.
pub fn flush(flows: &[Flow]) -> Result<()> {
    if flows.is_empty() || is_empty() {
        return Ok(());
    }
    let mut socket = Socket::open()?;
    // ports change hands when rules go
    socket.note_deletion();
    let (filtered, mut listed): (Vec<Flow>, Vec<Flow>) = flows.iter().partition(|flow| flow.is_filterable());
    if filtered.len() > MOST_FILTERED || !delete_filtered(&mut socket, &filtered)? {
        listed.extend(filtered);
    }
    let mut passes: BTreeMap<(Family, Protocol), Vec<&Flow>> = BTreeMap::new();
    listed.iter().for_each(|flow| passes.entry((flow.family, flow.protocol)).or_default().push(flow));
    for ((family, _), wanted) in passes {
        let entries = matching(&mut socket, &wanted)?;
        delete(&mut socket, family, &entries)?;
    }
    Ok(())
}

/// Whether the namespace has no entry at all. A dump walks the buckets of all namespaces, some milliseconds even when
/// there is nothing to find; the count is the namespace's own. Unreadable means unknown.
fn is_empty() -> bool {
    std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count")
        .is_ok_and(|count| count.trim() == "0")
}

/// Has the kernel delete what matches, flow by flow. False if it does not know filtered deletions (before 6.8): it then
/// takes the filter's half tuple for a whole one and refuses it, having deleted nothing.
fn delete_filtered(socket: &mut Socket, flows: &[Flow]) -> Result<bool> {
    for flow in flows {
        let request = filtered(socket.sequence(1), (DELETE, ACK), flow, true);
        match socket.ask(&request, |(), _| {})? {
            Ok(()) => {}
            Err(refusal) if refusal.errno == libc::ENOENT => {}
            Err(refusal) if refusal.errno == libc::EINVAL => return Ok(false),
            Err(refusal) => return Err(refusal.into_error(DELETING.to_owned())),
        }
    }
    Ok(true)
}

/// What names an entry: the attributes that a deletion takes, as they came.
type Entry = Vec<(u16, Vec<u8>)>;

fn matching(socket: &mut Socket, flows: &[&Flow]) -> Result<Vec<Entry>> {
    let Some(first) = flows.first() else { return Ok(Vec::new()) };
    let one_port = flows.iter().all(|flow| flow.port == first.port);
    let one_address =
        flows.iter().all(|flow| (flow.address, flow.answered_by) == (first.address, first.answered_by));
    let is_exact = one_port && one_address && first.is_filterable();
    let request = filtered(socket.sequence(1), (GET, DUMP), first, is_exact);
    let mut by_port: HashMap<u16, Vec<&Flow>> = HashMap::new();
    flows.iter().for_each(|flow| by_port.entry(flow.port).or_default().push(flow));
    let is_wanted =
        |found: Flow| by_port.get(&found.port).into_iter().flatten().any(|flow| flow.covers(&found));
    let outcome = socket.ask(&request, |entries: &mut Vec<_>, message| {
        let attrs = message.body.get(NFGENMSG..).unwrap_or_default();
        if message.kind == NEW && Flow::parse(attrs).is_some_and(is_wanted) {
            entries.push(entry(attrs));
        }
    })?;
    outcome.map_err(|refusal| refusal.into_error("list connection tracking entries".to_owned()))
}

/// A request for the entries of the flow's family and protocol, and if `exact` only those of its port and addresses, for
/// which it has to be filterable.
///
/// Listing, the kernel filters from 5.8 on and ignores the filter before, so answers are checked in any case.
fn filtered(seq: u32, (kind, flags): (u16, u16), flow: &Flow, exact: bool) -> Vec<u8> {
    let mut filter = FILTER_PROTOCOL;
    single(seq, kind, flags, |buffer| {
        buffer.extend_from_slice(header(flow.family.into()).as_slice());
        let mut tuple = PushConntrackAttrs::new(buffer).nested_tuple_orig();
        if let Some(IpAddr::V4(address)) = flow.address.filter(|_| exact) {
            filter |= FILTER_DESTINATION;
            tuple = tuple.nested_tuple_ip().push_ip_v4_dst(address).end_nested();
        }
        let mut transport = tuple.nested_tuple_proto().push_proto_num(flow.protocol.number());
        if exact {
            filter |= FILTER_DESTINATION_PORT;
            transport = transport.push_proto_dst_port(flow.port);
        }
        let mut attrs = transport.end_nested().end_nested();
        let mut reply_filter = 0;
        if let Some(IpAddr::V4(address)) = flow.answered_by.filter(|_| exact) {
            reply_filter = FILTER_SOURCE;
            let tuple = attrs.nested_tuple_reply();
            attrs = tuple.nested_tuple_ip().push_ip_v4_src(address).end_nested().end_nested();
        }
        attrs.nested_filter().push_orig_flags(filter).push_reply_flags(reply_filter).end_nested();
    })
}

fn source(tuple: IterableTupleAttrs<'_>) -> Option<IpAddr> {
    let ip = tuple.get_tuple_ip().ok()?;
    ip.get_ip_v4_src().map(IpAddr::V4).or_else(|_| ip.get_ip_v6_src().map(IpAddr::V6)).ok()
}

fn entry(attrs: &[u8]) -> Entry {
    [TUPLE_ORIG, ID, ZONE]
        .into_iter()
        .filter_map(|kind| Some((kind, find_attr(attrs, kind)?.to_vec())))
        .collect()
}

fn delete(socket: &mut Socket, family: Family, entries: &[Entry]) -> Result<()> {
    for entry in entries {
        let request = single(socket.sequence(1), DELETE, ACK, |buffer| {
            buffer.extend_from_slice(header(family.into()).as_slice());
            for (kind, value) in entry {
                let kind = if *kind == TUPLE_ORIG { kind | NLA_F_NESTED } else { *kind };
                push_header(buffer, kind, u16::try_from(value.len()).unwrap_or(0));
                buffer.extend_from_slice(value);
            }
        });
        let _already_gone = socket.look_up(&request, || DELETING.to_owned(), |(), _| {})?;
    }
    Ok(())
}
