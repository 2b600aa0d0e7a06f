// SPDX-License-Identifier: Apache-2.0
//! When to try again: the first few times soon, then after growing pauses, and at last no more.

use std::time::{Duration, Instant};

use crate::exchange::ExchangeError;
use crate::waker::{Waker, Woken};

use super::log::log;

/// How patient the daemon is with servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// For an answer.
    pub(super) timeout: Duration,
    /// No pause grows beyond this.
    pub(super) resend_max: Duration,
    /// For everything together.
    pub(super) resend_timeout: Duration,
}

/// Tries until there is a result, an error that `is_final`, or `deadline`.
pub(super) fn retry<T>(
    waker: &Waker,
    resend_max: Duration,
    deadline: Instant,
    is_final: impl Fn(&ExchangeError) -> bool,
    mut attempt: impl FnMut() -> Result<T, ExchangeError>,
) -> Result<T, ExchangeError> {
    let mut pauses = Pauses { slow: FIRST_SLOW, fast_left: FAST_PAUSES };
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => log(format_args!("{error}")),
        }
        let pause = pauses.next();
        log(format_args!("retrying in {:.6} seconds", pause.as_secs_f64()));
        rest(waker, Instant::now().checked_add(pause).unwrap_or(deadline).min(deadline))?;
        if Instant::now() >= deadline {
            return Err(ExchangeError::NoMoreTries);
        }
        pauses.grow(resend_max);
    }
}

/// Waits, whoever asks for attention.
fn rest(waker: &Waker, until: Instant) -> Result<(), ExchangeError> {
    loop {
        match waker.wait(until, None) {
            Woken::Stopped => return Err(ExchangeError::Stopped),
            Woken::Time => return Ok(()),
            Woken::Poked | Woken::Readable => {}
        }
    }
}

/// RFC 2131, 4.1: each pause twice the one before, a second more or less; the first few are short.
struct Pauses {
    slow: Duration,
    fast_left: u32,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let jitter = Duration::from_millis(rand::random_range(0..2000));
        let pause = if self.fast_left == 0 { self.slow } else { FAST };
        self.fast_left = self.fast_left.saturating_sub(1);
        (pause + jitter).saturating_sub(Duration::from_secs(1))
    }

    fn grow(&mut self, resend_max: Duration) {
        if self.fast_left == 0 && self.slow < resend_max {
            self.slow *= 2;
        }
    }
}

const FIRST_SLOW: Duration = Duration::from_secs(4);
const FAST: Duration = Duration::from_secs(2);
const FAST_PAUSES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_short_at_first_and_then_double() {
        let mut pauses = Pauses { slow: FIRST_SLOW, fast_left: FAST_PAUSES };
        let wanted = [2, 2, 2, 2, 8, 16, 32, 64, 64];
        for seconds in wanted {
            let pause = pauses.next().as_secs_f64();
            let wanted = f64::from(seconds);
            assert!((wanted - 1.0..=wanted + 1.0).contains(&pause), "{pause} for {wanted}");
            pauses.grow(Duration::from_secs(62));
        }
    }

    #[test]
    fn what_is_stopped_or_late_is_not_tried_again() {
        let waker = Waker::new().unwrap();
        let mut tries = 0;
        let mut failing = || -> Result<(), ExchangeError> {
            tries += 1;
            Err(ExchangeError::Silence)
        };
        let is_final = ExchangeError::is_final;
        let soon = Instant::now() + Duration::from_millis(20);
        let error = retry(&waker, Duration::ZERO, soon, is_final, &mut failing).unwrap_err();
        assert_eq!(error.to_string(), "no more tries");
        waker.stop();
        let later = Instant::now() + Duration::from_secs(60);
        let error = retry(&waker, Duration::ZERO, later, is_final, &mut failing).unwrap_err();
        assert!(matches!(error, ExchangeError::Stopped));
        assert_eq!(tries, 2);
    }

    #[test]
    fn what_another_attempt_would_not_change_is_not_tried_again() {
        let waker = Waker::new().unwrap();
        let later = Instant::now() + Duration::from_secs(60);
        for error in [ExchangeError::Stopped, ExchangeError::Gone("g".into())] {
            let text = error.to_string();
            let mut once = Some(error);
            let attempt = || -> Result<(), ExchangeError> { Err(once.take().unwrap()) };
            let decided = retry(&waker, Duration::ZERO, later, ExchangeError::is_final, attempt);
            assert_eq!(decided.unwrap_err().to_string(), text);
        }
        assert!(!ExchangeError::Refused(String::new()).is_final());
    }
}
