//! Lines for the operator about what somebody else can cause as often as they like.
//!
//! ```text
//! 12:00:00   a line                12:00:01 to 12:00:59   nothing, and it is counted
//! 12:01:00   a line, unsaid = 59
//! ```
//!
//! Counters count each time. Knows nothing of what is said. What stays true: from one line to the next a time passes.

use tollgate_shared::time::Span;

/// When the next line may be logged.
#[derive(Debug)]
pub(super) struct LineInterval {
    every: Span,
    not_before: Span,
    unsaid: u64,
}

impl LineInterval {
    /// At once, and then not before this time has passed.
    pub const fn new(every: Span) -> Self {
        Self {
            every,
            not_before: Span::ZERO,
            unsaid: 0,
        }
    }

    /// Whether a line may be logged now; with it, how many were not since the last.
    pub fn may(&mut self, clock: Span) -> Option<u64> {
        if clock < self.not_before {
            self.unsaid += 1;
            return None;
        }
        self.not_before = clock.saturating_add(self.every);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// Hits of new pairs that were not limited, as the operator reads of them: once a minute while there are more.
#[derive(Debug)]
pub(super) struct CapWarnings {
    lines: LineInterval,
    said: u64,
}

impl CapWarnings {
    /// Nothing was said yet.
    pub const fn new() -> Self {
        Self {
            lines: LineInterval::new(Span::from_secs(60)),
            said: 0,
        }
    }

    /// So many there were until now; how many more than at the last line, if one is due.
    pub fn more(&mut self, clock: Span, hits: u64) -> Option<u64> {
        if hits == self.said {
            return None;
        }
        self.lines.may(clock)?;
        let more = hits.saturating_sub(self.said);
        self.said = hits;
        Some(more)
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
    fn hits_at_the_cap_are_said_once_a_minute_while_there_are_more() {
        let mut at_cap = CapWarnings::new();
        assert_eq!(at_cap.more(Span::ZERO, 0), None);
        assert_eq!(at_cap.more(Span::from_secs(1), 10), Some(10));
        assert_eq!(at_cap.more(Span::from_secs(2), 500), None);
        assert_eq!(at_cap.more(Span::from_secs(61), 700), Some(690));
        assert_eq!(at_cap.more(Span::from_secs(200), 700), None, "no more");
    }
}
