// SPDX-License-Identifier: Apache-2.0
//! Nothing leaks: failures at every step, kills, retries, lost state, crowds, failing system calls, hostile input.
//!
//! Each scenario runs in a world of its own: a host with one living neighbour, whose things must stay while another
//! container comes and goes badly. The short form runs with the other tests; `scripts/resilience` runs the long one,
//! with the Go plugins beside ours, and prints what was left as a table.

mod container;
mod crowd;
mod faults;
mod fixture;
mod generated;
mod histories;
mod hostile;
mod killed;
mod kinds;
mod lacking;
mod living;
mod lost;
mod networks;
mod report;
mod retry;
mod status;
mod steps;
mod strangers;
mod swapped;
