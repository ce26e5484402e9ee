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
//! 2016-02-20 05:00:45.25           a date without a zone: UTC
//! 2016-02-20 05:00:45 UTC          a date with its zone's name
//! 20/Feb/2016:00:00:45.25 -0500    as web servers write it
//! Sat, 20 Feb 2016 05:00:45 GMT    as mail and HTTP write it
//! [20/Feb/2016:00:00:45 -0500]     in brackets, like Apache's `%t`
//! 2016/02/20 05:00:45, 20.02.2016 05:00:45, 20160220050045, Sat Feb 20 05:00:45 2016      without a zone: UTC
//! ```
//!
//! `02/20/2016` is ambiguous, since countries differ in the order of day and month; it needs a pattern. A zone's name
//! other than UTC is refused, also in brackets, unless an offset is before it: `…T05:00:45+01:00[Europe/Berlin]`.
//!
//! Knows nothing of where instants stand in a line. What stays true: digits finer than a microsecond are cut off.

use tollgate_shared::time::Timestamp;

/// The unit of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// Chosen by its size.
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

/// How instants are written, as far as the user stated it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instants {
    /// The unit of numbers.
    pub unit: TimeUnit,
    /// Dates by a pattern in the words of `strftime`; without a zone they are UTC.
    pub pattern: Option<String>,
    /// When the file was last changed, to read dates without a year; `None` if that is not known.
    pub changed: Option<Timestamp>,
}

impl Instants {
    /// Parses an instant.
    pub(super) fn parse(&self, text: &str) -> Option<Timestamp> {
        match &self.pattern {
            Some(pattern) => by_pattern(pattern, text.trim_ascii()),
            None => parse(text, self.unit),
        }
    }

    /// Whether the user stated anything.
    pub(super) fn are_stated(&self) -> bool {
        self.pattern.is_some() || self.unit != TimeUnit::Auto
    }
}

/// Parses an instant; `None` if the text is not an instant, or one before the epoch.
pub fn parse(text: &str, unit: TimeUnit) -> Option<Timestamp> {
    let text = text.trim_ascii();
    // As Apache's `%t` appears in JSON.
    let inside = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let text = inside.unwrap_or(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    if text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        return number(text, unit);
    }
    if let Some(with_point) = decimal_comma(text) {
        return number(&with_point, unit);
    }
    match text.parse::<f64>() {
        // A power of ten: 1.4e9. Other floats begin with another character: nan, -1.
        Ok(float) if text.starts_with(|first: char| first.is_ascii_digit()) => {
            number(&float.to_string(), unit)
        }
        _ => date(text),
    }
}

/// The instant of a date that a `strftime` pattern describes; UTC if the pattern has no zone.
pub(super) fn by_pattern(pattern: &str, text: &str) -> Option<Timestamp> {
    let parsed = jiff::fmt::strtime::parse(pattern, text).ok()?;
    let timestamp = parsed.to_timestamp().ok().or_else(|| {
        let zoned = parsed.to_datetime().ok()?.to_zoned(jiff::tz::TimeZone::UTC);
        Some(zoned.ok()?.timestamp())
    })?;
    u64::try_from(timestamp.as_microsecond())
        .ok()
        .map(Timestamp::from_micros)
}

/// Checks that all directives of a `strftime` pattern are known, and that they state an instant.
///
/// # Errors
///
/// What was expected in place of the first unknown directive, or beside the known ones.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    // An instant in this format is one that the pattern has to read.
    let example = jiff::Timestamp::from_microsecond(1_763_634_030_123_456)
        .map(|at| at.to_zoned(jiff::tz::TimeZone::UTC))
        .map_err(|error| error.to_string())?;
    let written = jiff::fmt::strtime::format(pattern, &example);
    let read = written.and_then(|text| {
        jiff::fmt::strtime::parse(pattern, &text)?;
        Ok(by_pattern(pattern, &text).is_some())
    });
    match read {
        Ok(true) => Ok(()),
        Ok(false) => Err("expected directives for a date, as in %Y-%m-%d %H:%M:%S".to_owned()),
        Err(error) => Err(format!("expected directives of strftime: {error}")),
    }
}

