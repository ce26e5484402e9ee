//! Names in which somebody sees another name: white space at an end, characters without a glyph.
//!
//! ```text
//! "acme "     "\u{feff}acme"     "ac\u{200b}me"     they look like acme, and are other domains
//! ```
//!
//! Knows nothing of documents. What stays true: joiners within a name, which some scripts and emoji need, are seen.

/// Characters of format (the category Cf of Unicode), first and last of each range, but for the joiners.
const FORMAT: [(char, char); 16] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200b}'),
    ('\u{200e}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Whether a name has white space or a joiner at an end, or a character of format anywhere.
pub(super) fn has_unseen(name: &str) -> bool {
    let is_format = |c: char| {
        FORMAT
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&c))
    };
    let is_joiner = |c: char| matches!(c, '\u{200c}' | '\u{200d}');
    let is_end = |c: char| c.is_whitespace() || is_joiner(c);
    name.contains(is_format) || name.starts_with(is_end) || name.ends_with(is_end)
}
