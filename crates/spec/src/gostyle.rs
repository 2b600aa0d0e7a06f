// SPDX-License-Identifier: Apache-2.0
//! Text as Go's `fmt` package prints it, for messages that must equal the reference plugins'.

use std::fmt::{self, Display, Write};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// `s` in double quotes as Go's `%q` prints it.
pub fn quoted(s: &str) -> impl Display + '_ {
    Quoted(s)
}

/// A list as Go's `%v` prints it: `[a b c]`.
pub fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    bracketed(items.into_iter().map(|item| item.to_string()))
}

/// A list of strings as Go's `%q` prints it: `["a" "b"]`.
pub fn quoted_list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    bracketed(items.into_iter().map(|item| quoted(item).to_string()))
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

fn bracketed(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(" "))
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            write_escaped(f, c)?;
        }
        f.write_char('"')
    }
}

/// One character as `strconv.Quote` writes it.
fn write_escaped(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '"' => f.write_str("\\\""),
        '\\' => f.write_str("\\\\"),
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        '\x07' => f.write_str("\\a"),
        '\x08' => f.write_str("\\b"),
        '\x0b' => f.write_str("\\v"),
        '\x0c' => f.write_str("\\f"),
        c if (c as u32) < 0x20 || c as u32 == 0x7f => write!(f, "\\x{:02x}", c as u32),
        c if c.is_control() || (c.is_whitespace() && c != ' ') => write!(f, "\\u{:04x}", c as u32),
        c => f.write_char(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        assert_eq!(quoted("a\"b\\c\n\u{1}é\u{85}").to_string(), r#""a\"b\\c\n\x01é\u0085""#);
        assert_eq!(quoted_list(["a=b", "c"]), r#"["a=b" "c"]"#);
        assert_eq!(list([1, 2]), "[1 2]");
    }
}
