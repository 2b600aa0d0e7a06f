// SPDX-License-Identifier: Apache-2.0
//! All leases of the daemon, and what plugins may ask about them.
//!
//! Invariant: a holder has one thread at most. Whoever starts it puts the entry in, the thread takes it out as its
//! last step, so that the next one starts with everything settled.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cnibox_netns::errno;
use cnibox_spec::LiveAttachment;

use super::STACK;
use super::entry::Entry;
use super::flags::Flags;
use super::keeper::{self, Keeper, LEASE_ENDED};
use super::log::log;
use crate::config::Config;
use crate::gob::Value;
use crate::lease::Lease;
use crate::message::Client;
use crate::options::Options;
use crate::rpc::{Method, allocation_to, collection_from};
use crate::state::{Holder, Store, netns_id};

/// The leases, by whose they are.
#[derive(Debug)]
pub(super) struct Table {
    flags: Flags,
    store: Store,
    entries: Mutex<HashMap<String, Arc<Entry>>>,
}

impl Table {
    /// An empty one. `socket` is the path that plugins connect to.
    pub(super) fn new(flags: Flags, socket: &str) -> Self {
        let store = Store::new(&flags.host_prefix, socket);
        Self { flags, store, entries: Mutex::default() }
    }

    /// Goes on with the leases of a predecessor.
    pub(super) fn resume(self: &Arc<Self>) {
        for record in self.store.all() {
            let name = record.holder.name();
            if !record.holder.is_at(&self.path(&record.holder.netns)) {
                log(format_args!("{name}: the container is gone, forgetting its lease"));
                keeper::forget(&self.store, &name);
                continue;
            }
            log(format_args!("{name}: resuming lease of {}", record.lease.address));
            let held = Some(record.lease);
            if let Err(error) = self.start(&mut self.lock(), record.holder, record.options, held) {
                log(format_args!("{name}: {error}"));
            }
        }
    }

    /// Answers a call.
    pub(super) fn answer(self: &Arc<Self>, method: Method, argument: &Value) -> Result<Value, String> {
        match method {
            Method::Allocate => self.allocate(argument),
            Method::Release => self.release(argument),
            Method::Collect => {
                let (network, live) = collection_from(argument);
                self.collect(&network, &live);
                Ok(Value::of([]))
            }
        }
    }

    fn allocate(self: &Arc<Self>, call: &Value) -> Result<Value, String> {
        let (holder, config) = self.caller(call)?;
        let options = Options::new(&config, call.text_field("Args"))?;
        let lease = loop {
            match self.entry(&holder, &options)?.decided() {
                // Between the look for it and the look at it.
                Err(why) if why == LEASE_ENDED => {}
                decided => break decided?,
            }
        };
        Ok(allocation_to(&lease.result(config.priority, config.use_dns)?))
    }

    /// The entry of a lease; a thread for it is there or on its way.
    fn entry(self: &Arc<Self>, holder: &Holder, options: &Options) -> Result<Arc<Entry>, String> {
        loop {
            let entry = {
                let mut entries = self.lock();
                match entries.get(&holder.name()) {
                    Some(entry) => Arc::clone(entry),
                    None => return self.start(&mut entries, holder.clone(), options.clone(), None),
                }
            };
            // A container of the same name in another namespace is another container.
            let is_same = entry.holder.netns_id == holder.netns_id;
            match entry.waker.is_stopped() {
                false if is_same => {
                    entry.waker.poke();
                    return Ok(entry);
                }
                false => entry.finish(),
                true => entry.ended(),
            }
        }
    }

    fn release(&self, call: &Value) -> Result<Value, String> {
        let (holder, _) = self.caller(call)?;
        let entry = self.lock().get(&holder.name()).cloned();
        if let Some(entry) = entry {
            entry.finish();
        }
        Ok(Value::of([]))
    }

    fn collect(&self, network: &str, live: &[LiveAttachment]) {
        let is_dead = |entry: &&Arc<Entry>| entry.holder.is_dead(network, live);
        let dead: Vec<_> = self.lock().values().filter(is_dead).cloned().collect();
        // All at once: each waits only for its own thread.
        dead.iter().for_each(|entry| entry.waker.stop());
        dead.iter().for_each(|entry| entry.ended());
    }

    /// Who calls, by a `skel.CmdArgs`, and the configuration in there.
    fn caller(&self, call: &Value) -> Result<(Holder, Config), String> {
        let (network, config) = Config::parse(call.bytes_field("StdinData"))?;
        let text = |name| call.text_field(name).to_owned();
        let (container, ifname, netns) = (text("ContainerID"), text("IfName"), text("Netns"));
        let netns_id = netns_id(&self.path(&netns)).unwrap_or_default();
        Ok((Holder { container, network, ifname, netns, netns_id }, config))
    }

    fn start(
        self: &Arc<Self>,
        entries: &mut HashMap<String, Arc<Entry>>,
        holder: Holder,
        options: Options,
        held: Option<Lease>,
    ) -> Result<Arc<Entry>, String> {
        let failed = |error: std::io::Error| errno::io_text(&error).into_owned();
        let key = holder.name();
        // A lease that is over is none until it is acquired again.
        let current = held.clone().filter(|lease| !lease.until_expiry().is_zero());
        let client = Client::new(&key, options, self.flags.broadcast);
        let netns = self.path(&holder.netns);
        let entry = Arc::new(Entry::new(holder, current).map_err(std::io::Error::from).map_err(failed)?);
        let keeper = Keeper {
            name: key.clone(),
            client,
            netns,
            schedule: self.flags.schedule,
            store: self.store.clone(),
            entry: Arc::clone(&entry),
        };
        let (table, own_key) = (Arc::clone(self), key.clone());
        let keep = move || {
            let why = keeper.run(held);
            table.lock().remove(&own_key);
            keeper.entry.end(why);
        };
        std::thread::Builder::new().name("lease".to_owned()).stack_size(STACK).spawn(keep).map_err(failed)?;
        entries.insert(key, Arc::clone(&entry));
        Ok(entry)
    }

    /// The daemon's path of a host's path.
    fn path(&self, host: &str) -> PathBuf {
        PathBuf::from(format!("{}{host}", self.flags.host_prefix))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        // Entries are put in and taken out whole.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
