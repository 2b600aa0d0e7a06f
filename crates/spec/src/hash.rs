// SPDX-License-Identifier: Apache-2.0
//! The hash from which the reference plugins derive chain and device names.

use sha2::{Digest, Sha512};

/// The first `len` lower-case hexadecimal digits of SHA-512 over `parts`, concatenated without separator
/// (reference: `pkg/utils/utils.go`, `FormatChainName`).
#[must_use]
pub fn sha512_prefix(parts: &[&str], len: usize) -> String {
    let mut hasher = Sha512::new();
    for part in parts {
        hasher.update(part.as_bytes());
    }
    let digest = hasher.finalize();
    digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(len).map(hex_digit).collect()
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

/// A name of at most `limit` bytes as it is, a longer one by its hash, behind a `+`, which no CNI name begins with.
#[must_use]
pub fn shortened(name: &str, limit: usize) -> String {
    if name.len() <= limit { name.to_owned() } else { format!("{SHORTENED}{}", sha512_prefix(&[name], 64)) }
}

/// Whether [`shortened`] has put a hash in place of a name.
#[must_use]
pub fn is_shortened(name: &str) -> bool {
    name.starts_with(SHORTENED)
}

const SHORTENED: char = '+';

#[cfg(test)]
mod tests {
    use super::sha512_prefix;

    #[test]
    fn matches_the_reference_vectors() {
        assert_eq!(sha512_prefix(&["test", "1234"], 24), "2bbe0c48b91a7d1b8a6753a8");
        assert_eq!(sha512_prefix(&["unit-test"], 16), "6fd94d501e58f0aa");
        assert_eq!(sha512_prefix(&["eth0", ":", "one"], 16), "287fc69eff0574a2");
        assert_eq!(sha512_prefix(&["n1", "cont8"], 12), "af9bcd28a677");
    }
}
