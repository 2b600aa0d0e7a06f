// SPDX-License-Identifier: Apache-2.0
//! Connections to the daemon: greeting, calls, configurations.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(cnibox_dhcp::fuzzing::connection)
}
