// SPDX-License-Identifier: Apache-2.0
//! FNV-1a, 64 bits (draft-eastlake-fnv): the hash of the index and of the sticky memory. Stable across builds, unlike
//! the standard library's; not a defence, so that whatever it finds is compared with the files.

/// The hash of the parts, one after the other.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #[test]
    fn matches_the_published_vectors() {
        assert_eq!(super::hash(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::hash(&[b"a"]), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(super::hash(&[b"foo", b"bar"]), 0x8594_4171_f739_67e8);
    }
}
