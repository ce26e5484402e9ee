//! Time zones by name: where their tables come from, and how documents contain them.
//!
//! ```text
//! zone = "Europe/Berlin"       as an operator writes it
//!
//! [zones."Europe/Berlin"]      as the log contains it: the instants from which offsets from UTC hold
//! offsets = ["+01:00", "2020-03-29T01:00:00Z +02:00", ...]
//! ```
//!
//! Zone data changes some times a year, and two builds may have different data of one zone. So a name is looked up
//! once, before a document goes to the log, and the log has the table: every replay counts by the same periods.
//! Knows nothing of quotas. What stays true: a printed table reads as the same zone.

use std::sync::Arc;

use jiff::tz::TimeZoneDatabase;
use tollgate_shared::time::Timestamp;

use super::fault::Faults;
use super::toml_text::TomlKey;
use super::version::Limits;
use super::zone::Zone;

/// Where tables begin: quotas of older logs count by the first offset.
const FROM: &str = "2020-01-01T00:00:00Z";

/// Where they end: twenty years after the newest release that may still expand one. Afterwards the last offset
/// holds.
const UNTIL: &str = "2060-01-01T00:00:00Z";

/// The zone of a name in this build's data; `None`: no such zone.
pub(super) fn expand(name: &str) -> Option<Zone> {
    let zone = TimeZoneDatabase::bundled().get(name).ok()?;
    let (from, until) = (instant(FROM)?, instant(UNTIL)?);
    let mut offsets = vec![(Timestamp::ZERO, zone.to_offset(from).seconds())];
    for change in zone.following(from) {
        if until <= change.timestamp() {
            break;
        }
        let offset = change.offset().seconds();
        // Some changes affect only a name.
        if offsets.last().is_some_and(|(_, before)| *before != offset) {
            offsets.push((stamp(change.timestamp())?, offset));
        }
    }
    Zone::new(zone.iana_name().unwrap_or(name), &offsets)
}

/// All names in this build's data.
pub(super) fn names() -> Vec<String> {
    let database = TimeZoneDatabase::bundled();
    database.available().map(|name| name.to_string()).collect()
}

/// The zone that a name defines by itself: UTC, or an offset from it.
pub(super) fn fixed(name: &str) -> Option<Zone> {
    match name {
        "UTC" | "Z" => Some(Zone::default()),
        _ => Some(Zone::fixed(name, parse_offset(name)?)),
    }
}

/// Whether a zone needs a table beside its name.
pub(super) fn has_table(zone: &Zone) -> bool {
    fixed(zone.name()).is_none()
}

/// A zone's table as a list of TOML strings: the first offset, then each instant with the offset from there on.
pub(super) fn print_table(zone: &Zone) -> Vec<String> {
    let row = |(at, offset): &(Timestamp, i32)| match instant_of(*at) {
        Some(at) => format!("{at} {}", print_offset(*offset)),
        // Beyond what can be printed; no table has such an instant.
        None => print_offset(*offset),
    };
    let (first, rest) = match zone.offsets() {
        [(_, first), rest @ ..] => (*first, rest),
        [] => (0, Default::default()),
    };
    std::iter::once(print_offset(first))
        .chain(rest.iter().map(row))
        .collect()
}

/// One row of a table after the first.
pub(super) fn parse_row(text: &str) -> Option<(Timestamp, i32)> {
    let (at, offset) = text.split_once(' ')?;
    Some((stamp(instant(at)?)?, parse_offset(offset)?))
}

/// `+01:00`, `-03:30`, `+00:19:32`.
pub(super) fn parse_offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let mut parts = digits.split(':').map(|part| {
        let plain = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_digit());
        part.parse::<i32>().ok().filter(|_| plain)
    });
    let (hours, minutes) = (parts.next()??, parts.next()??);
    let seconds = parts.next().unwrap_or(Some(0))?;
    let fits = hours < 24 && minutes < 60 && seconds < 60 && parts.next().is_none();
    fits.then_some(sign * (hours * 3_600 + minutes * 60 + seconds))
}

fn print_offset(seconds: i32) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let all = seconds.unsigned_abs();
    let (hours, minutes, rest) = (all / 3_600, all / 60 % 60, all % 60);
    match rest {
        0 => format!("{sign}{hours:02}:{minutes:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}:{rest:02}"),
    }
}

fn instant(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

fn stamp(at: jiff::Timestamp) -> Option<Timestamp> {
    let micros = u64::try_from(at.as_microsecond()).ok()?;
    Some(Timestamp::from_micros(micros))
}

fn instant_of(at: Timestamp) -> Option<jiff::Timestamp> {
    let micros = i64::try_from(at.as_micros()).ok()?;
    jiff::Timestamp::from_microsecond(micros).ok()
}

/// The document with the tables of its zones appended, where it has none yet. A document with faults is returned
/// unchanged; its reader will refuse it.
pub fn with_zone_tables(text: String) -> String {
    if !text.contains("zone") {
        return text;
    }
    let Ok((_, _, expanded)) = Limits::parse_whole(&text) else {
        return text;
    };
    let mut text = text;
    for zone in &expanded {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&table_text(zone));
    }
    text
}

