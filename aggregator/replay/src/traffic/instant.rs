//! Instants as programs write them: a number since the Unix epoch, or a date.
//!
//! ```text
//! 1455944445            seconds: a whole number below 10^11 (until the year 5138)
//! 1455944445.25         seconds, with a part
//! 1455944445250         milliseconds: below 10^14
//! 1455944445250000      microseconds: below 10^17
//! 1455944445250000000   nanoseconds
//! 1.455944445e9         seconds, as some programs write large numbers
//! 2016-02-20T00:00:45-05:00        a date with its zone
//! 2016-02-20 05:00:45.25           a date without: UTC
//! 2016-02-20 05:00:45 UTC          a date with its zone's name
//! 20/Feb/2016:00:00:45.25 -0500    as web servers write it
//! Sat, 20 Feb 2016 05:00:45 GMT    as mail and HTTP do
//! ```
//!
//! Knows nothing of where they stand. What stays true: what is finer than a microsecond is cut off.

use tollgate_shared::time::Timestamp;

/// What a number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// By its size.
    #[default]
    Auto,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

/// The instant that a text says; none where it says none, or one before the epoch.
pub fn parse(text: &str, unit: TimeUnit) -> Option<Timestamp> {
    let text = text.trim_ascii();
    if text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        return number(text, unit);
    }
    match text.parse::<f64>() {
        // A power of ten: 1.4e9. Others begin with no digit: nan, -1.
        Ok(float) if text.starts_with(|first: char| first.is_ascii_digit()) => {
            number(&float.to_string(), unit)
        }
        _ => date(text),
    }
}

