//! Keys and strings in TOML notation.

use std::fmt::{self, Write as _};

/// A key in TOML: bare if possible.
pub(super) struct TomlKey<'a>(pub(super) &'a str);

impl fmt::Display for TomlKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if !self.0.is_empty() && self.0.bytes().all(bare) {
            f.write_str(self.0)
        } else {
            TomlText(self.0).fmt(f)
        }
    }
}

/// A string in TOML. Checked names have no control characters.
pub(super) struct TomlText<'a>(pub(super) &'a str);

impl fmt::Display for TomlText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            if c == '"' || c == '\\' {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        f.write_char('"')
    }
}
