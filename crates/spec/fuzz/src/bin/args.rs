// SPDX-License-Identifier: Apache-2.0
//! `CNI_ARGS`.

use std::process::ExitCode;

use cnibox_spec::{load_args, parse_cidr, parse_ip};

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(target)
}

fn target(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut known = 0;
    let loaded = load_args(&text, |key, value| {
        let _ = (parse_ip(value), parse_cidr(value));
        known += usize::from(key == "IP");
        (key == "IP").then(|| if value.is_empty() { Err("empty".to_owned()) } else { Ok(()) })
    });
    if let Err(error) = loaded {
        assert!(!error.to_string().is_empty());
    } else {
        assert!(known <= text.split(';').count());
    }
}
