// SPDX-License-Identifier: Apache-2.0
//! The life of one lease: acquired, renewed, bound anew, and at last given back or expired (reference: `lease.go`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cnibox_netlink::Rtnl;
use cnibox_netns::NetNs;

use super::entry::Entry;
use super::log::log;
use super::retry::{Schedule, retry};
use crate::exchange::{self, Conversation, ExchangeError};
use crate::lease::Lease;
use crate::message::{Ask, Client};
use crate::state::Store;
use crate::waker::Woken;

/// Keeps the lease of one attachment, on a thread of its own.
pub(super) struct Keeper {
    pub(super) name: String,
    pub(super) client: Client,
    /// The container's namespace, as the daemon finds it.
    pub(super) netns: PathBuf,
    pub(super) schedule: Schedule,
    pub(super) store: Store,
    pub(super) entry: Arc<Entry>,
}

impl Keeper {
    /// Keeps the lease until it ends, `held` if that is there already; returns why it ended.
    pub(super) fn run(&self, held: Option<Lease>) -> String {
        let begun = match held {
            None => self.begin(),
            Some(lease) => self.resume(lease),
        };
        let why = match begun {
            Ok(lease) => {
                self.maintain(lease);
                LEASE_ENDED.to_owned()
            }
            Err(error) => {
                log(format_args!("{}: {error}", self.name));
                error.to_string()
            }
        };
        forget(&self.store, &self.name);
        why
    }

    fn begin(&self) -> Result<Lease, ExchangeError> {
        log(format_args!("{}: acquiring lease", self.name));
        self.set_up()?;
        let deadline = self.within(self.schedule.resend_timeout);
        let ask = || self.attempt(deadline, |talk| talk.acquire(None));
        let lease = self.retry(deadline, ExchangeError::is_final, ask)?;
        if let Err(error) = lease.network() {
            self.release(&lease);
            return Err(ExchangeError::Gone(error));
        }
        Ok(self.commit("acquired", lease))
    }

    /// Asks whether a lease from before a restart still holds. Without an answer it does until its end.
    fn resume(&self, lease: Lease) -> Result<Lease, ExchangeError> {
        if lease.until_expiry().is_zero() {
            log(format_args!("{}: lease expired while nobody kept it, acquiring it again", self.name));
            let deadline = self.within(self.schedule.resend_timeout);
            return self.acquire_again(&lease, deadline).inspect_err(|error| self.lose(&lease, error));
        }
        match self.attempt(self.within(lease.until_expiry()), |talk| {
            talk.ask_any(Ask::Reboot(lease.address), &lease)
        }) {
            Ok(confirmed) => Ok(self.commit("confirmed", confirmed)),
            Err(refused @ ExchangeError::Refused(_)) => {
                log(format_args!("{}: {refused}, acquiring another lease", self.name));
                let deadline = self.within(lease.until_expiry());
                self.acquire_again(&lease, deadline).inspect_err(|error| self.lose(&lease, error))
            }
            Err(gone @ ExchangeError::Gone(_)) => Err(gone),
            Err(error) => {
                log(format_args!("{}: {error}, keeping the lease as it was", self.name));
                Ok(lease)
            }
        }
    }

    fn maintain(&self, mut lease: Lease) {
        loop {
            match self.entry.waker.wait(self.within(lease.until_renewal()), None) {
                Woken::Stopped => return self.release(&lease),
                Woken::Poked => log(format_args!("{}: Checking lease", self.name)),
                Woken::Time | Woken::Readable => {}
            }
            let due = lease.until_renewal().is_zero();
            let next = if due { self.extend(&lease) } else { self.find().map(|()| lease.clone()) };
            lease = match next {
                Ok(lease) => lease,
                Err(ExchangeError::Stopped) => return self.release(&lease),
                Err(ExchangeError::Gone(why)) => {
                    return log(format_args!("{}: {why}, terminating lease maintenance", self.name));
                }
                Err(_) => return self.expire(),
            };
        }
    }

    /// The lease for longer: from its server, then from any.
    fn extend(&self, lease: &Lease) -> Result<Lease, ExchangeError> {
        log(format_args!("{}: renewing lease", self.name));
        let rebinding = self.within(lease.until_rebinding());
        // A server that refuses to extend a lease will not think again.
        let is_final = |error: &ExchangeError| error.is_final() || matches!(error, ExchangeError::Refused(_));
        let ask = || self.attempt(rebinding, |talk| talk.renew(lease));
        let why = match self.retry(rebinding, is_final, ask) {
            Ok(renewed) => return Ok(self.commit("renewed", renewed)),
            Err(error) if error.is_final() => return Err(error),
            Err(ExchangeError::NoMoreTries) => "renewal time expired".to_owned(),
            Err(error) => error.to_string(),
        };
        log(format_args!("{}: {why}, rebinding", self.name));
        self.acquire_again(lease, self.within(lease.until_expiry()))
    }

