//! The fields of a line that form the instant, and how it is written there.
//!
//! ```text
//! [20/Nov/2025:10:00:00 +0000]                  one field
//! 2025-11-20 10:00:00 +0200                     several, with blanks between them
//! [20/Nov/2025:10:00:00 +0000] 250              %t %{msec_frac}t: a fraction in a field of its own
//! Nov 20 10:00:00                               syslog: no year
//! ```
//!
//! A date without a year is in the newest year in which it is not after the last change of its
//! file. Does not choose the other fields. What stays true: if a user states the field, that one is
//! used and no other.

use tollgate_shared::time::Timestamp;

use super::dates::LastDate;
use super::instant::{self, Instants, TimeUnit, by_pattern};

/// The fields that form the instant.
#[derive(Clone, Debug)]
pub(super) enum InstantFields {
    /// One slot, in any notation.
    Whole(usize, TimeUnit),
    /// One slot or several, separated by blanks, in the format of a `strftime` pattern.
    By(Vec<usize>, String),
    /// A date and a time of day.
    Parts(usize, usize),
    /// Several slots, separated by blanks.
    Joined(Vec<usize>),
    /// The same for a date without a year.
    Yearless(Vec<usize>),
}

/// How the instant of a line is read.
#[derive(Clone, Debug)]
pub(super) struct Times {
    place: InstantFields,
    /// The slot of a fraction of a second in a field of its own.
    fraction: Option<usize>,
    /// When the file was last changed.
    changed: Option<Timestamp>,
}

impl Times {
    /// An instant in these fields, in the notation that `instants` states, if it states one.
    pub fn new(place: InstantFields, fraction: Option<usize>, instants: &Instants) -> Self {
        let place = match (&instants.pattern, instants.unit, place) {
            (Some(pattern), _, place) => InstantFields::By(place.slots(), pattern.clone()),
            (None, TimeUnit::Auto, place) => place,
            (None, unit, InstantFields::Whole(slot, TimeUnit::Auto)) => {
                InstantFields::Whole(slot, unit)
            }
            (None, _, place) => place,
        };
        Self {
            place,
            fraction,
            changed: instants.changed,
        }
    }

    /// Whether instants have no year.
    pub const fn are_yearless(&self) -> bool {
        matches!(self.place, InstantFields::Yearless(_))
    }

    /// The instant of a line with these fields; `last` caches the date read last.
    pub fn read(&self, slots: &[&[u8]], last: &mut LastDate) -> Result<Timestamp, &'static str> {
        let at = self.whole(slots, last)?;
        let Some(fraction) = self.fraction else {
            return Ok(at);
        };
        let micros = slots.get(fraction).and_then(|digits| micros_of(digits));
        let micros = micros.ok_or("a fraction of a second in digits")?;
        Ok(at.saturating_offset(micros))
    }

    fn whole(&self, slots: &[&[u8]], last: &mut LastDate) -> Result<Timestamp, &'static str> {
        let text = |slot: usize| str::from_utf8(slots.get(slot)?).ok();
        let joined = |of: &[usize]| -> Option<String> {
            let texts: Option<Vec<&str>> = of.iter().map(|slot| text(*slot)).collect();
            Some(texts?.join(" "))
        };
        match &self.place {
            InstantFields::Whole(slot, unit) => {
                let bytes = without_brackets(slots.get(*slot).copied().unwrap_or_default());
                // A day alone is not the instant of a request.
                let text = || str::from_utf8(bytes).ok();
                let text = || text().filter(|text| is_within_day(text));
                last.parse(bytes)
                    .or_else(|| instant::parse(text()?, *unit))
                    .ok_or("a date as in 20/Feb/2016:00:00:45 -0500")
            }
            InstantFields::Parts(date, time) => text(*date)
                .zip(text(*time))
                .and_then(|(date, time)| instant::of_parts(date, time))
                .ok_or("a date as in 2016-02-20 and a time as in 05:00:45"),
            InstantFields::Joined(of) => joined(of)
                .and_then(|text| instant::parse(&text, TimeUnit::Auto))
                .ok_or("a date and a time as in 2016-02-20 05:00:45"),
            InstantFields::By(of, pattern) => joined(of)
                .and_then(|text| {
                    by_pattern(pattern, text.trim_ascii()).or_else(|| {
                        let inside = without_brackets(text.trim_ascii().as_bytes());
                        by_pattern(pattern, str::from_utf8(inside).ok()?)
                    })
                })
                .ok_or("a date as --time-format or the pattern's %{…}t says"),
            InstantFields::Yearless(of) => joined(of)
                .and_then(|text| instant::in_newest_year(&text, self.changed?))
                .ok_or("a date as in Feb 20 05:00:45"),
        }
    }
}

