// SPDX-License-Identifier: Apache-2.0
//! Which rules are another attachment's although the names on them are this one's: the reference's chains hash network and
//! container without anything between them, native comments name the container only, and all interfaces of a container
//! on a network share both. Then the address that a rule leads to tells whose it is: by the ledger, and, of what plugins
//! without one have attached, by the container's other interfaces.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::net::IpAddr;

use cnibox_harness::Plugin;
use cnibox_spec::{Attachment, CniResult, NetnsPath};
use cnibox_sys::{Ledger, Record, Sys};

use crate::Portmap;
use crate::config::container_addresses;

/// What tells an attachment's rules from others'.
#[derive(Debug)]
pub(crate) struct Known {
    /// Whose the rules are meant to be.
    pub(crate) attachment: Attachment,
    /// What it was given, as far as that is noted or the runtime says so.
    pub(crate) own: HashSet<IpAddr>,
    /// What others have, whom nobody may have noted; see [`Known::beside`].
    beside: OnceCell<HashSet<IpAddr>>,
    /// Where the others are.
    netns: Option<NetnsPath>,
}

impl Known {
    /// Of an attachment whose ADD answered with `result`, beside other interfaces in the namespace at `netns`.
    pub(crate) fn of(
        attachment: &Attachment,
        result: Option<&CniResult>,
        netns: Option<&NetnsPath>,
        sys: &mut Sys<'_>,
    ) -> Self {
        let given = result.map(|result| container_addresses(result, attachment.ifname.as_str()));
        let own = noted(attachment).into_iter().collect();
        let beside = OnceCell::new();
        let mut known = Self { attachment: attachment.clone(), own, beside, netns: netns.cloned() };
        for address in given.into_iter().flatten().map(|address| address.ip()) {
            // What the runtime says may be long ago. What cannot be found out is somebody's.
            let is_anothers = !known.own.contains(&address)
                && (known.beside(sys).contains(&address)
                    || sys.address_is_held(&attachment.network, address).unwrap_or(true));
            if !is_anothers {
                known.own.insert(address);
            }
        }
        known
    }

    /// Of an attachment that is gone: an address that is `in_use` is somebody else's.
    pub(crate) fn of_gone(attachment: &Attachment, in_use: impl IntoIterator<Item = IpAddr>) -> Self {
        let beside: HashSet<_> = in_use.into_iter().collect();
        let own = noted(attachment).into_iter().filter(|address| !beside.contains(address)).collect();
        Self { attachment: attachment.clone(), own, beside: OnceCell::from(beside), netns: None }
    }

    /// What others have, whom nobody may have noted. They are looked for once, and only where a rule, or the runtime, names
    /// an address that is not noted as the attachment's.
    fn beside(&self, sys: &mut Sys<'_>) -> &HashSet<IpAddr> {
        self.beside.get_or_init(|| beside(&self.attachment, self.netns.as_ref(), sys))
    }
}

/// The addresses of those that may live and have rules under the same names.
#[derive(Debug, Default)]
pub(crate) struct Others {
    own: HashSet<IpAddr>,
    theirs: HashSet<IpAddr>,
    /// Whether one of them has addresses that are not known.
    is_unclear: bool,
    /// Whether the ledger has any.
    pub(crate) are_noted: bool,
}

impl Others {
    /// Those that are known to be beside the attachment, and those of `records` that this plugin has noted something of.
    pub(crate) fn among(records: impl IntoIterator<Item = Record>, known: &Known, sys: &mut Sys<'_>) -> Self {
        let mut others =
            Self { own: known.own.clone(), theirs: known.beside(sys).clone(), ..Self::default() };
        for record in records {
            let has_rules = record.shares.get(Portmap::NAME).is_some_and(|share| !share.superseded);
            if record.attachment != known.attachment && has_rules && sys.may_live(&record) {
                others.are_noted = true;
                others.is_unclear |= record.addresses.is_empty();
                others.theirs.extend(record.addresses);
            }
        }
        others
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.theirs.is_empty() && !self.is_unclear
    }

    /// Whether nothing tells the attachment's rules from theirs.
    pub(crate) fn are_the_same(&self) -> bool {
        self.is_unclear && self.own.is_empty()
    }

    /// Whether what leads to `address` is for one of them.
    pub(crate) fn have(&self, address: IpAddr) -> bool {
        let may_be = self.is_unclear && !self.own.is_empty();
        !self.own.contains(&address) && (may_be || self.theirs.contains(&address))
    }
}

/// The addresses of the container's other interfaces: rules that lead there are theirs, whoever has made them. None where
/// the namespace cannot be opened: the reference never looks there.
pub(crate) fn beside(
    attachment: &Attachment,
    netns: Option<&NetnsPath>,
    sys: &mut Sys<'_>,
) -> HashSet<IpAddr> {
    let found = sys.addresses_beside(netns, &attachment.ifname).ok().flatten();
    found.into_iter().flatten().collect()
}

/// What the attachment was given, as far as that is noted.
fn noted(attachment: &Attachment) -> Vec<IpAddr> {
    Ledger::of_host().read(attachment).map(|record| record.addresses).unwrap_or_default()
}
