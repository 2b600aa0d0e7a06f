// SPDX-License-Identifier: Apache-2.0
//! Taking addresses away: DEL, what an earlier ADD left, GC.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cnibox_netfilter::Family;
use cnibox_sys::{Failure, Sys};

use crate::config::{Backend, Config};
use crate::error::FirewallError;
use crate::firewalld::Zone;
use crate::{native, plan};

/// Takes these addresses out of what may let them through. Where the choice is the host's, firewalld may have come
/// since ADD, so the rules go in any case.
pub(crate) fn withdraw(
    config: &Config,
    addresses: BTreeSet<IpAddr>,
    sys: &mut Sys<'_>,
) -> Result<(), Failure> {
    if addresses.is_empty() {
        return Ok(());
    }
    let mut failures = Vec::new();
    if Backend::choose(config.backend, sys.env()).uses_firewalld(sys.env()) {
        let sources: Vec<_> = addresses.iter().copied().collect();
        let removed = Zone::new(&config.zone, sys.env()).remove_sources_if_present(&sources);
        failures.extend(removed.err().map(Failure::from));
    }
    if config.backend != Some(Backend::Firewalld) {
        failures.extend(remove(addresses, sys).err());
    }
    Failure::combine(failures)
}

/// Removes the rules of these addresses.
fn remove(addresses: BTreeSet<IpAddr>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        let addresses: Vec<_> = addresses.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
        if addresses.is_empty() {
            continue;
        }
        let batch = plan::remove(addresses.iter().copied());
        let removed = sys.engine().and_then(|engine| engine.clear(&batch));
        failures.extend(removed.err().map(|error| FirewallError::from(error).into()));
        // Whatever the configuration and the kernel say by now. Not in the same transaction: what is a native rule of
        // iptables' tables may be one of its own, too.
        let removed = native::remove(family, &addresses, sys);
        failures.extend(removed.err().map(|error| FirewallError::from(error).into()));
    }
    Failure::combine(failures)
}

/// The addresses that are noted.
pub(crate) fn addresses(notes: &[String]) -> BTreeSet<IpAddr> {
    notes.iter().filter_map(|note| note.parse().ok()).collect()
}
