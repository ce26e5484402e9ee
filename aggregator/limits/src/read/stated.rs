//! Reads the statement of a resource, a plan, a domain or a candidate: windows, bucket, quotas, tiers, hard
//! limit.
//!
//! ```text
//! windows = ["50/s", "1000/m"]                        all must have room
//! bucket = { rate = "100/s", burst = 500 }            the debt is derived from both if it is not stated
//! quota = ["1_000_000/month"]   zone = "UTC"
//! hard = "none"                                       no hard limit, whatever is inherited
//! ```

use tollgate_shared::time::Span;

use super::tiers::read_tiers;
use super::zones::ZoneReader;
use super::{LIMIT_MAX, SPAN_MAX, SPAN_MIN, read_per_second};
use crate::fault::FaultKind;
use crate::path::PathStep;
use crate::rate::{Bucket, Window};
use crate::settings::Rate;
use crate::source::{Item, Section};
use crate::spelling::{parse_quota, parse_rate, parse_rate_places};
use crate::stated::{Allowance, Setting, Stated};
use crate::units::greatest_common_divisor;
use crate::warning::{Collector, WarningKind};

/// The fields of a statement.
pub(crate) const STATED_FIELDS: &[&str] = &[
    "rate", "windows", "bucket", "tiers", "hard", "quota", "zone", "refunds",
];

pub(crate) const BUCKET_FIELDS: &[&str] = &["rate", "burst", "debt"];

/// The most windows of one statement: each is checked for each copy, and denials name it by one byte.
const WINDOWS_MAX: usize = 16;

/// The most quotas of one statement, likewise.
const QUOTAS_MAX: usize = 8;

/// A bucket's level is counted in parts of a copy that fit into 62 bits.
const LEVEL_MAX: u128 = 1 << 62;

const RATE: &str = "a rate as \"100/s\", \"6000/m\", \"5/15s\", \"0.5/s\" or \"10 per minute\" (units s, m, h, d, w)";
const RATE_RANGE: &str =
    "a rate of at most 4294967295 whose window lasts from 1ms to 3650d, as \"100/s\"";
const QUOTA: &str =
    "a quota as \"1_000_000/month\" or \"50_000 per day\" (day, week, month or year)";

/// Reads the fields of a statement in a table; the caller reads the other fields.
pub(super) fn read_stated(
    section: &Section<'_, '_>,
    zones: &ZoneReader<'_>,
    warnings: &Collector,
) -> Stated {
    let rate = section.get("rate");
    let windows = section.get("windows");
    if let (Some(rate), Some(_)) = (&rate, &windows) {
        rate.fault(FaultKind::Beside { other: "windows" });
    }
    let windows = match (rate, windows) {
        (rate @ Some(_), None) => setting(rate, |item| Some([read_window(item, warnings)?].into())),
        (_, windows) => setting(windows, |item| read_windows(section, item, warnings)),
    };
    Stated {
        windows,
        bucket: setting(section.get("bucket"), read_bucket),
        tiers: setting(section.get("tiers"), |item| {
            read_tiers(section, item, warnings)
        }),
        hard: setting(section.get("hard"), read_per_second),
        quotas: setting(section.get("quota"), |item| read_quotas(section, item)),
        zone: section.get("zone").and_then(|item| zones.read(&item)),
        refunds: section.get("refunds").and_then(|item| item.boolean()),
    }
    .replacing()
}

/// A field that may also be `"none"`.
fn setting<T>(
    item: Option<Item<'_, '_>>,
    read: impl FnOnce(&Item<'_, '_>) -> Option<T>,
) -> Setting<T> {
    match item {
        None => Setting::Inherited,
        Some(item) if item.text() == Some("none") => Setting::Unstated,
        // A value that cannot be read has caused a fault, and is not used.
        Some(item) => read(&item).map_or(Setting::Inherited, Setting::Value),
    }
}

fn read_window(item: &Item<'_, '_>, warnings: &Collector) -> Option<Window> {
    let rate = read_rate(item)?;
    // One hit is no burst, however long its window is: 0.5/s is 1/2s.
    let times = item.text().and_then(parse_rate_places);
    if times.is_some_and(|(_, times)| 1 < times && 1 < rate.hits) {
        warnings.add(&item.path, WarningKind::DecimalRate { rate });
    }
    let Rate { hits, window } = rate;
    Some(Window {
        limit: hits,
        window,
    })
}

