// SPDX-License-Identifier: Apache-2.0
//! Rules as `iptables -S` lists them, and the lines that delete them.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(cnibox_netfilter::fuzzing::read_listing)
}
