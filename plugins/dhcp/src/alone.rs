// SPDX-License-Identifier: Apache-2.0
//! What can be done for a lease without a daemon: give it back.

use cnibox_netns::NetNs;
use cnibox_spec::LiveAttachment;
use cnibox_sys::Failure;

use crate::exchange::release;
use crate::message::Client;
use crate::state::{Record, Store};

/// Gives the lease of an attachment back as far as it is remembered, and forgets it. A lease that cannot be given back
/// ends by itself.
///
/// # Errors
/// The memory of it could not be removed.
pub(crate) fn release_remembered(store: &Store, name: &str) -> Result<(), Failure> {
    if let Some(record) = store.load(name) {
        give_back(&record);
    }
    store.forget(name)
}

/// The same for every attachment of a network that is not among its `live` ones.
///
/// # Errors
/// The first memory that could not be removed; all others were.
pub(crate) fn collect_remembered(
    store: &Store,
    network: &str,
    live: &[LiveAttachment],
) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for record in store.all().into_iter().filter(|record| record.holder.is_dead(network, live)) {
        outcome = outcome.and(release_remembered(store, &record.holder.name()));
    }
    outcome
}

fn give_back(record: &Record) {
    let holder = &record.holder;
    let Ok(netns) = NetNs::open(&holder.netns) else { return };
    if record.lease.until_expiry().is_zero() || !holder.is_in(&netns) {
        return;
    }
    let client = Client::new(&holder.name(), record.options.clone(), false);
    // A server that cannot be told gets the address back when the lease ends.
    let _ = netns.run(|| release(&client, &holder.ifname, &record.lease));
}
