// SPDX-License-Identifier: Apache-2.0
//! Datagrams of the kernel: answers, dumps, notifications, refusals.

use std::process::ExitCode;

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(cnibox_netlink::fuzzing::decode_anything)
}
