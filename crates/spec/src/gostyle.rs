// SPDX-License-Identifier: Apache-2.0
//! Text as Go's `fmt` package prints it, for messages that must equal the reference plugins'.

use std::fmt::Display;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// `s` in double quotes as Go's `%q` prints it (`strconv.Quote`).
pub fn quoted(s: &str) -> String {
    let mut text = String::from('"');
    for c in s.chars() {
        match c {
            '"' | '\\' | '\n' | '\r' | '\t' => text.extend(c.escape_default()),
            '\x07' => text.push_str("\\a"),
            '\x08' => text.push_str("\\b"),
            '\x0b' => text.push_str("\\v"),
            '\x0c' => text.push_str("\\f"),
            c if is_printable(c) => text.push(c),
            c if c.is_ascii() => text.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c <= '\u{ffff}' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    text.push('"');
    text
}

/// What Go's `strconv.IsPrint` says, and of characters of a younger Unicode than Go's, what that says.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_control();
    }
    // What combines is escaped at the beginning of a text, and nowhere else.
    format!("a{c}").escape_debug().nth(1) == Some(c)
}

/// A list as Go's `%v` prints it: `[a b c]`.
pub fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items = items.into_iter().map(|item| item.to_string());
    format!("[{}]", items.collect::<Vec<_>>().join(" "))
}

/// A list of strings as Go's `%q` prints it: `["a" "b"]`.
pub fn quoted_list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    list(items.into_iter().map(quoted))
}

/// What a pointer leads to, or `<nil>`.
pub fn or_nil(value: Option<impl Display>) -> String {
    value.map_or_else(|| "<nil>".to_owned(), |value| value.to_string())
}

/// The mask of a network in hexadecimal, as Go prints `net.IPMask`.
#[must_use]
pub fn hex_mask(network: IpNetwork) -> String {
    match network.mask() {
        IpAddr::V4(mask) => format!("{:08x}", mask.to_bits()),
        IpAddr::V6(mask) => format!("{:032x}", mask.to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats, spaces, private use and what is not assigned; what combines is printed, were it alone.
    #[test]
    fn escapes_what_go_does_not_print() {
        assert_eq!(
            quoted("\u{200b}\u{feff}\u{a0}\u{3000}\u{2028}\u{e000}\u{378}"),
            r#""\u200b\ufeff\u00a0\u3000\u2028\ue000\u0378""#
        );
        assert_eq!(quoted("\u{e0001}\u{10ffff}"), r#""\U000e0001\U0010ffff""#);
        assert_eq!(quoted("\u{301}e\u{301}ß漢😀"), "\"\u{301}e\u{301}ß漢😀\"");
    }

    #[test]
    fn quotes_like_go() {
        assert_eq!(quoted("a\"b\\c\n\u{1}é'\u{85}"), r#""a\"b\\c\n\x01é'\u0085""#);
        assert_eq!(quoted("\r\t\u{7}\u{8}\u{b}\u{c}\u{7f}"), r#""\r\t\a\b\v\f\x7f""#);
        assert_eq!(quoted_list(["a=b", "c"]), r#"["a=b" "c"]"#);
        assert_eq!(list([1, 2]), "[1 2]");
    }
}