/// A rate with a window and a limit that the rules can count.
fn read_rate(item: &Item<'_, '_>) -> Option<Rate> {
    if item.text().is_some_and(is_of_calendar) {
        item.expected(
            "a rate with a unit up to weeks, as \"100/s\"; for a month or a year expected quota = [\"1_000_000/month\"]",
        );
        return None;
    }
    let rate = item.rate(|_| true, RATE)?;
    let fits = rate.hits <= LIMIT_MAX && (SPAN_MIN..=SPAN_MAX).contains(&rate.window);
    if !fits {
        item.expected(RATE_RANGE);
        return None;
    }
    Some(rate)
}

/// Whether it is a quota that cannot be a sliding window.
fn is_of_calendar(text: &str) -> bool {
    parse_quota(text).is_some() && parse_rate(text).is_none()
}

/// The values of a list; a single value instead of a list counts as a list of one.
fn each<T>(
    section: &Section<'_, '_>,
    list: &Item<'_, '_>,
    (name, most, expected): (&'static str, usize, &'static str),
    read: impl Fn(&Item<'_, '_>) -> Option<T>,
) -> Option<Box<[T]>> {
    if list.text().is_some() {
        return Some([read(list)?].into());
    }
    let values = list.list(expected)?;
    if values.is_empty() || most < values.len() {
        list.expected(expected);
        return None;
    }
    let all: Vec<Option<T>> = values
        .iter()
        .enumerate()
        .map(|(index, value)| read(&section.item(value, PathStep::item(name, index))))
        .collect();
    all.into_iter().collect()
}

fn read_windows(
    section: &Section<'_, '_>,
    list: &Item<'_, '_>,
    warnings: &Collector,
) -> Option<Box<[Window]>> {
    const EXPECTED: &str = "1 to 16 windows, as [\"10/s\", \"1000/h\"], or \"none\"";
    let form = ("windows", WINDOWS_MAX, EXPECTED);
    each(section, list, form, |item| read_window(item, warnings))
}

fn read_quotas(section: &Section<'_, '_>, list: &Item<'_, '_>) -> Option<Box<[Allowance]>> {
    const EXPECTED: &str = "1 to 8 quotas, as [\"1_000_000/month\", \"50_000/day\"], or \"none\"";
    let form = ("quota", QUOTAS_MAX, EXPECTED);
    each(section, list, form, |item| {
        let found = item.text().and_then(parse_quota);
        let Some((limit, unit)) = found else {
            item.expected(QUOTA);
            return None;
        };
        if LIMIT_MAX < limit {
            item.expected("a quota of at most 4294967295");
            return None;
        }
        Some(Allowance { limit, unit })
    })
}

fn read_bucket(item: &Item<'_, '_>) -> Option<Bucket> {
    const EXPECTED: &str = "a table as { rate = \"100/s\", burst = 500 }, or \"none\"";
    let section = item.table(EXPECTED)?;
    section.only(BUCKET_FIELDS);
    let rate = section
        .require("rate", "how fast it fills, as \"100/s\"")
        .and_then(|item| {
            let rate = read_rate(&item)?;
            if rate.hits == 0 {
                item.expected("a rate of at least 1, as \"1/h\": it would never fill again");
                return None;
            }
            Some(rate)
        });
    let burst = section
        .require("burst", "copies that a full bucket holds, as 500")
        .and_then(|item| {
            item.number(
                1..=LIMIT_MAX,
                "a whole number of copies, from 1 to 4294967295: a bucket that holds none grants none",
            )
        });
    let debt = section.get("debt").map(|item| {
        let debt = item.number(0..=LIMIT_MAX, "a whole number of copies, up to 4294967295");
        (debt, item)
    });
    let (Rate { hits, window }, burst) = (rate?, burst?);
    let shared = greatest_common_divisor(hits, window.as_micros());
    let (tokens, micros) = (hits / shared, window.as_micros() / shared);
    let debt = match debt {
        None => burst.max(copies_in(tokens, micros, 1_000_000)),
        Some((stated, item)) => {
            let least = copies_in(tokens, micros, 250_000);
            let debt = stated?;
            if debt < least {
                item.fault(FaultKind::DebtTooSmall { least });
                return None;
            }
            debt
        }
    };
    if LEVEL_MAX <= (u128::from(burst) + u128::from(debt)) * u128::from(micros) {
        item.expected("a bucket whose burst and debt, times the microseconds that the rate's time and its copies have not in common, are below 2^62: expected a rounder rate, or less burst and debt");
        return None;
    }
    Some(Bucket {
        tokens,
        period: Span::from_micros(micros),
        burst,
        debt,
    })
}

/// The copies that flow in within `micros` microseconds, rounded up.
fn copies_in(tokens: u64, period: u64, micros: u64) -> u64 {
    let copies = (u128::from(tokens) * u128::from(micros)).div_ceil(u128::from(period.max(1)));
    u64::try_from(copies).unwrap_or(u64::MAX)
}
