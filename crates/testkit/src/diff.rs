// SPDX-License-Identifier: Apache-2.0
//! Which lines of two texts differ, for people.

/// The lines that only one of two texts has, in order: `- ` for the first's, `+ ` for the second's. Empty if equal.
pub fn diff(before: &str, after: &str) -> String {
    let before: Vec<_> = before.lines().collect();
    let after: Vec<_> = after.lines().collect();
    let lengths = common(&before, &after);
    let (mut i, mut j, mut lines) = (0, 0, String::new());
    while i < before.len() || j < after.len() {
        match (before.get(i), after.get(j)) {
            (Some(a), Some(b)) if a == b => (i, j) = (i + 1, j + 1),
            (Some(a), b) if b.is_none() || lengths[i + 1][j] >= lengths[i][j + 1] => {
                lines += &format!("- {a}\n");
                i += 1;
            }
            (_, Some(b)) => {
                lines += &format!("+ {b}\n");
                j += 1;
            }
            _ => break,
        }
    }
    lines
}

/// `[i][j]`: length of the longest common subsequence of `before[i..]` and `after[j..]`.
fn common(before: &[&str], after: &[&str]) -> Vec<Vec<usize>> {
    let mut lengths = vec![vec![0; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            lengths[i][j] = if before[i] == after[j] {
                lengths[i + 1][j + 1] + 1
            } else {
                lengths[i + 1][j].max(lengths[i][j + 1])
            };
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differing_lines_are_shown() {
        assert_eq!(diff("a\nb\nc\n", "a\nx\nc\nd\n"), "- b\n+ x\n+ d\n");
        assert_eq!(diff("a\nb", "b"), "- a\n");
        assert_eq!(diff("", "a"), "+ a\n");
        assert_eq!(diff("same", "same"), "");
    }
}
