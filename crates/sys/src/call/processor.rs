// SPDX-License-Identifier: Apache-2.0
//! The processor that a thread runs on.
//!
//! The kernel often puts a new thread on the processor of the thread that made it, although another one idles
//! (`wake_up_new_task` in kernel/sched/core.c), and looks at that again with the clock's tick only. As many kernels are
//! configured, a thread gives its processor up for no other thread of its kind before its system call is done. Two
//! threads that are in the kernel all the time then come one after the other, as if they were one.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread's processor. `None` where the kernel does not say.
pub(super) fn current() -> Option<usize> {
    sched_getcpu().ok()
}

/// Takes the calling thread off this processor, if it may run on another one; it may come back afterwards. Nobody minds a
/// failure (a sandbox, more processors than [`CpuSet`] holds).
pub(super) fn leave(processor: usize) {
    let Ok(allowed) = sched_getaffinity(THIS_THREAD) else { return };
    let Some(others) = without(allowed, processor) else { return };
    if sched_setaffinity(THIS_THREAD, &others).is_ok() {
        let _ = sched_setaffinity(THIS_THREAD, &allowed);
    }
}

/// The others, if there are any.
fn without(mut processors: CpuSet, processor: usize) -> Option<CpuSet> {
    processors.unset(processor).ok()?;
    (processors != CpuSet::new()).then_some(processors)
}

const THIS_THREAD: Pid = Pid::from_raw(0);

#[cfg(test)]
mod tests {
    use super::*;

    /// What a test's thread may run on must not change.
    fn on_own_thread(work: impl FnOnce() + Send + 'static) {
        std::thread::spawn(work).join().unwrap();
    }

    #[test]
    fn who_leaves_is_elsewhere_and_may_come_back() {
        on_own_thread(|| {
            let allowed = sched_getaffinity(THIS_THREAD).unwrap();
            let is_left = |_| {
                let here = current().unwrap();
                leave(here);
                assert_eq!(sched_getaffinity(THIS_THREAD).unwrap(), allowed);
                current() != Some(here)
            };
            // It may have come back before anybody looks, but not a hundred times.
            assert_eq!((0..100).any(is_left), without(allowed, current().unwrap()).is_some());
        });
    }

    #[test]
    fn who_has_one_processor_stays() {
        on_own_thread(|| {
            let here = current().unwrap();
            let mut only = CpuSet::new();
            only.set(here).unwrap();
            assert_eq!(without(only, here), None);
            sched_setaffinity(THIS_THREAD, &only).unwrap();
            leave(here);
            assert_eq!(sched_getaffinity(THIS_THREAD).unwrap(), only);
            assert_eq!(current(), Some(here));
        });
    }
}
