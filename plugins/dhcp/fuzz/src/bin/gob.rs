// SPDX-License-Identifier: Apache-2.0
//! Streams of gob values, as a daemon's answers are.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(cnibox_dhcp::fuzzing::gob)
}
