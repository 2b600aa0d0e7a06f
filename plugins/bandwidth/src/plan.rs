// SPDX-License-Identifier: Apache-2.0
//! The arithmetic of token bucket filters and the names of IFB devices. Pure.

use cnibox_netlink::Tbf;
use cnibox_spec::sha512_prefix;

/// The attachment's IFB device.
pub(crate) fn ifb_name(network: &str, container: &str) -> String {
    format!("bwp{}", sha512_prefix(&[network, container], 12))
}

/// The filter for so many bits per second, and bits at once, below 4 GB, with the reference's parameters, bit for bit:
/// CHECK of either implementation compares them.
pub(crate) fn tbf(rate: u64, burst: u64) -> Tbf {
    let rate = rate / 8;
    let burst = u32::try_from(burst / 8).unwrap_or(u32::MAX);
    Tbf { rate, limit: limit(rate, burst), buffer: buffer(rate, burst) }
}

/// What may wait: the burst, and what is sent in the longest time that a packet may wait.
#[expect(clippy::cast_precision_loss, reason = "the reference computes in floating point")]
fn limit(rate: u64, burst: u32) -> u32 {
    go_u32(rate as f64 * LATENCY_USEC / USEC_PER_SEC).wrapping_add(burst)
}

/// The burst as the time that it takes, in the kernel's ticks.
#[expect(clippy::cast_precision_loss, reason = "the reference computes in floating point")]
fn buffer(rate: u64, burst: u32) -> u32 {
    let usec = go_u32(f64::from(burst) * USEC_PER_SEC / rate as f64);
    go_u32(f64::from(usec) * TICKS_PER_USEC)
}

/// A conversion to `uint32` as Go compiles it for amd64: what does not fit loses its upper bits. A long burst at a low
/// rate depends on it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go's conversion is to be reproduced"
)]
fn go_u32(value: f64) -> u32 {
    if value < TWO_TO_THE_63 { value as i64 as u32 } else { 0 }
}

const USEC_PER_SEC: f64 = 1_000_000.0;
/// The longest time that a packet may wait: 25 ms.
const LATENCY_USEC: f64 = 25_000.0;
/// `/proc/net/psched`, first by second number: 1000 ns per microsecond by 64 ns per tick, the same in every kernel
/// since 2.6.31 (`PSCHED_SHIFT` of `net/pkt_sched.h`).
const TICKS_PER_USEC: f64 = 15.625;
const TWO_TO_THE_63: f64 = 9_223_372_036_854_775_808.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_references() {
        assert_eq!(ifb_name("n1", "cont8"), "bwpaf9bcd28a677");
    }

    #[test]
    fn parameters_are_the_references() {
        assert_eq!(tbf(8, 16), Tbf { rate: 1, limit: 2, buffer: 31_250_000 });
        assert_eq!(tbf(8_000_000, 800_000), Tbf { rate: 1_000_000, limit: 125_000, buffer: 1_562_500 });
    }

    #[test]
    fn what_does_not_fit_loses_its_upper_bits() {
        // 268435455 bytes at 125000 bytes per second: 2147483640 us, times 15.625 is 33554431875.
        let long = tbf(1_000_000, 2_147_483_647);
        assert_eq!(long.buffer, (33_554_431_875_u64 & 0xffff_ffff) as u32);
        assert_eq!(tbf(7, 8).buffer, 0);
    }
}