/// The instant of a date, in whatever way it is written.
fn date(text: &str) -> Option<Timestamp> {
    let utc = ["UTC", "GMT", "utc", "gmt"];
    let bare = utc.iter().find_map(|zone| text.strip_suffix(zone));
    let civil = |text: &str| {
        let civil: jiff::civil::DateTime = text.trim_ascii_end().parse().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    let timestamp = (text.parse::<jiff::Timestamp>().ok())
        .or_else(|| civil(bare.unwrap_or(text)))
        .or_else(|| with_offset(text))
        .or_else(|| of_web_server(text))
        .or_else(|| {
            jiff::fmt::rfc2822::parse(text)
                .ok()
                .map(|zoned| zoned.timestamp())
        })?;
    micros(timestamp)
}

fn micros(timestamp: jiff::Timestamp) -> Option<Timestamp> {
    let micros = timestamp.as_nanosecond().div_euclid(1_000);
    u64::try_from(micros).ok().map(Timestamp::from_micros)
}

/// As databases write it: `2016-02-20 00:00:45 -0500`, `2016-02-20 05:00:45.25+00`.
fn with_offset(text: &str) -> Option<jiff::Timestamp> {
    let sign = text
        .rfind(['+', '-'])
        .filter(|at| "2016-02-20".len() < *at)?;
    let (civil, offset) = text.split_at(sign);
    let civil = civil.trim_ascii_end().replacen(' ', "T", 1);
    let (sign, digits) = offset.split_at(1);
    let minutes = match digits.len() {
        2 => ":00",
        _ => "",
    };
    let digits = match digits.split_at_checked(2) {
        Some((hours, minutes)) if digits.len() == 4 => format!("{hours}:{minutes}"),
        _ => digits.to_owned(),
    };
    format!("{civil}{sign}{digits}{minutes}").parse().ok()
}

/// As web servers write it, with its zone or in UTC.
fn of_web_server(text: &str) -> Option<jiff::Timestamp> {
    use jiff::fmt::strtime::parse;
    if let Ok(zoned) = parse("%d/%b/%Y:%H:%M:%S%.f %z", text) {
        return zoned.to_timestamp().ok();
    }
    let civil = parse("%d/%b/%Y:%H:%M:%S%.f", text)
        .ok()?
        .to_datetime()
        .ok()?;
    Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

/// The instant of a date and a time of day that stand apart, in UTC.
pub(super) fn of_parts(date: &str, time: &str) -> Option<Timestamp> {
    let date: jiff::civil::Date = date.trim_ascii().parse().ok()?;
    let time: jiff::civil::Time = time.trim_ascii().parse().ok()?;
    let zoned = date.to_datetime(time).to_zoned(jiff::tz::TimeZone::UTC);
    micros(zoned.ok()?.timestamp())
}

fn number(text: &str, unit: TimeUnit) -> Option<Timestamp> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(part) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    // Micros are the power of ten that is left between the unit and them.
    let power: i32 = match of_size(whole, unit) {
        TimeUnit::Auto | TimeUnit::Seconds => 6,
        TimeUnit::Millis => 3,
        TimeUnit::Micros => 0,
        TimeUnit::Nanos => -3,
    };
    if power < 0 {
        return Some(Timestamp::from_micros(whole / 1_000));
    }
    let scale = 10u64.pow(power.unsigned_abs());
    let mut micros = whole.checked_mul(scale)?;
    let mut place = scale;
    for digit in part.bytes().take(power.unsigned_abs() as usize) {
        place /= 10;
        micros = micros.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(Timestamp::from_micros(micros))
}

fn of_size(whole: u64, unit: TimeUnit) -> TimeUnit {
    match (unit, whole) {
        (TimeUnit::Auto, 0..100_000_000_000) => TimeUnit::Seconds,
        (TimeUnit::Auto, 100_000_000_000..100_000_000_000_000) => TimeUnit::Millis,
        (TimeUnit::Auto, 100_000_000_000_000..100_000_000_000_000_000) => TimeUnit::Micros,
        (TimeUnit::Auto, _) => TimeUnit::Nanos,
        (stated, _) => stated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_write_an_instant_are_the_same_instant() {
        let expected = Some(Timestamp::from_micros(1_455_944_445_250_000));
        for text in [
            "1455944445.25",
            "1455944445.2500009",
            "1455944445250",
            "1455944445250000",
            "1455944445250000999",
            "2016-02-20T05:00:45.25Z",
            "2016-02-20T00:00:45.25-05:00",
            "2016-02-20 05:00:45.250",
            " 2016-02-20 05:00:45.2500000 ",
            "1.45594444525e9",
            "1.45594444525E+9",
            "2016-02-20 05:00:45.25 UTC",
            "2016-02-20 05:00:45.25Z",
            "2016-02-20 00:00:45.25 -0500",
            "2016-02-20 05:00:45.25+00",
            "2016-02-20T00:00:45.25-0500",
            "20/Feb/2016:00:00:45.250 -0500",
            "20/Feb/2016:05:00:45.250",
        ] {
            assert_eq!(parse(text, TimeUnit::Auto), expected, "{text}");
        }
    }

    #[test]
    fn a_date_of_mail_and_one_in_two_parts_are_read() {
        let expected = Some(Timestamp::from_micros(1_455_944_445_000_000));
        assert_eq!(
            parse("Sat, 20 Feb 2016 05:00:45 GMT", TimeUnit::Auto),
            expected
        );
        assert_eq!(of_parts("2016-02-20", "05:00:45"), expected);
        assert_eq!(of_parts("2016-02-20", "25:00:45"), None);
    }

    #[test]
    fn a_stated_unit_beats_the_size() {
        let micros = |text, unit| parse(text, unit).map(Timestamp::as_micros);
        assert_eq!(micros("100000", TimeUnit::Micros), Some(100_000));
        assert_eq!(micros("100000", TimeUnit::Auto), Some(100_000_000_000));
        assert_eq!(micros("1.5", TimeUnit::Millis), Some(1_500));
        assert_eq!(micros("0", TimeUnit::Auto), Some(0));
    }

    #[test]
    fn what_is_no_instant_is_none() {
        for text in [
            "",
            ".",
            ".5",
            "1.2.3",
            "-1",
            "t",
            "1969-12-31T23:59:59Z",
            "yesterday",
        ] {
            assert_eq!(parse(text, TimeUnit::Auto), None, "{text}");
        }
        assert_eq!(parse("99999999999999999999", TimeUnit::Auto), None);
        assert_eq!(parse("18446744073709551615", TimeUnit::Seconds), None);
    }
}
