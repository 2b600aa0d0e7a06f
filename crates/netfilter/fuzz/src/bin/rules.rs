// SPDX-License-Identifier: Apache-2.0
//! Rules as the kernel lists them: whatever another tool or a later kernel has put there.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(cnibox_netfilter::fuzzing::read_rules)
}