    /// The lease of any server, at best with the same address.
    fn acquire_again(&self, lease: &Lease, deadline: Instant) -> Result<Lease, ExchangeError> {
        let again = || match self.attempt(deadline, |talk| talk.ask_any(Ask::Extend(lease.address), lease)) {
            Err(ExchangeError::Silence | ExchangeError::Refused(_)) => {
                self.attempt(deadline, |talk| talk.acquire(Some(lease.address)))
            }
            decided => decided,
        };
        let rebound = self.commit("rebound", self.retry(deadline, ExchangeError::is_final, again)?);
        if rebound.address != lease.address {
            let (new, old) = (rebound.address, lease.address);
            log(format_args!("{}: the server granted {new} but the interface has {old}", self.name));
        }
        Ok(rebound)
    }

    fn retry(
        &self,
        deadline: Instant,
        is_final: impl Fn(&ExchangeError) -> bool,
        attempt: impl FnMut() -> Result<Lease, ExchangeError>,
    ) -> Result<Lease, ExchangeError> {
        retry(&self.entry.waker, self.schedule.resend_max, deadline, is_final, attempt)
    }

    /// One attempt at something, inside of the container.
    fn attempt(
        &self,
        deadline: Instant,
        work: impl FnOnce(&Conversation<'_>) -> Result<Lease, ExchangeError> + Send,
    ) -> Result<Lease, ExchangeError> {
        self.find()?;
        let talk = Conversation {
            client: &self.client,
            ifname: &self.entry.holder.ifname,
            timeout: self.schedule.timeout,
            deadline,
            waker: &self.entry.waker,
        };
        self.inside(|| work(&talk))?
    }

    /// Runs something inside of the container.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, ExchangeError> {
        let gone = |error: cnibox_netns::Error| ExchangeError::Gone(error.to_string());
        let netns = NetNs::open(&self.netns).map_err(gone)?;
        if !self.entry.holder.is_in(&netns) {
            return Err(ExchangeError::Gone("the container's network namespace is another one".to_owned()));
        }
        netns.run(work).map_err(gone)
    }

    /// A server is not heard on an interface that is down.
    fn set_up(&self) -> Result<(), ExchangeError> {
        let ifname = &self.entry.holder.ifname;
        let gone = |error: cnibox_netlink::Error| {
            ExchangeError::Gone(format!("error looking up \"{ifname}\": {error}"))
        };
        self.inside(|| {
            let mut rtnl = Rtnl::open().map_err(gone)?;
            let link = rtnl.link_by_name(ifname).map_err(gone)?;
            if link.is_up() {
                return Ok(());
            }
            log(format_args!("Link \"{ifname}\" down. Attempting to set up"));
            rtnl.link_set_up(link.index).map_err(|error| ExchangeError::Gone(error.to_string()))
        })?
    }

    /// Whether the interface is still there. What cannot be found out is not held against it.
    fn find(&self) -> Result<(), ExchangeError> {
        let ifname = &self.entry.holder.ifname;
        let found = self.inside(|| Rtnl::open().and_then(|mut rtnl| rtnl.link_by_name_if_present(ifname)))?;
        match found {
            Ok(None) => Err(ExchangeError::Gone(format!("interface {ifname} no longer exists"))),
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    /// The end of a lease from before a restart.
    fn lose(&self, lease: &Lease, error: &ExchangeError) {
        if !error.is_final() {
            self.expire();
        } else if matches!(error, ExchangeError::Stopped) {
            self.release(lease);
        }
    }

    /// The end of a lease that nobody extended.
    fn expire(&self) {
        log(format_args!("{}: lease expired, bringing interface DOWN", self.name));
        let ifname = &self.entry.holder.ifname;
        let down = self.inside(|| {
            let mut rtnl = Rtnl::open()?;
            let index = rtnl.link_by_name(ifname)?.index;
            rtnl.link_set_down(index)
        });
        if let Ok(Err(error)) = down {
            log(format_args!("{}: failed to bring {ifname} interface DOWN: {error}", self.name));
        }
    }

    fn release(&self, lease: &Lease) {
        log(format_args!("{}: releasing lease", self.name));
        let failed = match self.inside(|| exchange::release(&self.client, &self.entry.holder.ifname, lease)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        log(format_args!("{}: failed to release DHCP lease: {failed}", self.name));
    }

    /// Others may see the lease, and so may a successor.
    fn commit(&self, how: &str, lease: Lease) -> Lease {
        let seconds = lease.until_expiry().as_secs().saturating_add(1);
        log(format_args!("{}: lease {how}, {} for {seconds} seconds", self.name, lease.address));
        let holder = self.entry.holder.clone();
        let record = self.store.record(holder, self.client.options.clone(), lease.clone());
        if let Err(error) = self.store.save(&record) {
            log(format_args!("{}: {error}; a restart would lose the lease", self.name));
        }
        self.entry.hold(lease);
        record.lease
    }

    fn within(&self, time: Duration) -> Instant {
        let now = Instant::now();
        now.checked_add(time).unwrap_or(now)
    }
}

/// Removes what was remembered of a holder's lease.
pub(super) fn forget(store: &Store, name: &str) {
    if let Err(error) = store.forget(name) {
        log(format_args!("{name}: {error}"));
    }
}

/// Why a lease ended that was there.
pub(super) const LEASE_ENDED: &str = "the lease has ended";