impl Instants {
    /// Parses the instant of a row. A day alone is not one, unless the user stated a pattern.
    pub(super) fn of_row(&self, text: &str) -> Option<Timestamp> {
        (self.pattern.is_some() || is_within_day(text)).then(|| self.parse(text))?
    }
}

/// Whether a text may be more than a day: a number, or a date with its time of day.
fn is_within_day(text: &str) -> bool {
    text.contains(':') || !text.contains(['-', '/'])
}

impl InstantFields {
    /// The slots, in their order.
    fn slots(self) -> Vec<usize> {
        match self {
            Self::Whole(slot, _) => vec![slot],
            Self::Parts(date, time) => vec![date, time],
            Self::By(of, _) | Self::Joined(of) | Self::Yearless(of) => of,
        }
    }
}

fn without_brackets(bytes: &[u8]) -> &[u8] {
    let inside = bytes.strip_prefix(b"[");
    let inside = inside.and_then(|bytes| bytes.strip_suffix(b"]"));
    inside.unwrap_or(bytes)
}

/// The microseconds of the digits after a decimal point.
fn micros_of(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0'));
    Some(
        padded
            .take(6)
            .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')),
    )
}

/// Names of fields with the instant, finer ones before those of whole seconds.
const NAMES: &[&str] = &[
    "msec",
    "time_unix",
    "timestamp(ms)",
    "timestamp",
    "date-time",
    "start_time",
    "time_local",
    "time_iso8601",
];

/// The fields of a pattern that form the instant, their notation, and the field of a fraction.
pub(super) struct Named {
    /// One field, or a date and a time of day.
    pub fields: Vec<String>,
    /// How the first field is read.
    pub kind: NamedKind,
    /// The field of a fraction.
    pub fraction: Option<String>,
}

/// How a field with an instant is read.
pub(super) enum NamedKind {
    /// As a number or a date.
    Whole(TimeUnit),
    /// By a `strftime` pattern.
    By(String),
    /// A date and a time of day.
    Parts,
}

/// The fields of a pattern that form the instant.
pub(super) fn named(names: &[String]) -> Option<Named> {
    let is = |name: &&String, wanted: &str| name.eq_ignore_ascii_case(wanted);
    let known = |wanted: &str| names.iter().find(|name| is(name, wanted)).cloned();
    if let Some(name) = NAMES.iter().find_map(|name| known(name)) {
        return Some(Named {
            fields: vec![name],
            kind: NamedKind::Whole(TimeUnit::Auto),
            fraction: None,
        });
    }
    let of_apache = names
        .iter()
        .filter_map(|name| Some((name, of_apache(name)?)));
    // The beginning of a request comes before its end.
    let finest = of_apache
        .filter(|(_, of)| of.rank() != 0)
        .max_by(|(_, one), (_, other)| {
            // Of equals the first.
            let order = (!one.is_of_end, one.rank()).cmp(&(!other.is_of_end, other.rank()));
            order.then(std::cmp::Ordering::Greater)
        });
    if let Some((name, of)) = finest {
        return Some(Named {
            fields: vec![name.clone()],
            fraction: of.fraction(names),
            kind: of.kind(),
        });
    }
    Some(Named {
        fields: vec![known("date")?, known("time")?],
        kind: NamedKind::Parts,
        fraction: None,
    })
}

