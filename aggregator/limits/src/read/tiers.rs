//! `tiers = [...]`: reads burst tiers, and normalises them.

use tollgate_shared::time::Span;

use super::{LIMIT_MAX, SPAN_MAX, SPAN_MIN};
use crate::normal::{TierChange, normalise};
use crate::path::{Path, PathStep};
use crate::rate::Tier;
use crate::source::{Item, Section};
use crate::warning::{Collector, WarningKind};

/// The most tiers of one domain: agents learn them with every snapshot, and a climb goes through all
/// of them.
use tollgate_shared::wire::public::TIERS_MAX;

pub(crate) const TIER_FIELDS: &[&str] = &["limit", "window", "active", "cooldown", "skippable"];

pub(super) fn read_tiers(
    section: &Section<'_, '_>,
    list: &Item<'_, '_>,
    warnings: &Collector,
) -> Option<Box<[Tier]>> {
    let values =
        list.list("a list of tiers, as [{ limit = 100, window = \"1s\", active = \"1s\" }]")?;
    if TIERS_MAX < values.len() {
        list.expected("at most 64 tiers");
        return None;
    }
    let tiers: Vec<Option<Tier>> = values
        .iter()
        .enumerate()
        .map(|(index, value)| read_tier(&section.item(value, PathStep::item("tier", index))))
        .collect();
    let tiers: Vec<Tier> = tiers.into_iter().collect::<Option<_>>()?;
    let (normal, changes) = normalise(&tiers);
    for (number, change) in changes {
        warn_normalised(section.path, number, change, warnings);
    }
    if normal.is_empty() && !tiers.is_empty() {
        warnings.add(&section.path, WarningKind::NoTierLeft);
    }
    Some(normal)
}

fn warn_normalised(path: Path<'_>, number: usize, change: TierChange, warnings: &Collector) {
    let tier = path.then(PathStep::Item("tier", number));
    let field = match change {
        TierChange::Dropped => None,
        TierChange::WindowCut { .. } => Some("window"),
        TierChange::ActiveTrimmed { .. } => Some("active"),
    };
    let kind = WarningKind::Normalised(change);
    match field {
        None => warnings.add(&tier, kind),
        Some(field) => warnings.add(&tier.then(PathStep::Field(field)), kind),
    }
}

fn read_tier(item: &Item<'_, '_>) -> Option<Tier> {
    const ACTIVE: &str = "\"0s\" (never active) or a duration from 1ms to 3650d";
    let section = item.table("a table as { limit = 100, window = \"1s\", active = \"1s\" }")?;
    section.only(TIER_FIELDS);
    let limit = section
        .require("limit", "hits in one window, as 100")
        .and_then(|item| {
            item.number(
                0..=LIMIT_MAX,
                "a whole number of hits, from 0 to 4294967295",
            )
        });
    let window = section
        .require("window", "a duration, as \"1s\"")
        .and_then(|item| {
            let window = item.span(
                Span::ZERO..=SPAN_MAX,
                "a duration, as \"1s\", at most 3650d",
            );
            if window.is_some_and(|window| window < SPAN_MIN) {
                item.expected("a duration of at least 1ms");
                return None;
            }
            window
        });
    let active = section
        .require("active", "a duration, as \"1m\"")
        .and_then(|item| {
            let active = item.span(Span::ZERO..=SPAN_MAX, ACTIVE)?;
            if active != Span::ZERO && active < SPAN_MIN {
                item.expected(ACTIVE);
                return None;
            }
            Some(active)
        });
    let cooldown = match section.get("cooldown") {
        None => Some(Span::ZERO),
        Some(item) => item.span(
            Span::ZERO..=SPAN_MAX,
            "a duration, as \"5m\", at most 3650d",
        ),
    };
    let skippable = match section.get("skippable") {
        None => Some(false),
        Some(item) => item.boolean(),
    };
    Some(Tier {
        limit: limit?,
        window: window?,
        active: active?,
        cooldown: cooldown?,
        skippable: skippable?,
    })
}
