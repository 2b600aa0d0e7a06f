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
