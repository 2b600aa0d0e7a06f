// SPDX-License-Identifier: Apache-2.0
//! Several sides, each in a sandbox of its own, that take turns.

use std::fs;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
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
    /// Begins when the kernel has done what the turn before left to it: links and rules are freed later than their removal
    /// answers, and whoever came after a removal would pay for it. Each begins at another phase of the clock's tick, see
    /// [`phase_of`].
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
        let result = rest().and_then(|()| {
            std::thread::sleep(phase_of(state.taken));
            work()
        });
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
        sandbox(|net| {
            own_proc(net);
            result = Some(play(net, side, &Turn { turns: &turns, place }));
        });
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

/// Gives a sandbox a procfs of its own. In one for all sides a namespace's sysctls are found among those of all sides'
/// containers: `net` of `/proc/sys` is one name for as many directories, which lie in one hash chain (kernel
/// `fs/proc/proc_sysctl.c`, `proc_sys_compare`), and a host would seem to have three times the containers that it has. An
/// ordinary user may not mount one, and measures that.
fn own_proc(net: &Sandbox) {
    let _ = net.succeeds("mount", &["-t", "proc", "proc", "/proc"]);
}

/// Waits until the processors have next to nothing to do, for no longer than [`PATIENCE`]: others may be at work here.
fn rest() -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if idle_share_of(WINDOW)? > CALM {
            break;
        }
    }
    Ok(())
}

/// How long after the rest the turn of this number begins. The kernel's grace periods begin and end with the clock's tick, so
/// that deleting a link ends with one, and what follows it in step with it would always seem shorter, or longer, by as much as
/// a tick. Steps of the golden ratio favour no phase, whichever of the turns are looked at.
fn phase_of(turn: usize) -> Duration {
    const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;
    WHOLE_TICKS.mul_f64((turn as f64 * GOLDEN_RATIO).fract())
}

/// The share of all processors' time in which they had nothing to do while this waited.
fn idle_share_of(window: Duration) -> Result<f64> {
    let (idle, all) = processor_time()?;
    std::thread::sleep(window);
    let (idle_then, all_then) = processor_time()?;
    Ok((idle_then - idle) / (all_then - all).max(1.0))
}

/// Idle and whole time of all processors since the machine was started, in ticks (proc_stat(5)).
fn processor_time() -> Result<(f64, f64)> {
    let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let first = stat.lines().next().unwrap_or_default();
    let times: Vec<f64> = first.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let idle = times.iter().skip(3).take(2).sum();
    Ok((idle, times.iter().take(8).sum()))
}

/// As long as some ticks of any kernel, be there 100, 250, 300 or 1,000 each second: part of one more would favour its phases.
const WHOLE_TICKS: Duration = Duration::from_millis(20);
/// Five ticks of a kernel that counts a hundred of them each second.
const WINDOW: Duration = Duration::from_millis(50);
const CALM: f64 = 0.85;
const PATIENCE: Duration = Duration::from_secs(2);
