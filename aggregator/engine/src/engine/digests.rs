//! When aggregators publish state digests of a partition: determined by log time alone, so that all choose the same
//! ticks.

use tollgate_shared::time::{Span, Timestamp};

/// Log time between two digests.
const EVERY: Span = Span::from_secs(10);

/// Whether a counted tick that moved log time from `before` to `after` is the first one in its 10 s.
pub fn is_digest_due(before: Option<Timestamp>, after: Option<Timestamp>) -> bool {
    let tens = |at: Timestamp| at.as_micros() / EVERY.as_micros();
    after.is_some() && before.map(tens) != after.map(tens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_due_at_the_first_tick_of_each_ten_seconds() {
        let at = |seconds: u64| Some(Timestamp::ZERO.saturating_add(Span::from_secs(seconds)));
        assert!(is_digest_due(None, at(3)));
        assert!(is_digest_due(at(9), at(10)) && is_digest_due(at(11), at(47)));
        assert!(!is_digest_due(at(10), at(19)), "the same ten seconds");
        assert!(!is_digest_due(at(10), at(10)), "a tick that does not count");
        assert!(!is_digest_due(None, None));
    }
}
