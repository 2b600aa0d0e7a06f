// SPDX-License-Identifier: Apache-2.0
//! Results: read under every version, written under every version, and what is written can be read again.

use std::process::ExitCode;

use cnibox_spec::{CniVersion, Json, parse_result, print_result};

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(target)
}

fn target(input: &[u8]) {
    let Ok(json) = Json::parse(input) else { return };
    for version in CniVersion::ALL {
        let Ok(result) = parse_result(version.as_str(), &json) else { continue };
        for other in CniVersion::ALL {
            let Ok(printed) = print_result(*other, &result) else { continue };
            let again = Json::parse(printed.as_bytes()).expect("what is printed is JSON");
            let again = parse_result(other.as_str(), &again).expect("what is printed can be read");
            let printed_again = print_result(*other, &again).expect("what was read can be printed");
            assert_eq!(printed, printed_again, "{version} to {other}");
        }
    }
}
