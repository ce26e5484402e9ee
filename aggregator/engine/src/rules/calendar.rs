//! Calendar periods: the day, week, month or year of a zone that an instant falls into.
//!
//! ```text
//! month in UTC+2    2026-11-30 21:59:59.999999 UTC    November, until 2026-11-30 22:00 UTC
//! day in a zone whose clocks go back from 00:30 to 23:30
//!                   the second 23:30 belongs to the new day, which began at its first instant before
//! ```
//!
//! A period begins at the first instant of its first local date, and ends where the next one begins; so
//! clocks that are set back never bring an ended period back. Knows nothing of what is counted. What
//! stays true: every instant is in exactly one period.

use tollgate_shared::time::Timestamp;

use tollgate_limits::{Calendar, Zone};

/// A period: from `begins` until just before `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its first instant; the Unix epoch if it began before 1970.
    pub begins: Timestamp,
    /// The first instant of the next one.
    pub ends: Timestamp,
}

const DAY_S: i64 = 86_400;
const MICROS: u64 = 1_000_000;

/// The period that contains an instant.
pub fn period(unit: Calendar, zone: &Zone, at: Timestamp) -> Period {
    let local_s = (at.as_micros() / MICROS) as i64 + i64::from(zone.offset_at(at));
    let mut first = first_day(unit, local_s.div_euclid(DAY_S));
    loop {
        let next = next_first_day(unit, first);
        let ends = begins(zone, next);
        if at < ends || ends == Timestamp::MAX {
            return Period {
                begins: begins(zone, first),
                ends,
            };
        }
        first = next;
    }
}

/// The first instant whose local date is `day` or later; days count from 1970-01-01.
fn begins(zone: &Zone, day: i64) -> Timestamp {
    let midnight_s = day.saturating_mul(DAY_S);
    let offsets = zone.offsets();
    for (index, (from, offset)) in offsets.iter().enumerate() {
        let by_clock = instant(midnight_s.saturating_sub(i64::from(*offset)));
        // The first offset also holds before its instant.
        let here = if index == 0 {
            by_clock
        } else {
            by_clock.max(*from)
        };
        let until = offsets.get(index + 1).map_or(Timestamp::MAX, |next| next.0);
        if here < until {
            return here;
        }
    }
    Timestamp::MAX
}

fn instant(seconds: i64) -> Timestamp {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Timestamp::from_micros(seconds.saturating_mul(MICROS))
}

/// The first day of the period that contains a day.
fn first_day(unit: Calendar, day: i64) -> i64 {
    match unit {
        Calendar::Day => day,
        // 1970-01-01 was a Thursday.
        Calendar::Week => day - (day + 3).rem_euclid(7),
        Calendar::Month => {
            let (year, month) = month_of(day);
            first_of_month(year, month)
        }
        Calendar::Year => first_of_month(month_of(day).0, 1),
    }
}

/// The first day of the period after the one that begins with a day.
fn next_first_day(unit: Calendar, first: i64) -> i64 {
    match unit {
        Calendar::Day => first + 1,
        Calendar::Week => first + 7,
        Calendar::Month => {
            let (year, month) = month_of(first);
            first_of_month(year, month + 1)
        }
        Calendar::Year => first_of_month(month_of(first).0 + 1, 1),
    }
}

/// Days of four hundred years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// Year and month (1 to 12) of a day. Years are taken to begin in March, so that a leap day is the last
/// day of its year, and one formula gives the lengths of months.
fn month_of(day: i64) -> (i64, i64) {
    // There are 719,468 days between 0000-03-01 and 1970-01-01.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month)
}

/// The first day of a month; month 13 is the next year's first.
fn first_of_month(year: i64, month: i64) -> i64 {
    let (year, month) = match month {
        13 => (year + 1, 1),
        _ => (year, month),
    };
    let shifted = year - i64::from(month <= 2);
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let from_march = if month <= 2 { month + 9 } else { month - 3 };
    let of_year = (153 * from_march + 2) / 5;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * ERA_DAYS + of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: [Calendar; 4] = [
        Calendar::Day,
        Calendar::Week,
        Calendar::Month,
        Calendar::Year,
    ];

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * MICROS)
    }

    #[test]
    fn months_and_years_have_the_days_of_the_calendar() {
        // Day by day, over two leap rules: 2000 has a leap day, 2100 has none.
        let (mut year, mut month, mut of_month) = (1970, 1, 1);
        for day in 0..60_000 {
            assert_eq!(month_of(day), (year, month), "day {day}");
            assert_eq!(first_of_month(year, month), day - of_month + 1);
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let days = [
                31,
                28 + i64::from(leap),
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ];
            of_month += 1;
            if days[month as usize - 1] < of_month {
                (of_month, month) = (1, month + 1);
            }
            if month == 13 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn periods_of_any_zone_follow_each_other_without_gaps() {
        // Clocks that are set forward and back by an hour at midnight, and one that skips a whole day.
        let odd = [
            (at(0), 3_600),
            (at(86_400 * 40 - 3_600), 7_200),
            (at(86_400 * 80 - 7_200), 3_600),
            (at(86_400 * 120), -36_000),
            (at(86_400 * 160 + 36_000), 50_400),
        ];
        let odd = Zone::new("odd", &odd).expect("a zone");
        for zone in [Zone::default(), Zone::fixed("-05:30", -19_800), odd] {
            for unit in UNITS {
                let mut found = period(unit, &zone, at(0));
                for step in 0..400 * 24 * 4 {
                    let now = at(step * 900);
                    let next = period(unit, &zone, now);
                    assert!(next.begins <= now && now < next.ends, "{unit:?} {now:?}");
                    if next != found {
                        assert_eq!(next.begins, found.ends, "{unit:?} {now:?}");
                        found = next;
                    }
                }
            }
        }
    }

    #[test]
    fn a_clock_set_back_over_midnight_repeats_no_day() {
        // At local 00:30 of day 1 clocks are set back to 23:30 of day 0.
        let back = Zone::new("back", &[(at(0), 0), (at(86_400 + 1_800), -3_600)]).expect("a zone");
        let day = |now| period(Calendar::Day, &back, at(now));
        assert_eq!(day(86_399).ends, at(86_400));
        assert_eq!(day(86_400).begins, at(86_400));
        assert_eq!(day(86_400 + 1_800), day(86_400));
        assert_eq!(day(86_400).ends, at(2 * 86_400 + 3_600));
    }

    #[test]
    fn the_end_of_time_lies_in_a_period() {
        for unit in UNITS {
            let last = period(unit, &Zone::default(), Timestamp::MAX);
            assert!(last.begins < Timestamp::MAX);
        }
    }
}
