//! Calendar periods by the clocks of a zone.
//!
//! ```text
//! day, UTC + 2 h      2023-11-14T22:00:00Z begins the 15th
//! clocks go back      from 00:00 to 23:00: the day that had begun goes on, since a period begins at
//!                     the first instant of its local date and never twice
//! ```
//!
//! Knows nothing of limits. What stays true: the period of an instant never falls as time rises.

const SECOND_US: u64 = 1_000_000;
const DAY_S: i64 = 86_400;

/// The unit of a quota's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calendar {
    /// A local date.
    Day,
    /// Seven local dates from Monday on.
    Week,
    /// A calendar month.
    Month,
    /// A calendar year.
    Year,
}

/// A time zone: its offsets east of UTC in seconds, and the instants from which they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The zone's name. Zones of one name are the same zone, whatever their tables say.
    pub name: String,
    /// The offset before the first change, in seconds.
    pub first_offset_s: i32,
    /// Pairs of an instant (microseconds since the epoch, ascending) and the offset in seconds that holds from it.
    pub changes: Vec<(u64, i32)>,
}

impl Zone {
    /// A zone whose clocks never change.
    pub fn fixed(offset_s: i32) -> Self {
        Self {
            name: format!("{offset_s}"),
            first_offset_s: offset_s,
            changes: Vec::new(),
        }
    }

    /// The number of the period that holds `at_us`. Numbers of one unit rise with time.
    ///
    /// It is the greatest number that a local clock has shown by then: a period that has begun does not end when
    /// clocks go back over its beginning.
    pub fn period(&self, unit: Calendar, at_us: u64) -> i64 {
        let mut offset_s = self.first_offset_s;
        let mut greatest = i64::MIN;
        for (from_us, next_s) in &self.changes {
            if at_us < *from_us {
                break;
            }
            // The last instant under the previous offset, if there was one.
            if let Some(last_us) = from_us.checked_sub(1) {
                greatest = greatest.max(number(unit, local_day(last_us, offset_s)));
            }
            offset_s = *next_s;
        }
        greatest.max(number(unit, local_day(at_us, offset_s)))
    }
}

/// The local date as days since 1970-01-01.
fn local_day(at_us: u64, offset_s: i32) -> i64 {
    let at_s = i64::try_from(at_us / SECOND_US).expect("2^64 us are less than 2^63 s");
    (at_s + i64::from(offset_s)).div_euclid(DAY_S)
}

fn number(unit: Calendar, day: i64) -> i64 {
    let (year, month) = year_and_month(day);
    match unit {
        Calendar::Day => day,
        // 1970-01-01 was a Thursday, so Monday was three days before it.
        Calendar::Week => (day + 3).div_euclid(7),
        Calendar::Month => year * 12 + month,
        Calendar::Year => year,
    }
}

/// The year, and the month from 0, that hold a day; found by counting.
fn year_and_month(day: i64) -> (i64, i64) {
    // 400 years have 146,097 days.
    let (mut year, mut left) = (
        1970 + day.div_euclid(146_097) * 400,
        day.rem_euclid(146_097),
    );
    while days_of_year(year) <= left {
        left -= days_of_year(year);
        year += 1;
    }
    let mut month = 0;
    while days_of_month(year, month) <= left {
        left -= days_of_month(year, month);
        month += 1;
    }
    (year, month)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_year(year: i64) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: u64 = 3_600 * SECOND_US;

    #[test]
    fn months_and_years_follow_the_calendar() {
        let of = |day| year_and_month(day);
        assert_eq!(of(0), (1970, 0));
        assert_eq!(of(58), (1970, 1));
        assert_eq!(of(59), (1970, 2));
        assert_eq!(of(19_781), (2024, 1), "2024-02-28");
        assert_eq!(of(19_782), (2024, 1), "2024-02-29");
        assert_eq!(of(19_783), (2024, 2), "2024-03-01");
        assert_eq!(of(11_016), (2000, 1), "2000-02-29");
        assert_eq!(of(20_088), (2024, 11), "2024-12-31");
        assert_eq!(of(20_089), (2025, 0), "2025-01-01");
    }

    #[test]
    fn clocks_that_go_back_over_midnight_begin_no_day_twice() {
        // At 00:30 of day 100 clocks two hours east go back to one hour east.
        let back_us = 100 * 24 * HOUR_US - 2 * HOUR_US + HOUR_US / 2;
        let zone = Zone {
            name: "east".to_owned(),
            first_offset_s: 7_200,
            changes: vec![(back_us, 3_600)],
        };
        let day = |at_us| zone.period(Calendar::Day, at_us);
        assert_eq!(day(back_us - HOUR_US / 2 - 1), 99);
        assert_eq!(day(back_us - HOUR_US / 2), 100);
        assert_eq!(day(back_us), 100, "clocks show 23:30 of day 99 again");
        assert_eq!(day(back_us + 24 * HOUR_US), 100);
        assert_eq!(day(back_us + 24 * HOUR_US + HOUR_US / 2), 101);
    }

    #[test]
    fn a_date_that_clocks_skip_is_no_period() {
        // A day is skipped: from 11 hours west to 13 hours east at midnight.
        let skip_us = 100 * 24 * HOUR_US + 11 * HOUR_US;
        let zone = Zone {
            name: "far".to_owned(),
            first_offset_s: -39_600,
            changes: vec![(skip_us, 46_800)],
        };
        let day = |at_us| zone.period(Calendar::Day, at_us);
        assert_eq!((day(skip_us - 1), day(skip_us)), (99, 101));
    }
}
