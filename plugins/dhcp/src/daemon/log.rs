// SPDX-License-Identifier: Apache-2.0
//! The daemon's words on stderr, one line at a time. Whoever collects them adds the time.

use std::fmt::Arguments;
use std::io::Write;

/// Says something. Nobody hears it when stderr is closed.
pub(super) fn log(line: Arguments<'_>) {
    let text = format!("{line}\n");
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
