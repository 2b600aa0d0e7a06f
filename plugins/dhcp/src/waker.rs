// SPDX-License-Identifier: Apache-2.0
//! Waiting that others can end.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

/// Wakes the one thread that waits with it.
#[derive(Debug)]
pub(crate) struct Waker {
    event: EventFd,
    stopped: AtomicBool,
}

/// Why the waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// It is time.
    Time,
    /// There is something to read.
    Readable,
    /// Somebody wants attention.
    Poked,
    /// Somebody wants it all to end; every later wait ends at once.
    Stopped,
}

impl Waker {
    pub(crate) fn new() -> nix::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { event, stopped: AtomicBool::new(false) })
    }

    /// Ends the wait under way, or the next one.
    pub(crate) fn poke(&self) {
        // It can only fail when it is full of pokes.
        let _ = self.event.write(1);
    }

    /// Ends all waiting for good.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.poke();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits until `until`, or until `input` can be read.
    pub(crate) fn wait(&self, until: Instant, input: Option<BorrowedFd<'_>>) -> Woken {
        loop {
            if self.is_stopped() {
                return Woken::Stopped;
            }
            let left = until.saturating_duration_since(Instant::now());
            let waited_for = std::iter::once(self.event.as_fd()).chain(input);
            let mut fds: Vec<_> = waited_for.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            let polled = ppoll(&mut fds, Some(TimeSpec::from_duration(left)), None);
            let ready = |at: usize| fds.get(at).and_then(PollFd::any).unwrap_or(false);
            match polled {
                // More than one poke may have been written.
                Ok(1..) if ready(0) => {
                    let _ = self.event.read();
                    return if self.is_stopped() { Woken::Stopped } else { Woken::Poked };
                }
                Ok(1..) if ready(1) => return Woken::Readable,
                Ok(_) if left.is_zero() => return Woken::Time,
                // Interrupted, or it is almost time.
                Ok(_) | Err(_) => {}
            }
        }
    }
}
