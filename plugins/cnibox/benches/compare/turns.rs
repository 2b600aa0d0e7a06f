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
    taken: Mutex<usize>,
    passed: Condvar,
    sides: usize,
}

impl Turn<'_> {
    /// Does `work` while all others wait, then lets the next side go on. Every side must take the same number of turns.
    pub(crate) fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        // Also after a panic of `work`: the others must hear about it.
        let _bell = Bell(&self.turns.passed);
        let mine = |taken: &mut usize| *taken % self.turns.sides != self.place;
        let taken = self.turns.taken.lock().expect("no other side has failed");
        let mut taken = self.turns.passed.wait_while(taken, mine).expect("no other side has failed");
        let result = work();
        *taken += 1;
        result
    }
}

struct Bell<'a>(&'a Condvar);

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        self.0.notify_all();
    }
}

/// Plays every side in a sandbox of its own and answers with what each returned, in the order of `sides`.
///
/// # Errors
/// When there can be no sandbox here.
pub(crate) fn side_by_side<T: Send>(
    sides: &[Side],
    play: impl Fn(&Sandbox, Side, &Turn<'_>) -> T + Sync,
) -> Result<Vec<T>> {
    let turns = Turns { taken: Mutex::new(0), passed: Condvar::new(), sides: sides.len() };
    let one = |place: usize, side: Side| {
        let mut result = None;
        sandbox(|net| result = Some(play(net, side, &Turn { turns: &turns, place })));
        result
    };
    let results: Vec<Option<T>> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> =
            sides.iter().enumerate().map(|(place, side)| scope.spawn(move || one(place, *side))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a side failed, see above")).collect()
    });
    match results.into_iter().collect() {
        Some(results) => Ok(results),
        None => bail!("needs namespaces of its own: run it as root or by scripts/sandboxed"),
    }
}
