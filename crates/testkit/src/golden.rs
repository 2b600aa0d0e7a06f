// SPDX-License-Identifier: Apache-2.0
//! Expected texts in files, rewritten on demand.

use std::fs;
use std::path::Path;

use crate::diff;

/// Compares a text with a file. With `BLESS=1` in the environment the file is written instead.
///
/// # Panics
/// If they differ, or the file cannot be read or written.
#[track_caller]
pub fn golden(path: impl AsRef<Path>, actual: &str) {
    let path = path.as_ref();
    if std::env::var("BLESS").is_ok_and(|value| value == "1") {
        fs::write(path, actual).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        return;
    }
    let expected = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("read {}: {error} (BLESS=1 writes it)", path.display()));
    assert!(
        expected == actual,
        "{} differs (BLESS=1 rewrites it):\n{}",
        path.display(),
        diff(&expected, actual)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "- // SPDX")]
    fn differences_are_shown() {
        golden(concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden.rs"), "something else");
    }

    #[test]
    fn equal_texts_pass() {
        golden(concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden.rs"), include_str!("golden.rs"));
    }
}
