//! Prints a statement: windows, bucket, tiers, hard limit and quotas in their usual notation.
//!
//! What stays true: the text reads as the same statement, within braces as well as in a table of its
//! own.

use std::fmt::{self, Write as _};

use tollgate_shared::time::Span;

use super::rate::{Bucket, Tier, Window};
use super::settings::Rate;
use super::spelling::{print_quota, print_rate, whole_rate};
use super::stated::{Allowance, Setting, Stated};
use super::units::print_span;

/// Prints the stated fields, each followed by `end`.
pub(super) fn write_stated(out: &mut String, stated: &Stated, end: &str) -> fmt::Result {
    // A field that one of the three replaces need not be printed, see `Stated::replacing`.
    let replaced = stated.states_a_base_constraint();
    let none = |out: &mut String, is_none: bool, field: &str| match is_none {
        true => write!(out, "{field} = \"none\"{end}"),
        false => Ok(()),
    };
    match &stated.windows {
        Setting::Value(windows) => write_windows(out, windows, end)?,
        other => none(out, !replaced && *other == Setting::Unstated, "rate")?,
    }
    match &stated.bucket {
        Setting::Value(bucket) => write_bucket(out, bucket, end)?,
        other => none(out, !replaced && *other == Setting::Unstated, "bucket")?,
    }
    match &stated.tiers {
        Setting::Value(tiers) => write_tiers(out, tiers, end)?,
        other => none(out, !replaced && *other == Setting::Unstated, "tiers")?,
    }
    match &stated.hard {
        Setting::Value(hard) => write!(out, "hard = \"{hard}/s\"{end}")?,
        other => none(out, *other == Setting::Unstated, "hard")?,
    }
    match &stated.quotas {
        Setting::Value(quotas) => write_quotas(out, quotas, end)?,
        other => none(out, *other == Setting::Unstated, "quota")?,
    }
    if let Some(zone) = &stated.zone {
        write!(out, "zone = \"{}\"{end}", zone.name())?;
    }
    match stated.refunds {
        Some(refunds) => write!(out, "refunds = {refunds}{end}"),
        None => Ok(()),
    }
}

fn write_windows(out: &mut String, windows: &[Window], end: &str) -> fmt::Result {
    let rate = |window: &Window| {
        let window = Rate {
            hits: window.limit,
            window: window.window,
        };
        format!("\"{}\"", print_rate(window))
    };
    let rates: Vec<String> = windows.iter().map(rate).collect();
    match &*rates {
        [one] => write!(out, "rate = {one}{end}"),
        many => write!(out, "windows = [{}]{end}", many.join(", ")),
    }
}

fn write_bucket(out: &mut String, bucket: &Bucket, end: &str) -> fmt::Result {
    let Bucket {
        tokens,
        period,
        burst,
        debt,
    } = *bucket;
    let rate = print_rate(whole_rate(tokens, period));
    write!(
        out,
        "bucket = {{ rate = \"{rate}\", burst = {burst}, debt = {debt} }}{end}"
    )
}

fn write_quotas(out: &mut String, quotas: &[Allowance], end: &str) -> fmt::Result {
    let quota = |of: &Allowance| format!("\"{}\"", print_quota(of.limit, of.unit));
    let quotas: Vec<String> = quotas.iter().map(quota).collect();
    write!(out, "quota = [{}]{end}", quotas.join(", "))
}

fn write_tiers(out: &mut String, tiers: &[Tier], end: &str) -> fmt::Result {
    // A list may be broken into lines if its table ends fields with a line break; within braces it may
    // not.
    let broken = end == "\n" && 1 < tiers.len();
    out.push_str("tiers = [");
    for (index, tier) in tiers.iter().enumerate() {
        match (broken, index) {
            (true, _) => out.push_str("\n  "),
            (false, 0) => {}
            (false, _) => out.push_str(", "),
        }
        let (window, active) = (print_span(tier.window), print_span(tier.active));
        write!(
            out,
            "{{ limit = {}, window = \"{window}\", active = \"{active}\"",
            tier.limit
        )?;
        if tier.cooldown != Span::ZERO {
            write!(out, ", cooldown = \"{}\"", print_span(tier.cooldown))?;
        }
        if tier.skippable {
            out.push_str(", skippable = true");
        }
        out.push_str(if broken { " }," } else { " }" });
    }
    write!(out, "{}]{end}", if broken { "\n" } else { "" })
}
