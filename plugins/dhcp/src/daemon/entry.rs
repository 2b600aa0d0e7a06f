// SPDX-License-Identifier: Apache-2.0
//! A lease between its thread and those who ask for it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::lease::Lease;
use crate::state::Holder;
use crate::waker::Waker;

/// What is known of an attachment's lease.
#[derive(Debug)]
pub(super) struct Entry {
    /// Whose it is.
    pub(super) holder: Holder,
    /// Wakes the lease's thread.
    pub(super) waker: Waker,
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Debug)]
enum Stage {
    Acquiring,
    Held(Lease),
    /// The thread is done; why.
    Ended(String),
}

impl Entry {
    /// One whose thread is about to start, with the lease that it goes on with.
    pub(super) fn new(holder: Holder, lease: Option<Lease>) -> nix::Result<Self> {
        let stage = Mutex::new(lease.map_or(Stage::Acquiring, Stage::Held));
        Ok(Self { holder, waker: Waker::new()?, stage, changed: Condvar::new() })
    }

    /// The thread has the lease.
    pub(super) fn hold(&self, lease: Lease) {
        self.set(Stage::Held(lease));
    }

    /// The thread is done.
    pub(super) fn end(&self, why: String) {
        self.set(Stage::Ended(why));
    }

    /// The lease, once there is one, or why there is none.
    pub(super) fn decided(&self) -> Result<Lease, String> {
        match self.when(|stage| !matches!(stage, Stage::Acquiring)) {
            Stage::Held(lease) => Ok(lease),
            Stage::Ended(why) => Err(why),
            Stage::Acquiring => Err(String::new()),
        }
    }

    /// Tells the thread to give the lease back, and waits until it has.
    pub(super) fn finish(&self) {
        self.waker.stop();
        self.ended();
    }

    /// Waits until the thread is done.
    pub(super) fn ended(&self) {
        self.when(|stage| matches!(stage, Stage::Ended(_)));
    }

    fn set(&self, stage: Stage) {
        *self.lock() = stage;
        self.changed.notify_all();
    }

    fn when(&self, ready: impl Fn(&Stage) -> bool) -> Stage {
        let waited = self.changed.wait_while(self.lock(), |stage| !ready(stage));
        waited.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        // Nobody leaves a stage half set.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
