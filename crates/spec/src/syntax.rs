// SPDX-License-Identifier: Apache-2.0
//! Where Go's reading of JSON is another than `serde_json`'s: what its scanner says of a text that is none, and escapes that
//! are no character (`encoding/json/scanner.go`, `unquoteBytes` of `encoding/json/decode.go`).
//!
//! Knows no value: only whether a text is a document, and why not.

use std::borrow::Cow;

use crate::gostyle::quoted;

/// What the scanner says of `text`; `None` if it is a document.
pub(crate) fn complaint(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0, depth: 0 };
    scanner.document().err()
}

/// A text whose halves of surrogate pairs that stand alone, as escapes, are U+FFFD.
pub(crate) fn without_lone_surrogates(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let pair = [escaped(rest), rest.get(ESCAPE..).and_then(escaped)];
        let (kept, length) = match pair {
            [Some(0xd800..0xdc00), Some(0xdc00..0xe000)] => (&rest[..2 * ESCAPE], 2 * ESCAPE),
            [Some(0xd800..0xe000), _] => ("\\ufffd", ESCAPE),
            _ => {
                let length = rest.chars().take(2).map(char::len_utf8).sum();
                (&rest[..length], length)
            }
        };
        out.push_str(kept);
        rest = &rest[length..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The number in the escape that `text` begins with.
fn escaped(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// The bytes of `\u0000`.
const ESCAPE: usize = 6;

/// Reads a byte at a time; behind the last one stands a space, as in `(*scanner).eof`.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

/// How deep a text may be nested for this reader, which Go lets go ten times as deep; `serde_json` gives up before.
const DEPTH: usize = 1000;

/// What Go says.
type Scanned = Result<(), String>;

impl Scanner<'_> {
    fn document(&mut self) -> Scanned {
        self.value()?;
        while self.at < self.text.len() {
            let byte = self.next()?;
            if !is_space(byte) {
                return Err(invalid(byte, "after top-level value"));
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<u8, String> {
        let byte = match self.text.get(self.at) {
            Some(byte) => *byte,
            None if self.at == self.text.len() => b' ',
            None => return Err("unexpected end of JSON input".to_owned()),
        };
        self.at += 1;
        Ok(byte)
    }

    fn next_but_space(&mut self) -> Result<u8, String> {
        loop {
            let byte = self.next()?;
            if !is_space(byte) {
                return Ok(byte);
            }
        }
    }

    fn value(&mut self) -> Scanned {
        let first = self.next_but_space()?;
        self.value_from(first)
    }

    fn value_from(&mut self, first: u8) -> Scanned {
        match first {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::array),
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(first),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            other => Err(invalid(other, "looking for beginning of value")),
        }
    }

    fn nested(&mut self, scan: fn(&mut Self) -> Scanned) -> Scanned {
        if self.depth == DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        self.depth += 1;
        scan(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn object(&mut self) -> Scanned {
        let mut byte = self.next_but_space()?;
        if byte == b'}' {
            return Ok(());
        }
        loop {
            if byte != b'"' {
                return Err(invalid(byte, "looking for beginning of object key string"));
            }
            self.string()?;
            match self.next_but_space()? {
                b':' => self.value()?,
                other => return Err(invalid(other, "after object key")),
            }
            match self.next_but_space()? {
                b'}' => return Ok(()),
                b',' => byte = self.next_but_space()?,
                other => return Err(invalid(other, "after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Scanned {
        let mut byte = self.next_but_space()?;
        if byte == b']' {
            return Ok(());
        }
        loop {
            self.value_from(byte)?;
            match self.next_but_space()? {
                b']' => return Ok(()),
                b',' => byte = self.next_but_space()?,
                other => return Err(invalid(other, "after array element")),
            }
        }
    }

    fn string(&mut self) -> Scanned {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                control @ ..b' ' => return Err(invalid(control, "in string literal")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Scanned {
        match self.next()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => (0..4).try_for_each(|_| match self.next()? {
                digit if digit.is_ascii_hexdigit() => Ok(()),
                other => Err(invalid(other, "in \\u hexadecimal character escape")),
            }),
            other => Err(invalid(other, "in string escape code")),
        }
    }

    fn number(&mut self, mut first: u8) -> Scanned {
        if first == b'-' {
            first = self.next()?;
            if !first.is_ascii_digit() {
                return Err(invalid(first, "in numeric literal"));
            }
        }
        if first != b'0' {
            self.digits();
        }
        if self.is_at(b".") {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if self.is_at(b"eE") {
            self.at += 1;
            if self.is_at(b"+-") {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn is_at(&self, wanted: &[u8]) -> bool {
        self.text.get(self.at).is_some_and(|byte| wanted.contains(byte))
    }

    fn digit(&mut self, context: &str) -> Scanned {
        match self.next()? {
            digit if digit.is_ascii_digit() => Ok(()),
            other => Err(invalid(other, context)),
        }
    }

    fn digits(&mut self) {
        self.at += self.text.iter().skip(self.at).take_while(|byte| byte.is_ascii_digit()).count();
    }

    fn literal(&mut self, literal: &str) -> Scanned {
        literal.bytes().skip(1).try_for_each(|wanted| match self.next()? {
            found if found == wanted => Ok(()),
            other => {
                Err(invalid(other, &format!("in literal {literal} (expecting '{}')", char::from(wanted))))
            }
        })
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// A byte of a longer character is printed as if it were one itself.
fn invalid(byte: u8, context: &str) -> String {
    let byte = match byte {
        b'\'' => r"\'".to_owned(),
        b'"' => "\"".to_owned(),
        other => quoted(&char::from(other).to_string()).trim_matches('"').to_owned(),
    };
    format!("invalid character '{byte}' {context}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_gos() {
        for (text, said) in [
            ("", "unexpected end of JSON input"),
            (r#"{"a":[1,"b"#, "unexpected end of JSON input"),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("[tr€]", "invalid character 'â' in literal true (expecting 'u')"),
            ("fal", "invalid character ' ' in literal false (expecting 's')"),
            ("é", "invalid character 'Ã' looking for beginning of value"),
            (r#"{"a":\}"#, r"invalid character '\\' looking for beginning of value"),
            ("{} \u{b}", r"invalid character '\v' after top-level value"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b":2}"#, "invalid character '\"' after object key:value pair"),
            ("{\"a\":1\0}", r"invalid character '\x00' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            ("\"a\n\"", r"invalid character '\n' in string literal"),
            (r#""\q""#, "invalid character 'q' in string escape code"),
            (r#""\u12g4""#, "invalid character 'g' in \\u hexadecimal character escape"),
            ("-", "invalid character ' ' in numeric literal"),
            ("[1.]", "invalid character ']' after decimal point in numeric literal"),
            ("1e+x", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
        ] {
            assert_eq!(complaint(text.as_bytes()).as_deref(), Some(said), "{text}");
        }
        assert_eq!(complaint(b"\xff").unwrap(), "invalid character 'ÿ' looking for beginning of value");
        assert_eq!(complaint("[".repeat(1 << 21).as_bytes()).unwrap(), "exceeded max depth");
    }

    #[test]
    fn documents_are_not_complained_of() {
        for text in [r#" {"a" : [ -0.5e-3 , "\u00e9\n", {} , [] ] } "#, "0", "null", "\"é\""] {
            assert_eq!(complaint(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn halves_of_pairs_are_replaced_and_pairs_kept() {
        for (text, read) in [
            (r"\ud83d\uDE00", r"\ud83d\uDE00"),
            (r"\ud83d\ud83d\ude00", r"\ufffd\ud83d\ude00"),
            (r"\ude00x\uD83D", r"\ufffdx\ufffd"),
            (r"\\ud83d é\é \ud83", r"\\ud83d é\é \ud83"),
            (r"\ud83d\u00e9\", r"\ufffd\u00e9\"),
        ] {
            assert_eq!(without_lone_surrogates(text.into()), read, "{text}");
        }
    }
}
