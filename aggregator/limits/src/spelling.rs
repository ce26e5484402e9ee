//! Rates as people write them, read exactly.
//!
//! ```text
//! 100/s   6_000/m   10r/s   100 per second     a number in one unit of time
//! 5/15s   5 per 15 seconds   40/1m30s          a number in a span of several units
//! 0.5/s                                        1/2s: less than one in a unit
//! 50_000/day   1_000_000 per month             quotas: a number in a calendar's period
//! ```
//!
//! Knows nothing of what a rate is for. What stays true: a printed rate reads as the same quantity, and a text that
//! cannot be read exactly is refused.

use tollgate_shared::time::Span;

use super::rate::Calendar;
use super::settings::Rate;
use super::units::{greatest_common_divisor, parse_number, parse_span, print_span};

/// Units of rates with all their names, in microseconds. A month is not among them: a sliding month has no fixed
/// length.
const UNITS: [(&[&str], u64); 7] = [
    (&["us"], 1),
    (&["ms", "millisecond", "milliseconds"], 1_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000),
    (&["d", "day", "days"], 86_400_000_000),
    (&["w", "week", "weeks"], 604_800_000_000),
];

/// Units that are printed as one letter if a rate's window is exactly one of them.
const LETTERS: [(&str, u64); 5] = [
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
];

/// Periods of a calendar with all their names.
const PERIODS: [(&[&str], Calendar); 4] = [
    (&["day", "d", "days"], Calendar::Day),
    (&["week", "w", "weeks"], Calendar::Week),
    (&["month", "months"], Calendar::Month),
    (&["year", "y", "years"], Calendar::Year),
];

/// A number with decimal places is read as whole hits in a longer time. At least one of the two factors, the hits or
/// the number of stated times, is at most this.
const PLACES_MAX: u64 = 10;

/// The rate that a text states; `None` if it is not a rate.
pub fn parse_rate(text: &str) -> Option<Rate> {
    parse_rate_places(text).map(|(rate, _)| rate)
}

/// The same, with the number of stated times that its window lasts: more than one for a number with decimal places.
pub(super) fn parse_rate_places(text: &str) -> Option<(Rate, u64)> {
    let (hits, time) = parts(text)?;
    let (hits, shared) = parse_decimal(hits)?;
    // 0.333/s would be 333 in 1000 s, all of which may come at once: nobody means that.
    if PLACES_MAX < hits && PLACES_MAX < shared {
        return None;
    }
    let window = parse_time(time)?.checked_mul(shared)?;
    let rate = Rate {
        hits,
        window: Span::from_micros(window),
    };
    (0 < window).then_some((rate, shared))
}

/// Prints a rate in its usual notation.
pub fn print_rate(rate: Rate) -> String {
    let micros = rate.window.as_micros();
    match LETTERS.iter().find(|(_, unit)| *unit == micros) {
        Some((letter, _)) => format!("{}/{letter}", rate.hits),
        None => format!("{}/{}", rate.hits, print_span(rate.window)),
    }
}

/// The same rate in the shortest unit with a whole number of hits, as it was likely written; without such a unit, in
/// a window that a document may state.
pub fn whole_rate(hits: u64, window: Span) -> Rate {
    let micros = window.as_micros().max(1);
    let in_unit = |(_, unit): &(&str, u64)| {
        let all = hits.checked_mul(*unit)?;
        let whole = all.is_multiple_of(micros) && all / micros <= u64::from(u32::MAX);
        whole.then_some(Rate {
            hits: all / micros,
            window: Span::from_micros(*unit),
        })
    };
    // A window of at least a millisecond.
    let times = 1_000_u64.div_ceil(micros);
    let as_it_is = Rate {
        hits: hits.saturating_mul(times),
        window: Span::from_micros(micros.saturating_mul(times)),
    };
    LETTERS.iter().find_map(in_unit).unwrap_or(as_it_is)
}

/// The quota that a text states, as a number and a calendar's period; `None` if it is not a quota.
pub fn parse_quota(text: &str) -> Option<(u64, Calendar)> {
    let (hits, period) = parts(text)?;
    let named = |(names, _): &&(&[&str], Calendar)| names.contains(&period);
    let (_, period) = PERIODS.iter().find(named)?;
    Some((parse_number(hits)?, *period))
}

/// Prints a quota in its usual notation.
pub fn print_quota(limit: u64, period: Calendar) -> String {
    format!("{limit}/{}", period.name())
}

