// SPDX-License-Identifier: Apache-2.0
//! Words in the files and listings of the iptables tools.

use crate::error::{Error, Result};

/// A word for a file of `iptables-restore`, quoted if it has to be. Quotes and backslashes inside are escaped as
/// iptables-save does it; what would end the line is refused.
pub(crate) fn quote(word: &str) -> Result<String> {
    if word.contains(|c: char| c.is_control()) {
        return Err(Error::InvalidText { kind: "word of a rule", value: word.to_owned() });
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/+!=@%[]<>".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Ok(word.to_owned());
    }
    Ok(format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// Splits a line of `iptables -S` into words.
pub(crate) fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            ' ' if !quoted => words.extend(word.take()),
            character => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::{quote, split_words};

    #[test]
    fn quoted_words_come_back_whole() {
        for word in [
            "plain",
            "a b",
            "say \"x\"",
            "back\\slash",
            "\\\"",
            "",
            "tick'`$(x)",
            "name: \"n\" id: \"i\"",
            "#x",
        ] {
            let line = format!("-A {} next", quote(word).unwrap());
            assert_eq!(split_words(&line), ["-A", word, "next"], "{line}");
        }
    }

    #[test]
    fn words_that_need_no_quotes_stay_bare() {
        for word in ["-A", "10.0.0.0/8", "0x2000/0x2000", "[fd00::1]:80", "RELATED,ESTABLISHED", "!"] {
            assert_eq!(quote(word).unwrap(), word);
        }
        assert_eq!(quote("a \"b\" \\").unwrap(), r#""a \"b\" \\""#);
    }

    #[test]
    fn line_ends_are_refused() {
        for word in ["a\nCOMMIT", "a\rb", "a\0b", "\t"] {
            assert!(quote(word).is_err(), "{word:?}");
        }
    }

    #[test]
    fn listings_of_the_tool_are_split() {
        let line = r#"-A CNI-A -m comment --comment "name: \"my net\" id: \"c1\"" -j ACCEPT"#;
        let words =
            ["-A", "CNI-A", "-m", "comment", "--comment", "name: \"my net\" id: \"c1\"", "-j", "ACCEPT"];
        assert_eq!(split_words(line), words);
    }
}
