//! Instants and spans: whole microseconds, without a clock.
//!
//! The engine's time is a whole number of microseconds since the Unix epoch, taken from records.
//! Sums and differences saturate, because their only use is "denied until" and "for how long": the
//! first and last instants are the right results for what is out of range.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An instant in microseconds since the Unix epoch (UTC), as stamped by the process that observed
/// the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A length of time in microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const ZERO: Self = Self(0);
    /// The last instant; as an end it means "never".
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `micros` microseconds after the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The instant `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the Unix epoch, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// The instant one `span` later, or the last instant.
    pub const fn saturating_add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The instant one `span` earlier, or the Unix epoch.
    pub const fn saturating_sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The instant `offset` microseconds later (earlier if negative), saturating at both ends.
    pub const fn saturating_offset(self, offset: i64) -> Self {
        Self(self.0.saturating_add_signed(offset))
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The signed difference `self - other` in microseconds, saturating.
    pub const fn signed_micros_since(self, other: Self) -> i64 {
        if self.0 >= other.0 {
            let difference = self.0 - other.0;
            if difference > i64::MAX as u64 {
                i64::MAX
            } else {
                difference as i64
            }
        } else {
            let difference = other.0 - self.0;
            if difference > i64::MAX as u64 {
                i64::MIN
            } else {
                -(difference as i64)
            }
        }
    }

    /// The last microsecond of the millisecond that contains this instant.
    ///
    /// A log stamps its records by the millisecond; a hit cannot have happened later than the end
    /// of the millisecond in which it was appended.
    pub const fn end_of_millisecond(self) -> Self {
        Self((self.0 / 1_000).saturating_mul(1_000).saturating_add(999))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

impl Span {
    /// A span of zero.
    pub const ZERO: Self = Self(0);
    /// The longest span; it means "for ever".
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// A span of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// A span of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The span in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole seconds, rounded up, as for Retry-After.
    pub const fn as_secs_rounded_up(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// The sum, or the longest span.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The same as a duration of the standard library.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_micros(self.0)
    }

    /// From a duration of the standard library, truncated to whole microseconds.
    pub const fn from_std(duration: std::time::Duration) -> Self {
        let micros = duration.as_micros();
        Self(if micros > u64::MAX as u128 {
            u64::MAX
        } else {
            micros as u64
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_at_both_ends() {
        assert_eq!(
            Timestamp::MAX.saturating_add(Span::from_secs(1)),
            Timestamp::MAX
        );
        assert_eq!(
            Timestamp::from_micros(5).saturating_offset(-9),
            Timestamp::ZERO
        );
        assert_eq!(
            Timestamp::ZERO.signed_micros_since(Timestamp::MAX),
            i64::MIN
        );
        assert_eq!(
            Timestamp::from_micros(3).signed_micros_since(Timestamp::from_micros(5)),
            -2
        );
    }

    #[test]
    fn a_millisecond_ends_at_its_last_microsecond() {
        assert_eq!(
            Timestamp::from_micros(1_000)
                .end_of_millisecond()
                .as_micros(),
            1_999
        );
        assert_eq!(
            Timestamp::from_micros(1_999)
                .end_of_millisecond()
                .as_micros(),
            1_999
        );
    }

    #[test]
    fn retry_after_is_rounded_up() {
        assert_eq!(Span::from_micros(1).as_secs_rounded_up(), 1);
        assert_eq!(Span::from_secs(2).as_secs_rounded_up(), 2);
    }
}