/// How far a stamp without a zone may lie after the last change of its file: more than any zone's distance from UTC.
const AHEAD_MAX_US: i64 = 86_400_000_000;

/// The instant of a date as syslog writes it, `Nov 20 10:00:00`, without a zone and a year: in UTC, in the newest
/// year in which it is not after the last change of its file.
pub(super) fn in_newest_year(text: &str, changed: Timestamp) -> Option<Timestamp> {
    // Any 8 consecutive years have a 29th of February.
    const YEARS_MAX: i16 = 8;
    let latest = changed.saturating_offset(AHEAD_MAX_US);
    let latest_ms = i64::try_from(latest.as_micros() / 1_000).ok()?;
    let latest_at = jiff::Timestamp::from_millisecond(latest_ms).ok()?;
    let year = latest_at.to_zoned(jiff::tz::TimeZone::UTC).year();
    let of_year = |year: i16| by_pattern("%Y %b %e %H:%M:%S%.f", &format!("{year} {text}"));
    let mut years = (0..=YEARS_MAX).filter_map(|back| of_year(year.checked_sub(back)?));
    years.find(|at| *at <= latest)
}

/// The instant of a date in any notation.
fn date(text: &str) -> Option<Timestamp> {
    if text.ends_with(']') {
        return micros(text.parse().ok()?);
    }
    let utc = ["UTC", "GMT", "utc", "gmt"];
    let bare = utc.iter().find_map(|zone| text.strip_suffix(zone));
    let civil = |text: &str| {
        let civil: jiff::civil::DateTime = text.trim_ascii_end().parse().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    let timestamp = (text.parse::<jiff::Timestamp>().ok())
        .or_else(|| civil(bare.unwrap_or(text)))
        .or_else(|| with_offset(text))
        .or_else(|| of_web_server(bare.unwrap_or(text).trim_ascii_end()))
        .or_else(|| {
            jiff::fmt::rfc2822::parse(text)
                .ok()
                .map(|zoned| zoned.timestamp())
        })
        .or_else(|| of_program(text))?;
    micros(timestamp)
}

/// A number with a decimal comma: 1455944445,25. With fewer digits before it, the comma may separate thousands.
fn decimal_comma(text: &str) -> Option<String> {
    let (whole, part) = text.split_once(',')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (4 <= whole.len() && digits(whole) && digits(part)).then(|| format!("{whole}.{part}"))
}

/// A date in a program's own notation: Go, nginx's error log, spreadsheets, `date`, old HTTP.
fn of_program(text: &str) -> Option<jiff::Timestamp> {
    use jiff::fmt::strtime::parse;
    const ZONED: [&str; 2] = ["%Y-%m-%d %H:%M:%S%.f %z UTC", "%d/%b/%Y:%H:%M:%S%.f %:z"];
    const CIVIL: [&str; 12] = [
        "%d/%b/%Y %H:%M:%S%.f",
        "%Y/%m/%d %H:%M:%S%.f",
        "%Y/%m/%d %H:%M",
        "%b %e %Y %H:%M:%S%.f",
        "%d-%b-%Y %H:%M:%S%.f",
        "%d.%m.%Y %H:%M:%S%.f",
        "%d.%m.%Y %H:%M",
        "%a %b %e %H:%M:%S %Y",
        "%a %b %e %H:%M:%S UTC %Y",
        "%A, %d-%b-%y %H:%M:%S GMT",
        "%Y-%m-%d %I:%M:%S%.f %p",
        "%b %d, %Y @ %H:%M:%S%.f",
    ];
    // Go also writes its monotonic clock.
    let text = text.split(" m=").next().unwrap_or(text);
    let text = text.strip_suffix(" Z").unwrap_or(text);
    let zoned = ZONED.iter().find_map(|pattern| parse(pattern, text).ok());
    if let Some(zoned) = zoned {
        return zoned.to_timestamp().ok();
    }
    let civil = CIVIL.iter().find_map(|pattern| parse(pattern, text).ok());
    let civil = match civil {
        Some(civil) => civil.to_datetime().ok()?,
        None => text.parse().ok()?,
    };
    Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

/// A date of digits alone: 20160220050045, and perhaps a fraction. Read as milliseconds or microseconds it would be
/// in the 27th century.
fn of_digits(text: &str) -> Option<Timestamp> {
    if !matches!(text.len(), 14 | 17) || !(text.starts_with("19") || text.starts_with("20")) {
        return None;
    }
    let (seconds, thousandths) = text.split_at_checked(14)?;
    let civil = jiff::fmt::strtime::parse("%Y%m%d%H%M%S", seconds).ok()?;
    let zoned = civil.to_datetime().ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    let seconds = micros(zoned.ok()?.timestamp())?;
    let thousandths: i64 = match thousandths {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    Some(seconds.saturating_offset(thousandths * 1_000))
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

/// The instant of a date and a time of day in separate fields, in UTC.
pub(super) fn of_parts(date: &str, time: &str) -> Option<Timestamp> {
    let of_iso = || {
        // A time of day with an offset or a zone is read below.
        if time.contains([']', '+', '-']) {
            return None;
        }
        let date: jiff::civil::Date = date.trim_ascii().parse().ok()?;
        let time: jiff::civil::Time = time.trim_ascii().parse().ok()?;
        let zoned = date.to_datetime(time).to_zoned(jiff::tz::TimeZone::UTC);
        micros(zoned.ok()?.timestamp())
    };
    // A time of day has a colon before its minutes; a number is not a time of day.
    let time_of_day = time.contains(':').then_some(time);
    of_iso().or_else(|| {
        self::date(&format!(
            "{} {}",
            date.trim_ascii(),
            time_of_day?.trim_ascii()
        ))
    })
}

fn number(text: &str, unit: TimeUnit) -> Option<Timestamp> {
    if let (TimeUnit::Auto, Some(at)) = (unit, of_digits(text)) {
        return Some(at);
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(part) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    // The power of ten between the unit and microseconds.
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
    fn a_pattern_with_a_wrong_directive_names_it() {
        for pattern in ["%d/%b/%Y:%T %z", "%s", "%Y-%m-%d %I:%M:%S%.f %p", "%F"] {
            assert_eq!(check_pattern(pattern), Ok(()), "{pattern}");
        }
        let fault = |pattern: &str| check_pattern(pattern).expect_err(pattern);
        assert!(fault("%F %T %q").contains("`q`"), "{}", fault("%F %T %q"));
        let expected = "expected directives for a date, as in %Y-%m-%d %H:%M:%S";
        for pattern in ["%Q", "%T", ""] {
            assert_eq!(fault(pattern), expected, "{pattern}");
        }
    }

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
            "20/Feb/2016 05:00:45.250",
            "[20/Feb/2016:00:00:45.250 -0500]",
            "20/feb/2016:00:00:45.250 -0500",
            "20/Feb/2016:00:00:45.25 -05:00",
            "+1455944445.25",
            "1455944445,25",
            "2016-02-20 05:00:45,250",
            "2016/02/20 05:00:45.25",
            "20.02.2016 05:00:45.250",
            "20160220050045250",
            "2016-02-20 00:00:45.25 -0500 UTC m=+0.5",
            "2016-02-20 00:00:45.25 -0500 UTC",
            "2016-02-20 05:00:45.25 Z",
            "[20/Feb/2016:05:00:45.25 UTC]",
            "Feb 20 2016 05:00:45.25",
            "20-Feb-2016 05:00:45.25",
            "2016-02-20 05:00:45.25 AM",
            "Feb 20, 2016 @ 05:00:45.250",
            "2016-02-20T06:00:45.25+01:00[Europe/Berlin]",
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
        for text in [
            "20160220050045",
            "Sat Feb 20 05:00:45 2016",
            "Sat Feb 20 05:00:45 UTC 2016",
            "Saturday, 20-Feb-16 05:00:45 GMT",
            "20.2.2016 05:00:45",
        ] {
            assert_eq!(parse(text, TimeUnit::Auto), expected, "{text}");
        }
        assert_eq!(of_parts("2016-02-20", "05:00:45"), expected);
        assert_eq!(of_parts("20.02.2016", "05:00:45"), expected);
        for time in [
            "07:00:45+02:00",
            "00:00:45-05:00",
            "05:00:45Z",
            "05:00:45+00:00",
        ] {
            assert_eq!(of_parts("2016-02-20", time), expected, "{time}");
        }
        assert_eq!(of_parts("2016-02-20", "7"), None);
        // A leap second is read as the last second of its minute.
        let new_year = Some(Timestamp::from_micros(1_483_228_799_000_000));
        assert_eq!(parse("2016-12-31T23:59:60Z", TimeUnit::Auto), new_year);
        assert_eq!(of_parts("2016-02-20", "25:00:45"), None);
        assert_eq!(of_parts("2016-02-20", "05:00:45[Europe/Berlin]"), None);
    }

    #[test]
    fn a_date_without_a_year_is_the_newest_before_its_file() {
        let changed = parse("2026-01-02T00:00:00Z", TimeUnit::Auto).expect("a date");
        for (text, expected) in [
            ("Dec 31 23:59:59", "2025-12-31T23:59:59Z"),
            ("Jan  1 00:00:01", "2026-01-01T00:00:01Z"),
            // Some zones are ahead of UTC.
            ("Jan  2 10:00:00", "2026-01-02T10:00:00Z"),
            ("Jan  4 10:00:00", "2025-01-04T10:00:00Z"),
            ("Feb 29 10:00:00", "2024-02-29T10:00:00Z"),
        ] {
            let expected = parse(expected, TimeUnit::Auto);
            assert_eq!(in_newest_year(text, changed), expected, "{text}");
        }
        assert_eq!(in_newest_year("Feb 30 10:00:00", changed), None);
        assert_eq!(in_newest_year("10:00:00", changed), None);
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
    fn a_stated_pattern_is_what_a_date_is_read_by() {
        let by = |pattern: &str, text| {
            let pattern = Some(pattern.to_owned());
            let instants = Instants {
                pattern,
                ..Instants::default()
            };
            instants.parse(text)
        };
        let expected = Some(Timestamp::from_micros(1_455_944_445_000_000));
        for (pattern, text) in [
            ("%m/%d/%Y %H:%M:%S", "2/20/2016 5:00:45"),
            ("%m/%d/%Y %I:%M:%S %p", " 02/20/2016 05:00:45 AM "),
            ("%d/%m/%Y %H:%M:%S %z", "20/02/2016 00:00:45 -0500"),
        ] {
            assert_eq!(by(pattern, text), expected, "{pattern}");
        }
        assert_eq!(by("%m/%d/%Y %H:%M:%S", "1455944445"), None);
    }

    #[test]
    fn text_that_is_not_an_instant_is_refused() {
        for text in [
            "",
            ".",
            ".5",
            "1.2.3",
            "-1",
            "t",
            "1969-12-31T23:59:59Z",
            "yesterday",
            "02/20/2016 05:00:45",
            "1,455,944,445",
            "1,5",
            "2016-02-20 05:00:45 CET",
            "2026-11-01T01:30:00[Europe/Berlin]",
            "2026-11-01 01:30:00[Europe/Berlin]",
            "2025-02-29 00:00:00",
        ] {
            assert_eq!(parse(text, TimeUnit::Auto), None, "{text}");
        }
        assert_eq!(parse("99999999999999999999", TimeUnit::Auto), None);
        assert_eq!(parse("18446744073709551615", TimeUnit::Seconds), None);
    }
}
