//! How names are written on terminals and in logs, and read from a command line.
//!
//! ```text
//! ev<ESC>[2Jil          ev\x1b[2Jil          a caller chose it; it must not clear an operator's screen
//! two<LF>lines          two\nlines           nor forge a line
//! CORP\ann              CORP\\ann            an escaped name reads back as the same name
//! ```
//!
//! Names come from callers. A character without a glyph of its own, or one that changes the order of others, is
//! written as an escape. Knows nothing of what names stand for. What stays true: [`unescaped`] reads the output of
//! [`escaped`] as the original name.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// Escapes JSON: characters without a glyph occur only within its strings, and are written in JSON's
/// notation, `\u202e`.
pub fn escaped_json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_hidden(character) {
            true => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
            }
            false => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// Escapes a name: on one line, and without characters that control a terminal.
pub const fn escaped(name: &str) -> Escaped<'_> {
    Escaped {
        text: name,
        lines: false,
    }
}

/// Escapes text of several lines: line ends and tabs stay, and so do backslashes.
pub const fn escaped_lines(text: &str) -> Escaped<'_> {
    Escaped { text, lines: true }
}

/// A text that is written with escapes.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a> {
    text: &'a str,
    lines: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.text.chars() {
            match character {
                '\n' | '\t' if self.lines => f.write_char(character)?,
                '\\' if !self.lines => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                hidden if is_hidden(hidden) => match u32::from(hidden) {
                    code @ 0..=0xff => write!(f, "\\x{code:02x}")?,
                    code => write!(f, "\\u{{{code:x}}}")?,
                },
                shown => f.write_char(shown)?,
            }
        }
        Ok(())
    }
}

/// Whether a character has no glyph of its own: it controls terminals, or changes how others are shown.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A fault of an escape that somebody typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has an invalid escape at byte {at}: expected \\\\, \\n, \\r, \\t, \\xHH or \\u{{HEX}}")]
pub struct EscapeFault {
    /// The position of its backslash.
    pub at: usize,
}

/// Reads a name as [`escaped`] writes it. Characters that would be escaped are also accepted unescaped.
///
/// # Errors
///
/// If a backslash does not begin a known escape.
pub fn unescaped(text: &str) -> Result<String, EscapeFault> {
    let mut name = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        name.push_str(before);
        let fault = EscapeFault {
            at: text.len() - escape.len(),
        };
        let (character, len) = escape_at_start(escape).ok_or(fault)?;
        name.push(character);
        rest = &escape[len..];
    }
    name.push_str(rest);
    Ok(name)
}

/// The character that an escape stands for, and the bytes of the escape.
fn escape_at_start(escape: &str) -> Option<(char, usize)> {
    let hex = |digits: &str| {
        let legal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok().filter(|_| legal)?;
        char::from_u32(code)
    };
    Some(match escape.as_bytes().get(1)? {
        b'\\' => ('\\', 2),
        b'n' => ('\n', 2),
        b'r' => ('\r', 2),
        b't' => ('\t', 2),
        b'x' => (hex(escape.get(2..4)?)?, 4),
        b'u' => {
            let digits = escape.get(2..)?.strip_prefix('{')?;
            let (digits, _) = digits.split_once('}')?;
            (hex(digits)?, digits.len() + 4)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        let evil = "acme\u{1b}[2J\u{1b}]0;owned\u{7}\nfake line\r\u{202e}evil\u{9b}31m\\é";
        assert_eq!(
            escaped(evil).to_string(),
            r"acme\x1b[2J\x1b]0;owned\x07\nfake line\r\u{202e}evil\x9b31m\\é"
        );
        let json = "{\"domain\":\"a\u{7f}b\u{202e}c\u{e0001}é\"}";
        assert_eq!(
            escaped_json(json),
            r#"{"domain":"a\u007fb\u202ec\udb40\udc01é"}"#
        );
        assert!(matches!(escaped_json("{}"), Cow::Borrowed("{}")));
        let lines = "one\ttwo\nthree\\\u{1b}[31m";
        assert_eq!(
            escaped_lines(lines).to_string(),
            "one\ttwo\nthree\\\\x1b[31m"
        );
    }

    #[test]
    fn escaped_text_is_read_back_equal() {
        let every = (0..0x3000)
            .chain(0xe0000..0xe0080)
            .filter_map(char::from_u32);
        let name: String = every.collect();
        let written = escaped(&name).to_string();
        assert!(!written.chars().any(is_hidden));
        assert_eq!(unescaped(&written), Ok(name));
    }

    #[test]
    fn an_invalid_escape_is_reported() {
        for (text, at) in [
            (r"\", 0),
            (r"a\q", 1),
            (r"CORP\ann", 4),
            (r"\x", 0),
            (r"\x1", 0),
            (r"\xé", 0),
            (r"\x+1", 0),
            (r"\u1b", 0),
            (r"\u{}", 0),
            (r"\u{d800}", 0),
            (r"ok\\\u{1", 4),
        ] {
            assert_eq!(unescaped(text), Err(EscapeFault { at }), "{text}");
        }
        assert_eq!(unescaped(r"\x41\u{42}").as_deref(), Ok("AB"));
    }
}
