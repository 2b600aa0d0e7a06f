// SPDX-License-Identifier: Apache-2.0
//! The `host-local` plugin: addresses from ranges in the configuration, reserved in files on this host.
//!
//! State, results and texts are the reference's, so that it may take turns with this plugin on the same network, call
//! by call. What is different: a reservation is never visible before it is complete, and what a crash left empty is
//! reclaimed; no call costs more because there are more reservations (`index.rs`); DEL and CHECK make no directories;
//! a failed ADD releases what it reserved and nothing older; a lock that is never given back ends in an error of code
//! 11; GC and STATUS; the owner of a contested address is in the error's details.
//!
//! Options of `ipam` beyond the reference's, all off by default:
//!
//! * `exclude`, a list of addresses and networks in CIDR notation: never handed out, and refused when asked for.
//!   Reservations that exist are not touched.
//! * `sticky`, a boolean: an attachment (container and interface) that comes back gets the address that it had last,
//!   while it is free. Addresses are remembered in the file `sticky` beside the reservations, for about 65,000
//!   attachments (`sticky.rs`).
//! * `reclaimOnBoot`, a boolean: reservations from before the host's last boot are released by ADD, STATUS and GC. For
//!   runtimes whose containers do not survive a boot. The boot is noted in the file `boot_id` beside the reservations
//!   (`boot.rs`).

mod allocate;
mod boot;
mod config;
mod error;
mod files;
mod fnv;
mod index;
mod owner;
mod range;
mod resolv;
mod scan;
mod status;
mod sticky;
mod store;

use std::cell::RefCell;
use std::net::IpAddr;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{CniResult, Code, LiveAttachment, NetworkName};
use cnibox_sys::{Failure, Sys};

use crate::allocate::{IsHeld, allocate};
pub use crate::config::Config;
use crate::owner::Owner;
use crate::store::{Store, Terms};

/// The plugin.
pub struct HostLocal;

impl Plugin for HostLocal {
    const NAME: &'static str = "host-local";
    const ROLE: Role = Role::Ipam { asks_network: false };
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let sys = RefCell::new(sys);
        // Somebody was given it; whose interface cannot be looked for lives.
        let is_held = |ip| sys.borrow_mut().address_is_held(&request.conf.network, ip).unwrap_or(true);
        let owner = Owner::of(&request.args.attachment);
        add(&request.config, &owner, &Terms::of_host(), &is_held)
    }

    fn del(request: &Request<'_, Config, DelArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        del(&request.config, &Owner::of(&request.args.attachment), &Terms::of_host())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        check(&request.config, &Owner::of(&request.args.attachment), &Terms::of_host())
    }

    fn status(request: &Request<'_, Config, ()>, _: &mut Sys<'_>) -> Result<(), Failure> {
        status::status(&request.config, &Terms::of_host())
    }

    /// Looks at every reservation of the network: GC is rare, and the list of the living is as long.
    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        // Before anybody has to wait for the store.
        sys.going_awaited(&request.conf.network, &request.args.valid);
        let opened = Store::open_if_present(&request.config.state, &Terms::of_host())?;
        let Some(mut store) = opened else { return Ok(()) };
        let reclaimed = reclaim(&mut store, &request.config);
        let retained =
            retain(&mut store, &request.args.valid, |stale| spare(stale, &request.conf.network, sys));
        Failure::combine(reclaimed.err().into_iter().chain(retained.err()))
    }
}

/// Reserves the attachment's addresses.
fn add(config: &Config, owner: &Owner, terms: &Terms, is_held: &IsHeld<'_>) -> Result<CniResult, Failure> {
    let dns = config.resolv_conf.as_deref().map(resolv::read).transpose()?.unwrap_or_default();
    let mut store = Store::ensure(&config.state, terms)?;
    reclaim(&mut store, config)?;
    let ips = allocate(&mut store, config, owner, is_held)?;
    Ok(CniResult { ips, routes: config.routes.clone(), dns, ..CniResult::default() })
}

/// Releases the attachment's addresses, whatever the ranges are by now. Records of the bare container count only when
/// there is none of the attachment.
fn del(config: &Config, owner: &Owner, terms: &Terms) -> Result<(), Failure> {
    let Some(mut store) = Store::open_if_present(&config.state, terms)? else { return Ok(()) };
    if store.release_all(owner)? == 0 {
        store.release_all(&owner.bare())?;
    }
    Ok(())
}

/// Finds out whether any address is the attachment's.
fn check(config: &Config, owner: &Owner, terms: &Terms) -> Result<(), Failure> {
    let nothing = || {
        let container = owner.container();
        let msg = format!("host-local: Failed to find address added by container {container}");
        Failure::new(Code::INTERNAL, msg)
    };
    let mut store = Store::open_if_present(&config.state, terms)?.ok_or_else(nothing)?;
    if store.has(owner)? || store.has(&owner.bare())? { Ok(()) } else { Err(nothing()) }
}

/// Releases what is not among the `valid` attachments', after `spare` has taken out what must stay, and removes what crashes
/// left.
fn retain(
    store: &mut Store,
    valid: &[LiveAttachment],
    spare: impl FnOnce(&mut Vec<(IpAddr, Owner)>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut stale = store.stale(valid)?;
    if !stale.is_empty() {
        spare(&mut stale)?;
    }
    let released = store.release_each(&stale);
    Ok(released.and(store.sweep())?)
}

/// Never an address without its link. The interfaces are gone that the plugin before this one could find and delete; what is
/// there all the same keeps its address, and so does a container that nobody wrote down, and an ADD that began meanwhile.
fn spare(stale: &mut Vec<(IpAddr, Owner)>, network: &NetworkName, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let running = sys.running(network);
    let in_use = sys.in_use_among(&stale.iter().map(|(ip, _)| *ip).collect(), None)?;
    stale.retain(|(ip, owner)| {
        let mut is_held = |ip| sys.address_is_held(network, ip).unwrap_or(true);
        !owner.is_among(&running) && !in_use.contains(ip) && !is_held(*ip)
    });
    Ok(())
}

/// Releases what the last boot left behind, where the operator wants that.
fn reclaim(store: &mut Store, config: &Config) -> Result<(), Failure> {
    if config.reclaim_on_boot {
        store.reclaim_other_boots()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
