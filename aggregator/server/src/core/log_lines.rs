//! Log lines about hits that were not limited, of which there may be very many.
//!
//! ```text
//! 12:00:00   10 hits               12:00:01 to 12:00:59   nothing, however many there are
//! 12:01:00   690 hits more
//! ```
//!
//! Counters count every hit. What stays true: lines have a minimum distance in time, and each reports new hits.

use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::Span;

/// Reports hits of new pairs that were not limited: once a minute while there are more.
#[derive(Debug)]
pub(super) struct CapWarnings {
    lines: LineInterval,
    last_logged: u64,
}

impl CapWarnings {
    /// Nothing has been logged yet.
    pub const fn new() -> Self {
        Self {
            lines: LineInterval::new(Span::from_secs(60)),
            last_logged: 0,
        }
    }

    /// Takes the total until now; returns the increase since the last line, if a line is due.
    pub fn more(&mut self, clock: Span, hits: u64) -> Option<u64> {
        if hits == self.last_logged {
            return None;
        }
        self.lines.may(clock)?;
        let more = hits.saturating_sub(self.last_logged);
        self.last_logged = hits;
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_at_the_cap_are_logged_once_a_minute() {
        let mut at_cap = CapWarnings::new();
        assert_eq!(at_cap.more(Span::ZERO, 0), None);
        assert_eq!(at_cap.more(Span::from_secs(1), 10), Some(10));
        assert_eq!(at_cap.more(Span::from_secs(2), 500), None);
        assert_eq!(at_cap.more(Span::from_secs(61), 700), Some(690));
        assert_eq!(at_cap.more(Span::from_secs(200), 700), None, "no more");
    }
}
