//! A part of a log: between two instants of append time, or two offsets.
//!
//! ```text
//! 2026-11-21T12:00:00Z   -2h   @3:18250 (partition 3, offset 18250: that partition alone)
//! ```
//!
//! The beginning is included, the end is not. Has no clock: the caller passes the current time.

use std::fmt;

use jiff::Timestamp as Civil;
use tollgate_shared::time::{Span, Timestamp};

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// An instant of append time.
    At(Timestamp),
    /// A record of one partition.
    Offset {
        /// The partition.
        partition: u32,
        /// The record's offset.
        offset: u64,
    },
}

/// A part of a log; without ends it is the whole log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first record in the range.
    pub from: Option<Point>,
    /// The first record after the range.
    pub to: Option<Point>,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangePosition {
    /// Before the range.
    Before,
    /// In the range.
    In,
    /// After the range.
    Behind,
}

impl Range {
    /// Whether the range may have records of a partition.
    pub fn has(&self, partition: u32) -> bool {
        [self.from, self.to]
            .into_iter()
            .flatten()
            .all(|point| !matches!(point, Point::Offset { partition: of, .. } if of != partition))
    }

    /// Where a record lies, in a partition for which [`Range::has`] returns true.
    pub fn lies(&self, offset: u64, appended: Timestamp) -> RangePosition {
        let reached = |point: Point| match point {
            Point::At(instant) => instant <= appended,
            Point::Offset { offset: first, .. } => first <= offset,
        };
        if self.to.is_some_and(reached) {
            RangePosition::Behind
        } else if self.from.is_none_or(reached) {
            RangePosition::In
        } else {
            RangePosition::Before
        }
    }
}

/// Retention has removed the beginning of a range from a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The partition.
    pub partition: u32,
    /// The first offset that the partition still has.
    pub first: u64,
    /// When the log appended that record.
    pub appended: Timestamp,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partition, first, ..
        } = self;
        write!(
            f,
            "partition {partition}: retention has removed the beginning of this range; there is what was \
             appended from {} on (@{partition}:{first})",
            Utc(self.appended)
        )
    }
}

impl Range {
    /// Whether a partition whose first record is this one has lost a part of the range: the range
    /// begins before the record, and so did the log.
    pub fn cut(&self, partition: u32, first: u64, appended: Timestamp) -> Option<Cut> {
        let lost = match self.from? {
            Point::At(instant) => 0 < first && instant < appended,
            Point::Offset { offset, .. } => offset < first,
        };
        lost.then_some(Cut {
            partition,
            first,
            appended,
        })
    }
}

/// Parses a point as a user types it.
///
/// # Errors
///
/// What was expected.
pub fn parse_point(text: &str, now: Timestamp) -> Result<Point, &'static str> {
    const EXPECTED: &str = "expected an instant of the years 1970 to 9999 (2026-11-21T12:00:00Z, or microseconds since 1970, \
         not seconds or milliseconds), a time ago (-2h), or a record (@3:18250: partition, offset)";
    if let Some(place) = text.strip_prefix('@') {
        let (partition, offset) = place.split_once(':').ok_or(EXPECTED)?;
        return Ok(Point::Offset {
            partition: partition.parse().map_err(|_| EXPECTED)?,
            offset: offset.parse().map_err(|_| EXPECTED)?,
        });
    }
    parse_instant(text, now).map(Point::At).ok_or(EXPECTED)
}

/// Whether digits for microseconds since the epoch are probably meant as seconds or milliseconds: those of 2001 to 5138.
fn is_coarse(since_epoch: u64) -> bool {
    const SECONDS: std::ops::Range<u64> = 1_000_000_000..100_000_000_000;
    const MILLIS: std::ops::Range<u64> = 1_000_000_000_000..100_000_000_000_000;
    SECONDS.contains(&since_epoch) || MILLIS.contains(&since_epoch)
}

/// Parses an instant: RFC 3339 from 1970 to 9999, a time ago, or microseconds since the epoch as reports write them.
/// Seconds and milliseconds since the epoch are refused.
pub fn parse_instant(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Some(ago) = text.strip_prefix('-') {
        let ago: Span = tollgate_limits::parse_span(ago)?;
        return Some(now.saturating_sub(ago));
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let micros = text.parse().ok().filter(|micros| !is_coarse(*micros));
        return micros.map(Timestamp::from_micros);
    }
    let instant: Civil = text.parse().ok()?;
    u64::try_from(instant.as_microsecond())
        .ok()
        .map(Timestamp::from_micros)
}

/// An instant for people: UTC, to the microsecond.
pub struct Utc(pub Timestamp);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Timestamp::MAX {
            return f.write_str("never");
        }
        let micros = i64::try_from(self.0.as_micros()).ok();
        match micros.and_then(|micros| Civil::from_microsecond(micros).ok()) {
            Some(instant) => write!(f, "{instant:.6}"),
            None => write!(f, "{}", self.0),
        }
    }
}

/// An end in a sentence: `until` an instant, or `for ever`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UntilUtc(pub Timestamp);

impl fmt::Display for UntilUtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Timestamp::MAX => f.write_str("for ever"),
            end => write!(f, "until {}", Utc(end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_as_they_are_typed() {
        let now = Timestamp::from_micros(10_000_000);
        let point = |text| parse_point(text, now).ok();
        let at = |micros| Some(Point::At(Timestamp::from_micros(micros)));
        assert_eq!(point("-2s"), at(8_000_000));
        assert_eq!(point("1970-01-01T00:00:02.000003Z"), at(2_000_003));
        assert_eq!(point("2000003"), at(2_000_003));
        let offset = Point::Offset {
            partition: 3,
            offset: 18_250,
        };
        assert_eq!(point("@3:18250"), Some(offset));
        assert_eq!(point("1732147200000000"), at(1_732_147_200_000_000));
        let coarse = ["1732147200", "1732147200000"];
        for wrong in ["", "@3", "@a:1", "yesterday", "-x"]
            .into_iter()
            .chain(coarse)
        {
            assert_eq!(point(wrong), None, "{wrong}");
        }
        assert_eq!(
            Utc(Timestamp::from_micros(2_000_003)).to_string(),
            "1970-01-01T00:00:02.000003Z"
        );
    }

    #[test]
    fn a_beginning_is_included_and_an_end_is_not() {
        let offset = |offset| {
            Some(Point::Offset {
                partition: 1,
                offset,
            })
        };
        let range = Range {
            from: offset(5),
            to: offset(7),
        };
        let lies = |offset| range.lies(offset, Timestamp::ZERO);
        assert_eq!(
            [4, 5, 6, 7].map(lies),
            [
                RangePosition::Before,
                RangePosition::In,
                RangePosition::In,
                RangePosition::Behind
            ]
        );
        assert!(range.has(1) && !range.has(2) && Range::default().has(9));
        let at = Timestamp::from_millis(9_000);
        assert!(range.cut(1, 6, at).is_some() && range.cut(1, 5, at).is_none());
        let since = Range {
            from: Some(Point::At(Timestamp::from_millis(8_000))),
            to: None,
        };
        // A log that began later has lost nothing.
        assert!(since.cut(1, 0, at).is_none() && since.cut(1, 1, at).is_some());
        assert!(since.cut(1, 1, Timestamp::from_millis(8_000)).is_none());
        assert!(Range::default().cut(1, 6, at).is_none());
    }
}
