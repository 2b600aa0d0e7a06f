// SPDX-License-Identifier: Apache-2.0
//! ADD's part: one address from each range set, all of them or none.

use std::net::IpAddr;

use cnibox_spec::{Code, IpConfig};
use cnibox_sys::Failure;
use ipnetwork::IpNetwork;

use crate::config::Config;
use crate::error::{SetError, StoreError};
use crate::owner::Owner;
use crate::range::{Range, RangeSet, Stretch};
use crate::sticky;
use crate::store::{Reserved, Store};

/// Reserves one address from each set.
///
/// # Errors
/// A set has none to give, or not every request could be met. What this call reserved is released then; older
/// reservations of the attachment stay (the reference releases them too).
pub(crate) fn allocate(
    store: &mut Store,
    config: &Config,
    owner: &Owner,
    is_held: &IsHeld<'_>,
) -> Result<Vec<IpConfig>, Failure> {
    let mut made = Vec::with_capacity(config.sets.len());
    let allocated = allocate_sets(store, config, owner, is_held, &mut made);
    if allocated.is_err() {
        for address in &made {
            // The error at hand says more than one from taking back.
            let _ = store.release(address.address.ip(), owner);
        }
    }
    allocated.map(|()| made)
}

/// Whether a living attachment has the address although no reservation says so.
pub(crate) type IsHeld<'a> = dyn Fn(IpAddr) -> bool + 'a;

fn allocate_sets(
    store: &mut Store,
    config: &Config,
    owner: &Owner,
    is_held: &IsHeld<'_>,
    made: &mut Vec<IpConfig>,
) -> Result<(), Failure> {
    let mut requested = config.requested.clone();
    for (index, set) in config.sets.iter().enumerate() {
        let request =
            requested.iter().position(|ip| set.range_of(*ip).is_some()).map(|at| requested.remove(at));
        let mut pick = Pick { store, config, owner, is_held, index, set };
        let picked = match request {
            Some(ip) => pick.this(ip),
            None => pick.any(),
        };
        made.push(picked.map_err(|error| error.in_set(index))?);
    }
    if requested.is_empty() {
        return Ok(());
    }
    let unmet: String = requested.iter().map(|ip| format!(" {ip}")).collect();
    Err(Failure::new(Code::INTERNAL, format!("failed to allocate all requested IPs:{unmet}")))
}

/// The choice of an address from one range set.
struct Pick<'a> {
    store: &'a mut Store,
    config: &'a Config,
    owner: &'a Owner,
    is_held: &'a IsHeld<'a>,
    index: usize,
    set: &'a RangeSet,
}

impl Pick<'_> {
    /// This very address.
    fn this(&mut self, ip: IpAddr) -> Result<IpConfig, SetError> {
        let taken = |owner| SetError::Taken { ip, set: self.set.to_string(), owner };
        let range = *self.set.range_of(ip).ok_or_else(|| taken(None))?;
        if ip == range.gateway {
            return Err(SetError::Gateway(ip));
        }
        if self.config.exclusion_of(ip).is_some() {
            return Err(SetError::Excluded(ip));
        }
        if (self.is_held)(ip) {
            return Err(taken(None));
        }
        match self.store.reserve(ip, self.owner, self.index)? {
            Reserved::Done => Ok(self.done(ip, &range)),
            Reserved::Taken(owner) => Err(taken(owner)),
        }
    }

    /// An address of the plugin's choice.
    fn any(&mut self) -> Result<IpConfig, SetError> {
        self.refuse_duplicate()?;
        if let Some(ip) = self.last_time() {
            match self.this(ip) {
                Err(SetError::Gateway(_) | SetError::Excluded(_) | SetError::Taken { .. }) => {}
                decided => return decided,
            }
        }
        loop {
            if let Some(picked) = self.next()? {
                return Ok(picked);
            }
            // Before saying so, the files are asked.
            if !self.store.doubt()? {
                return Err(SetError::Exhausted(self.set.to_string()));
            }
        }
    }

    /// An attachment has at most one address of a set. What a failed ADD left behind is the caller's to clear by DEL.
    fn refuse_duplicate(&mut self) -> Result<(), SetError> {
        for owner in [self.owner, &self.owner.bare()] {
            let held = self.store.addresses_of(owner)?;
            let mut held: Vec<_> = held.into_iter().filter(|ip| self.set.range_of(*ip).is_some()).collect();
            // The reference reports the first by name.
            held.sort_by_key(ToString::to_string);
            if let Some(ip) = held.first() {
                return Err(SetError::Duplicate { ip: *ip, owner: owner.clone() });
            }
        }
        Ok(())
    }

    /// The address that the attachment had before, if that is remembered.
    fn last_time(&self) -> Option<IpAddr> {
        let like = self.set.ranges().first().map(|range| range.start).filter(|_| self.config.sticky);
        sticky::recall(&self.store.dir, self.owner, self.index, like?)
    }

    /// The next address in turn.
    fn next(&mut self) -> Result<Option<IpConfig>, SetError> {
        let last = self.store.dir.last_reserved(self.index);
        for stretch in self.set.stretches(last) {
            let mut from = Some(stretch.from);
            while let Some(ip) = candidate(self.store, self.config, &stretch, from)? {
                if !(self.is_held)(ip) && self.store.reserve(ip, self.owner, self.index)? == Reserved::Done {
                    return Ok(Some(self.done(ip, &stretch.range)));
                }
                from = crate::range::successor(ip);
            }
        }
        Ok(None)
    }

    fn done(&self, ip: IpAddr, range: &Range) -> IpConfig {
        if self.config.sticky {
            // A preference that cannot be noted is no reason to refuse an address.
            let _ = sticky::remember(&self.store.dir, self.owner, self.index, ip);
        }
        let address = IpNetwork::new(ip, range.subnet.prefix()).unwrap_or_else(|_| ip.into());
        IpConfig { interface: None, address, gateway: Some(range.gateway) }
    }
}

/// The first address of a stretch, at or after `from`, that may be handed out.
fn candidate(
    store: &mut Store,
    config: &Config,
    stretch: &Stretch,
    mut from: Option<IpAddr>,
) -> Result<Option<IpAddr>, StoreError> {
    while let Some(start) = from.filter(|ip| *ip <= stretch.to) {
        let Some(ip) = store.first_unused(start, stretch.to)? else { return Ok(None) };
        if ip != stretch.range.gateway && config.exclusion_of(ip).is_none() {
            return Ok(Some(ip));
        }
        from = config.behind_exclusion(ip);
    }
    Ok(None)
}

/// The first range set that has no address left.
pub(crate) fn exhausted_set<'a>(
    store: &mut Store,
    config: &'a Config,
) -> Result<Option<&'a RangeSet>, StoreError> {
    for set in &config.sets {
        let mut left = false;
        for stretch in set.stretches(None) {
            left = left || candidate(store, config, &stretch, Some(stretch.from))?.is_some();
        }
        if !left {
            return Ok(Some(set));
        }
    }
    Ok(None)
}
