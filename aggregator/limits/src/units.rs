//! Durations in their usual notation, read exactly.
//!
//! ```text
//! 23h55m   500ms   100us   1d        whole numbers, units descending, each once
//! ```
//!
//! A parser of its own, because a limit must be read exactly and in one way: the crates for
//! durations also accept fractions, months of 30.44 days and `M`. What stays true: a printed
//! duration reads as the same duration.

use std::fmt::Write as _;

use tollgate_shared::time::Span;

/// Units of durations, greatest first, in microseconds.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// The duration that a text states; `None` if it is not a duration, or does not fit into
/// microseconds.
pub fn parse_span(text: &str) -> Option<Span> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '_')?;
        let number = parse_number(&rest[..digits])?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_lowercase())
            .unwrap_or(rest.len());
        // Descending: a unit that was used before, or a greater one, is not found any more.
        let (_, micros) = units.find(|(name, _)| *name == &rest[..letters])?;
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(*micros)?)?;
    }
    (!text.is_empty()).then(|| Span::from_micros(total))
}

/// Prints a duration: the shortest text that reads as the same.
pub fn print_span(span: Span) -> String {
    let mut rest = span.as_micros();
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (name, micros) in UNITS {
        if micros <= rest {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{name}", rest / micros);
            rest %= micros;
        }
    }
    text
}

/// A number of digits, optionally grouped by single underscores as in TOML.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let grouped_well = text.split('_').all(|group| !group.is_empty());
    if !grouped_well || !text.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return None;
    }
    let mut number: u64 = 0;
    for digit in text.bytes().filter(u8::is_ascii_digit) {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    Some(number)
}

/// The greatest number that divides both; 1 for two zeros.
pub(super) fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_read_exactly() {
        let cases = [
            ("0s", 0),
            ("100us", 100),
            ("500ms", 500_000),
            ("1s", 1_000_000),
            ("1s500ms", 1_500_000),
            ("5m", 300_000_000),
            ("23h55m", 86_100_000_000),
            ("1d", 86_400_000_000),
            ("86_400s", 86_400_000_000),
        ];
        for (text, micros) in cases {
            assert_eq!(parse_span(text), Some(Span::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn inexact_durations_are_refused() {
        let cases = [
            "",
            "1",
            "s",
            "1.5s",
            "-1s",
            "1 s",
            "1S",
            "1M",
            "1s1h",
            "1s1s",
            "1_s",
            "_1s",
            "1__0s",
            "1sec",
            "213503983d",
            "99999999999999999999s",
            "1s ",
            "١s",
        ];
        for text in cases {
            assert_eq!(parse_span(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_units_read_back_equal(micros: u64) {
            let span = Span::from_micros(micros);
            prop_assert_eq!(parse_span(&print_span(span)), Some(span));
        }

        #[test]
        fn any_text_of_a_unit_is_read_or_refused(text in "\\PC*", near in "[0-9_dhmsu/]{0,24}") {
            for text in [text, near] {
                let _ = parse_span(&text);
            }
        }
    }
}
