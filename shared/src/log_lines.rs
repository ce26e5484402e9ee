//! Limits lines in a process's log about events that a peer can cause as often as it likes, and escapes a peer's text
//! in them.
//!
//! ```text
//! 12:00:00.0   a line                           12:00:00.1 to 12:00:00.9   no line, but counted
//! 12:00:01.0   a line, unsaid = 997
//!
//! no room<LF>ERROR forged… of 1,000 bytes       no room\nERROR forged… (1000 bytes)
//! ```
//!
//! Metrics count every event. Knows nothing of what is logged, and reads no clock. What stays true: there is a
//! minimum time between two lines; a peer's text stays on one line, and takes a bounded part of it.

use std::fmt;

use crate::escape::escaped;
use crate::time::Span;

/// The most bytes of a peer's text in a line: the longest text of a ZMTP ERROR. Escaped, they take at most four times
/// as many.
pub const EXCERPT_BYTES_MAX: usize = 255;

/// When the next line may be logged.
#[derive(Debug)]
pub struct LineInterval {
    every: Span,
    not_before: Span,
    unsaid: u64,
}

impl LineInterval {
    /// The first line at once, further ones after at least this time.
    pub const fn new(every: Span) -> Self {
        Self {
            every,
            not_before: Span::ZERO,
            unsaid: 0,
        }
    }

    /// Whether a line may be logged now; `Some` is the number of lines suppressed since the last one.
    pub fn may(&mut self, clock: Span) -> Option<u64> {
        if clock < self.not_before {
            self.unsaid += 1;
            return None;
        }
        self.not_before = clock.saturating_add(self.every);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// A peer's text for a line of a log: without line ends and other characters that control a terminal, and cut after
/// [`EXCERPT_BYTES_MAX`] bytes.
pub const fn excerpt(text: &str) -> Excerpt<'_> {
    Excerpt(text)
}

/// A text that is written escaped, and cut if it is long.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt<'a>(&'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.len();
        let shown = self.0.floor_char_boundary(EXCERPT_BYTES_MAX);
        match self.0.get(..shown) {
            Some(begin) if shown < len => write!(f, "{}… ({len} bytes)", escaped(begin)),
            _ => escaped(self.0).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_at_once_and_then_after_an_interval() {
        let mut interval = LineInterval::new(Span::from_secs(60));
        assert_eq!(interval.may(Span::ZERO), Some(0));
        for second in 1..60 {
            assert_eq!(interval.may(Span::from_secs(second)), None);
        }
        assert_eq!(interval.may(Span::from_secs(60)), Some(59));
    }

    #[test]
    fn a_peers_text_forges_no_line_and_is_cut() {
        let forged = "no\u{1b}[31m\n2026-11-26T00:00:00Z ERROR forged\r\u{202e}";
        assert_eq!(
            excerpt(forged).to_string(),
            r"no\x1b[31m\n2026-11-26T00:00:00Z ERROR forged\r\u{202e}"
        );
        // Cut between characters: byte 255 is within the 64th character of four bytes.
        let long = "😀".repeat(1_000);
        assert_eq!(
            excerpt(&long).to_string(),
            format!("{}… (4000 bytes)", "😀".repeat(63))
        );
        let whole = "x".repeat(EXCERPT_BYTES_MAX);
        assert_eq!(excerpt(&whole).to_string(), whole);
        let worst = "\u{1b}".repeat(1_000_000);
        assert!(excerpt(&worst).to_string().len() < 4 * EXCERPT_BYTES_MAX + 32);
    }
}
