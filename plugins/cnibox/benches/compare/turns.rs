// SPDX-License-Identifier: Apache-2.0
//! Several sides, each in a sandbox of its own, that take turns.

use std::sync::{Condvar, Mutex};

use anyhow::{Result, bail};
use cnibox_testkit::{Sandbox, sandbox};

/// Whose plugins, or nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// This project's.
    Ours,
    /// The Go reference plugins.
    Go,
    /// No plugins: the same kernel objects, made by as few processes as the usual tools need.
    Floor,
}

/// One side's place in the rotation.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    place: usize,
}

#[derive(Debug)]
struct Turns {
    state: Mutex<State>,
    passed: Condvar,
    sides: usize,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// Why a side left before the end; nobody waits for it then.
    left: Option<String>,
}

impl Turn<'_> {
    /// Does `work` while all others wait, then lets the next side go on. Every side must take the same number of turns.
    ///
    /// # Errors
    /// What `work` says, or that another side has failed.
    pub(crate) fn take<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let waiting =
            |state: &mut State| state.left.is_none() && state.taken % self.turns.sides != self.place;
        let state =
            self.turns.state.lock().ok().and_then(|state| self.turns.passed.wait_while(state, waiting).ok());
        let Some(mut state) = state else { bail!("another side panicked") };
        if let Some(reason) = &state.left {
            bail!("another side failed: {reason}");
        }
        let result = work();
        state.taken += 1;
        drop(state);
        self.turns.passed.notify_all();
        result
    }
}

/// Says that a side has left, also when it panics.
struct Leaving<'a> {
    turns: &'a Turns,
    reason: Option<String>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // A poisoned state says enough.
        if let Ok(mut state) = self.turns.state.lock()
            && state.left.is_none()
        {
            state.left = self.reason.take();
        }
        self.turns.passed.notify_all();
    }
}

/// Plays every side in a sandbox of its own and answers with what each returned, in the order of `sides`.
///
/// # Errors
/// The first failure of a side, or when there can be no sandbox here.
pub(crate) fn side_by_side<T: Send>(
    sides: &[Side],
    play: impl Fn(&Sandbox, Side, &Turn<'_>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let turns = Turns { state: Mutex::default(), passed: Condvar::new(), sides: sides.len() };
    let one = |place: usize, side: Side| {
        let mut leaving =
            Leaving { turns: &turns, reason: Some("no namespaces here, or a panic".to_owned()) };
        let mut result = None;
        sandbox(|net| result = Some(play(net, side, &Turn { turns: &turns, place })));
        let result =
            result.unwrap_or_else(|| bail!("needs namespaces of its own: run it by scripts/sandboxed"));
        leaving.reason = result.as_ref().err().map(|error| format!("{error:#}"));
        result
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> =
            sides.iter().enumerate().map(|(place, side)| scope.spawn(move || one(place, *side))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a side panicked, see above")).collect()
    })
}