/// An Apache field of an instant: `%t`, `%{usec}t`, `%{end:%H:%M}t`.
struct OfApache<'n> {
    inside: &'n str,
    is_of_end: bool,
}

fn of_apache(name: &str) -> Option<OfApache<'_>> {
    if name == "%t" {
        return Some(OfApache {
            inside: "",
            is_of_end: false,
        });
    }
    let inside = name.strip_prefix("%{")?.strip_suffix("}t")?;
    let end = inside.strip_prefix("end:");
    let inside = end.unwrap_or_else(|| inside.strip_prefix("begin:").unwrap_or(inside));
    Some(OfApache {
        inside,
        is_of_end: end.is_some(),
    })
}

impl OfApache<'_> {
    /// How fine it is; 0: it is not an instant, but a part of one.
    fn rank(&self) -> u8 {
        match self.inside {
            "usec" => 4,
            "msec" => 3,
            "" | "begin" | "end" | "sec" => 1,
            "msec_frac" | "usec_frac" => 0,
            pattern if pattern.contains("%f") => 2,
            pattern => {
                let has = |directive: &&str| pattern.contains(directive);
                let dates = ["%d", "%e", "%D", "%F", "%j", "%s", "%c", "%x"];
                u8::from(dates.iter().any(has))
            }
        }
    }

    fn kind(&self) -> NamedKind {
        match self.inside {
            "" | "begin" | "end" => NamedKind::Whole(TimeUnit::Auto),
            // No strftime pattern reads a number with its fraction.
            "sec" | "%s" | "%s.%f" => NamedKind::Whole(TimeUnit::Seconds),
            "msec" => NamedKind::Whole(TimeUnit::Millis),
            "usec" => NamedKind::Whole(TimeUnit::Micros),
            pattern => NamedKind::By(pattern.to_owned()),
        }
    }

    /// The field of its fraction, if it has none itself, for the same point of the request
    /// (beginning or end).
    fn fraction(&self, names: &[String]) -> Option<String> {
        let is_fraction = |name: &&String| {
            of_apache(name).is_some_and(|of| {
                of.is_of_end == self.is_of_end && matches!(of.inside, "msec_frac" | "usec_frac")
            })
        };
        (self.rank() == 1)
            .then(|| {
                let finer = names.iter().filter(is_fraction);
                finer.max_by_key(|name| name.contains("usec")).cloned()
            })
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Option<(Vec<String>, Option<String>)> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        named(&names).map(|named| (named.fields, named.fraction))
    }

    #[test]
    fn of_several_instants_the_finest_is_read_with_its_fraction() {
        let of = |field: &str, fraction: Option<&str>| {
            Some((vec![field.to_owned()], fraction.map(str::to_owned)))
        };
        for (names, expected) in [
            (
                &["%h", "%t", "%{usec_frac}t"][..],
                of("%t", Some("%{usec_frac}t")),
            ),
            (
                &["%{msec_frac}t", "%{sec}t"],
                of("%{sec}t", Some("%{msec_frac}t")),
            ),
            (&["%t", "%{msec}t", "%{usec}t"], of("%{usec}t", None)),
            (
                &["%{end:%F %T}t", "%{begin:%F %T}t"],
                of("%{begin:%F %T}t", None),
            ),
            (&["%{%T}t", "%{%d/%b/%Y:%T}t"], of("%{%d/%b/%Y:%T}t", None)),
            (&["%{sec}t", "%{end:msec_frac}t"], of("%{sec}t", None)),
            (&["%{msec_frac}t"], None),
            (&["time_local", "msec"], of("msec", None)),
        ] {
            assert_eq!(chosen(names), expected, "{names:?}");
        }
    }

    #[test]
    fn a_fraction_is_read_by_its_digits() {
        assert_eq!(micros_of(b"250"), Some(250_000));
        assert_eq!(micros_of(b"000250"), Some(250));
        assert_eq!(micros_of(b"1234567"), Some(123_456));
        assert_eq!((micros_of(b""), micros_of(b"-")), (None, None));
    }
}
