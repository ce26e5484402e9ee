//! Seconds since the Unix epoch as dates and times in UTC, for the ends of certificates and tokens.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The second since the Unix epoch of a day (year, month, day) and a time (hour, minute, second) in UTC; `None`
/// before the epoch, and for an invalid month.
pub fn seconds(day: (u64, u64, u64), time: (u64, u64, u64)) -> Option<u64> {
    let ((year, month, day), (hour, minute, second)) = (day, time);
    let days = days_since_epoch(year, month, day)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// A second since the Unix epoch as a date and time in UTC.
pub fn text(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    let year = era * 400 + year_of_era + carry;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// This machine's clock, in seconds since the Unix epoch.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, which must not be earlier.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years begin in March here, so that the leap day is the last day of a year.
    let (year, month) = match month {
        1 | 2 => (year.checked_sub(1)?, month + 9),
        3..=12 => (year, month - 3),
        _ => return None,
    };
    let day = day.checked_sub(1)?;
    let of_year = (153 * month + 2) / 5 + day;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year;
    // 1970-01-01 in this count.
    days.checked_sub(719_468)
}