/// A number and a time: `100/s`, `100 / s`, `10r/s`, `100 per second`.
fn parts(text: &str) -> Option<(&str, &str)> {
    let (number, time) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    let number = number.trim_end_matches(' ');
    let number = number.strip_suffix('r').unwrap_or(number);
    Some((number.trim_end_matches(' '), time.trim_start_matches(' ')))
}

/// Microseconds of a time: a unit, a number of units, or a duration.
fn parse_time(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start_matches(' ');
    let number = match number {
        "" => 1,
        number => parse_number(number)?,
    };
    match UNITS.iter().find(|(names, _)| names.contains(&unit)) {
        Some((_, micros)) => number.checked_mul(*micros),
        None => parse_span(text).map(Span::as_micros),
    }
}

/// A number with decimal places, as a fraction in its lowest terms whose denominator divides a power of ten.
fn parse_decimal(text: &str) -> Option<(u64, u64)> {
    let Some((whole, places)) = text.split_once('.') else {
        return Some((parse_number(text)?, 1));
    };
    if !places.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let denominator = 10u64.checked_pow(u32::try_from(places.len()).ok()?)?;
    let whole = parse_number(whole)?.checked_mul(denominator)?;
    let numerator = whole.checked_add(parse_number(places)?)?;
    let shared = greatest_common_divisor(numerator, denominator);
    Some((numerator / shared, denominator / shared))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(hits: u64, window: &str) -> Option<Rate> {
        let window = parse_span(window).expect("a duration");
        Some(Rate { hits, window })
    }

    #[test]
    fn rates_read_as_people_write_them() {
        for (text, hits, window) in [
            ("100/s", 100, "1s"),
            ("6_000/m", 6_000, "1m"),
            ("0/h", 0, "1h"),
            ("5/d", 5, "1d"),
            ("3/w", 3, "7d"),
            ("100/sec", 100, "1s"),
            ("100/minute", 100, "1m"),
            ("100 / hour", 100, "1h"),
            ("100 per second", 100, "1s"),
            ("7 per day", 7, "1d"),
            ("5/15s", 5, "15s"),
            ("5/15 seconds", 5, "15s"),
            ("5 per 15 seconds", 5, "15s"),
            ("5/100ms", 5, "100ms"),
            ("40/1m30s", 40, "1m30s"),
            ("2/2w", 2, "14d"),
            ("10r/s", 10, "1s"),
            ("10 r/m", 10, "1m"),
            ("0.5/s", 1, "2s"),
            ("0.25/m", 1, "4m"),
            ("1.5/s", 3, "2s"),
            ("2.0/s", 2, "1s"),
            ("0.5/15s", 1, "30s"),
        ] {
            assert_eq!(parse_rate(text), rate(hits, window), "{text}");
        }
    }

    #[test]
    fn inexact_rates_are_refused() {
        for text in [
            "",
            "100",
            "/s",
            "100/",
            "-1/s",
            "1.5.5/s",
            ".5/s",
            "1./s",
            "1/s/s",
            " 1/s",
            "1/s ",
            "1/month",
            "1/M",
            "10/S",
            "10rps",
            "per second",
            "10 per",
            "1e3/s",
            "1/1.5s",
            "1k/s",
            "1_/s",
            "1/s1",
            "99999999999999999999/s",
            "1/99999999999999999d",
            "0.00000000000000000001/s",
        ] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
    }

    #[test]
    fn quotas_read_as_people_write_them() {
        for (text, limit, period, printed) in [
            (
                "1_000_000/month",
                1_000_000,
                Calendar::Month,
                "1000000/month",
            ),
            ("50_000/day", 50_000, Calendar::Day, "50000/day"),
            ("7 per week", 7, Calendar::Week, "7/week"),
            ("7/w", 7, Calendar::Week, "7/week"),
            ("1/y", 1, Calendar::Year, "1/year"),
        ] {
            assert_eq!(parse_quota(text), Some((limit, period)), "{text}");
            assert_eq!(print_quota(limit, period), printed);
        }
        for text in ["5/hour", "5/2 months", "0.5/day", "5/m", "month", "-5/day"] {
            assert_eq!(parse_quota(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_rates_read_back_equal(hits: u64, micros in 1u64.., seconds in 1u64..3_000_000) {
            for micros in [micros, seconds * 1_000_000] {
                let rate = Rate { hits, window: Span::from_micros(micros) };
                prop_assert_eq!(parse_rate(&print_rate(rate)), Some(rate));
            }
        }

        #[test]
        fn any_text_of_a_rate_is_read_or_refused(text in "\\PC*", near in "[0-9_dhmsurpe./ ]{0,24}") {
            for text in [text, near] {
                let _ = (parse_rate(&text), parse_quota(&text));
            }
        }
    }
}