/// The document without the tables of its zones, and without white space at its end: to compare documents, since a
/// difference in tables alone is no change by an operator.
pub fn without_zone_tables(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut is_table = false;
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            is_table = line.starts_with("[zones.");
        }
        if !is_table {
            kept.push_str(line);
        }
    }
    kept.truncate(kept.trim_end().len());
    kept
}

/// A zone's table in a document's notation.
pub(super) fn table_text(zone: &Zone) -> String {
    let rows = print_table(zone);
    let rows: Vec<String> = rows.iter().map(|row| format!("\"{row}\"")).collect();
    let name = TomlKey(zone.name());
    format!("\n[zones.{name}]\noffsets = [{}]\n", rows.join(", "))
}

impl Limits {
    /// Reads a document of the log, which contains the tables of all its zones; this build's own zone data is not
    /// used.
    ///
    /// # Errors
    ///
    /// [`Faults`] lists everything that is wrong with it, zones without a table included.
    pub fn parse_logged(text: &str) -> Result<Self, Faults> {
        let (limits, _, expanded) = Self::parse_whole(text)?;
        match expanded.first() {
            None => Ok(limits),
            Some(zone) => Err(Faults::zone_without_table(zone.name())),
        }
    }

    /// The zones that need a table, ascending by name.
    pub(super) fn named_zones(&self) -> Vec<&Arc<Zone>> {
        let stated = self.rates().flat_map(|rate| {
            let overrides = rate.overrides().map(|(_, of)| &of.stated);
            let own = std::iter::once(rate.stated()).chain(rate.candidate());
            own.chain(overrides)
                .filter_map(|stated| stated.zone.as_ref())
        });
        let mut zones: Vec<&Arc<Zone>> = stated.filter(|zone| has_table(zone)).collect();
        zones.sort_unstable();
        zones.dedup();
        zones
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_its_offsets_for_twenty_years() {
        let berlin = expand("Europe/Berlin").expect("a zone");
        let at = |text: &str| berlin.offset_at(stamp(instant(text).expect("one")).expect("one"));
        assert_eq!(at("2026-03-29T00:59:59Z"), 3_600);
        assert_eq!(at("2026-03-29T01:00:00Z"), 7_200);
        assert_eq!(at("2026-10-25T01:00:00Z"), 3_600);
        assert_eq!(at("2046-07-01T00:00:00Z"), 7_200);
        assert_eq!(berlin.offsets().len(), 1 + 2 * 40);
        let kolkata = expand("Asia/Kolkata").expect("a zone");
        assert_eq!(kolkata.offsets(), [(Timestamp::ZERO, 19_800)]);
        assert_eq!(expand("Europe/Atlantis"), None);
    }

    #[test]
    fn a_table_reads_as_the_zone_that_was_printed() {
        for name in ["Europe/Berlin", "America/St_Johns", "Africa/Casablanca"] {
            let zone = expand(name).expect("a zone");
            let rows = print_table(&zone);
            let first = parse_offset(&rows[0]).expect("an offset");
            let rest = rows[1..].iter().map(|row| parse_row(row).expect("a row"));
            let offsets: Vec<_> = std::iter::once((Timestamp::ZERO, first))
                .chain(rest)
                .collect();
            assert_eq!(Zone::new(name, &offsets), Some(zone), "{name}");
        }
    }

    #[test]
    fn offsets_read_exactly() {
        for (text, seconds) in [("+01:00", 3_600), ("-03:30", -12_600), ("+00:19:32", 1_172)] {
            assert_eq!(parse_offset(text), Some(seconds));
            assert_eq!(print_offset(seconds), text);
        }
        for text in [
            "",
            "+",
            "+1",
            "+1:00",
            "+24:00",
            "01:00",
            "+01:60",
            "+01:00:00:00",
            "é",
        ] {
            assert_eq!(parse_offset(text), None, "{text}");
        }
    }

    #[test]
    fn zone_tables_are_written_once_and_do_not_count_as_changes() {
        let text = "[rate.x]\nquota = [\"5/day\"]\nzone = \"Europe/Berlin\"";
        let with = with_zone_tables(text.to_owned());
        assert!(
            with.starts_with(text) && with.contains("[zones.\"Europe/Berlin\"]"),
            "{with}"
        );
        assert_eq!(with_zone_tables(with.clone()), with);
        assert_eq!(without_zone_tables(&with), text);
        assert_eq!(without_zone_tables(text), text);
        let faults = Limits::parse_logged(text).expect_err("it has no table");
        assert!(faults.to_string().contains("Europe/Berlin"), "{faults}");
        assert_eq!(Limits::parse_logged(&with), Limits::parse(text));
    }
}
