// SPDX-License-Identifier: Apache-2.0
//! A message that a container had a say in, among others of a dump.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(cnibox_netlink::fuzzing::read_dump_around)
}
