// SPDX-License-Identifier: Apache-2.0
//! Frames from the network that claim to be a server's answers.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(cnibox_dhcp::fuzzing::frame)
}
