//! Values of flags: durations, rates, instants. An error states what was expected.

use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_limits::{Rate, parse_rate, parse_span};
use tollgate_shared::time::{Span, Timestamp};

/// The reason of an act.
///
/// # Errors
///
/// If it is empty.
pub fn reason(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("expected a reason"),
        text => Ok(text.to_owned()),
    }
}

/// The author of an act.
///
/// # Errors
///
/// If it is empty.
pub fn author(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("expected a name"),
        text => Ok(text.to_owned()),
    }
}

/// A duration.
///
/// # Errors
///
/// What was expected.
pub fn span(text: &str) -> Result<Span, &'static str> {
    parse_span(text).ok_or("expected a duration, as in 10s or 1m30s")
}

/// A duration of at least a microsecond.
///
/// # Errors
///
/// What was expected.
pub fn some_span(text: &str) -> Result<Span, &'static str> {
    match span(text)? {
        Span::ZERO => Err("expected a duration of at least 1us"),
        some => Ok(some),
    }
}

/// A rate of at least one hit.
///
/// # Errors
///
/// What was expected.
pub fn rate(text: &str) -> Result<Rate, &'static str> {
    parse_rate(text)
        .filter(|rate| rate.hits > 0)
        .ok_or("expected a rate of at least 1, as in 20/s")
}

/// An instant after the start: a duration, or a decimal number of seconds or milliseconds.
///
/// # Errors
///
/// What was expected.
pub fn instant(text: &str) -> Result<Span, &'static str> {
    const EXPECTED: &str = "expected a time after the start, as in 0s, 0.25s or 1m30s";
    if let Some(span) = parse_span(text) {
        return Ok(span);
    }
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1_000u64),
        (None, Some(number)) => (number, 1_000_000),
        (None, None) => return Err(EXPECTED),
    };
    let (whole, part) = number.split_once('.').ok_or(EXPECTED)?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || 6 < part.len() {
        return Err(EXPECTED);
    }
    let whole: u64 = whole.parse().map_err(|_| EXPECTED)?;
    let scale = 10u64.pow(part.len() as u32);
    let part: u64 = part.parse().map_err(|_| EXPECTED)?;
    let micros = whole.checked_mul(unit).ok_or(EXPECTED)?;
    Ok(Span::from_micros(
        micros.saturating_add(part * unit / scale),
    ))
}

/// A date with its time. Later ones have no text, and earlier ones are before all logs.
///
/// # Errors
///
/// What was expected.
pub fn date(text: &str) -> Result<Timestamp, &'static str> {
    // The name of a zone behind the offset would be ignored, although it may contradict it.
    let text = Some(text).filter(|text| !text.contains('['));
    let at: Option<jiff::Timestamp> = text.and_then(|text| text.parse().ok());
    let micros = at.and_then(|at| u64::try_from(at.as_microsecond()).ok());
    micros.map(Timestamp::from_micros).ok_or(
        "expected an instant as in 2026-11-30T12:00:00Z, from 1970-01-01T00:00:00Z to 9999-12-30T22:00:00Z",
    )
}

/// An aggregator's HTTP address, without a slash at the end.
///
/// # Errors
///
/// What was expected.
pub fn url(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "expected an aggregator's address, as in http://127.0.0.1:7400 or https://tollgate.internal:7400";
    let url: axum::http::Uri = text.parse().map_err(|_| EXPECTED)?;
    let is_whole = matches!(url.scheme_str(), Some("http" | "https"))
        && url.host().is_some_and(|host| !host.is_empty())
        && url.path() == "/"
        && url.query().is_none();
    if !is_whole {
        return Err(EXPECTED);
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A network; an address is a network of one.
///
/// # Errors
///
/// What was expected.
pub fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    let network = text.parse::<IpNet>().ok();
    network
        .or_else(|| Some(IpNet::from(text.parse::<IpAddr>().ok()?)))
        .ok_or_else(|| "expected a network or an address, as in 10.0.0.0/8 or 10.1.2.3".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_may_be_one_address() {
        let read = |text| network(text).map(|network| network.to_string());
        assert_eq!(read(" 10.1.2.3"), Ok("10.1.2.3/32".to_owned()));
        assert_eq!(read("2001:db8::/48"), Ok("2001:db8::/48".to_owned()));
        assert!(read("10.0.0.0/33").is_err_and(|why| why.contains("10.0.0.0/8")));
    }

    #[test]
    fn addresses_are_whole() {
        let right = Ok("http://127.0.0.1:7400".to_owned());
        assert_eq!(url("http://127.0.0.1:7400"), right);
        assert_eq!(url("http://127.0.0.1:7400/"), right);
        for wrong in [
            "",
            "nonsense",
            "127.0.0.1:7400",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a?b",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_date_is_between_the_first_and_the_last() {
        let micros = |text| date(text).map(Timestamp::as_micros);
        assert_eq!(micros("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(
            micros("2026-11-30T12:00:00+02:00"),
            Ok(1_796_032_800_000_000)
        );
        assert_eq!(micros("2300-01-01T00:00:00Z"), Ok(10_413_792_000_000_000));
        assert_eq!(micros("9999-12-30T22:00:00Z"), Ok(253_402_207_200_000_000));
        for wrong in [
            "1960-01-01T00:00:00Z",
            "9999-12-31T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "99999-01-01T00:00:00Z",
            "2026-11-30",
            "2026-11-30T12:00:00+05:00[Europe/Berlin]",
        ] {
            let expected = micros(wrong).expect_err(wrong);
            assert!(expected.contains("to 9999-12-30T22:00:00Z"), "{expected}");
        }
    }

    #[test]
    fn instants_may_be_decimal() {
        let micros = |text| instant(text).map(Span::as_micros);
        assert_eq!(micros("0s"), Ok(0));
        assert_eq!(micros("0.1s"), Ok(100_000));
        assert_eq!(micros("2.25ms"), Ok(2_250));
        assert_eq!(micros("1m30s"), Ok(90_000_000));
        for wrong in ["", "1", ".5s", "1.s", "-1s", "1.5m", "0.1234567s"] {
            assert!(micros(wrong).is_err(), "{wrong}");
        }
    }
}
