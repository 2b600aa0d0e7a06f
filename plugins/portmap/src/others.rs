// SPDX-License-Identifier: Apache-2.0
//! Which rules are another attachment's although the names on them are this one's: the reference's chains hash network and
//! container without anything between them, native comments name the container only, and all interfaces of a container
//! on a network share both. Then the address that a rule leads to tells whose it is.

use std::collections::HashSet;
use std::net::IpAddr;

use cnibox_harness::Plugin;
use cnibox_spec::Attachment;
use cnibox_sys::{Ledger, Record, Sys};

use crate::Portmap;

/// The addresses of an attachment, and of those that may live and have rules under the same names.
#[derive(Debug, Default)]
pub(crate) struct Others {
    own: HashSet<IpAddr>,
    theirs: HashSet<IpAddr>,
    /// Whether one of them has addresses that are not known.
    is_unclear: bool,
}

impl Others {
    /// Those of `records` beside `attachment` that this plugin has noted something of.
    pub(crate) fn among(
        records: impl IntoIterator<Item = Record>,
        attachment: &Attachment,
        sys: &mut Sys<'_>,
    ) -> Self {
        let mut others = Self { own: addresses(attachment).into_iter().collect(), ..Self::default() };
        for record in records {
            let has_rules = record.shares.get(Portmap::NAME).is_some_and(|share| !share.superseded);
            if record.attachment != *attachment && has_rules && sys.may_live(&record) {
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

/// What the attachment was given, as far as that is noted.
pub(crate) fn addresses(attachment: &Attachment) -> Vec<IpAddr> {
    Ledger::of_host().read(attachment).map(|record| record.addresses).unwrap_or_default()
}
