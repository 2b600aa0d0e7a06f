// SPDX-License-Identifier: Apache-2.0
//! The same for the networks that need kinds of links, or filters, which a kernel may lack. `scripts/test` runs these
//! tests again in a complete one.

use crate::fixture::Side;
use crate::networks;
use crate::report::{Tally, rounds};
use crate::{killed, lost, retry, steps};

#[test]
fn whatever_step_of_add_fails_the_host_is_as_before() {
    let mut tally = Tally::default();
    steps::fail_everywhere(networks::rare(), &mut tally);
    tally.expect_spotless("a step");
}

#[test]
fn a_killed_call_is_cleaned_by_the_next_del_or_gc() {
    let mut tally = Tally::default();
    killed::kill_everywhere(networks::rare(), Side::Ours, rounds(3, 20), &mut tally);
    tally.expect_spotless("a kill");
}

#[test]
fn add_after_a_failed_or_killed_add_works_without_del() {
    let mut tally = Tally::default();
    retry::fail_and_retry(networks::rare(), Side::Ours, &mut tally);
    retry::kill_and_retry(networks::rare(), Side::Ours, rounds(3, 20), &mut tally);
    tally.expect_spotless("a retry");
}

#[test]
fn del_cleans_whatever_happened() {
    let mut tally = Tally::default();
    lost::lose_everything(networks::rare(), Side::Ours, &mut tally);
    tally.expect_spotless("a loss");
}

#[test]
fn gc_removes_the_dead_and_nothing_else() {
    lost::collect_everywhere(networks::rare());
}

#[test]
fn gc_waits_for_a_namespace_that_is_ending() {
    let networks = networks::rare().into_iter().filter(|network| !network.has_host_end());
    lost::collect_ending(networks.collect());
}
