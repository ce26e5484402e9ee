//! `zone = "…"` and `[zones.…]`: the zones whose dates begin quotas' periods.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fault::FaultKind;
use crate::path::PathStep;
use crate::source::{Item, Section, nearest};
use crate::warning::{Collector, WarningKind};
use crate::zone::Zone;
use crate::zone_tables::{expand, fixed, names, parse_offset, parse_row};
use tollgate_shared::time::Timestamp;

pub(crate) const ZONE_FIELDS: &[&str] = &["offsets"];

const ZONE: &str = "a time zone as \"Europe/Berlin\", \"+01:00\" or \"UTC\"";

/// The zones of a document: those with tables in it, and those that were looked up.
pub(super) struct ZoneReader<'t> {
    stated: BTreeMap<&'t str, Arc<Zone>>,
    expanded: RefCell<BTreeMap<Box<str>, Arc<Zone>>>,
}

impl<'t> ZoneReader<'t> {
    pub(super) fn of(document: &Section<'_, 't>, warnings: &Collector) -> Self {
        let mut stated = BTreeMap::new();
        let zones = document.section("zones", PathStep::Through("zones"));
        for (name, item) in zones.iter().flat_map(|zones| zones.checked("zone")) {
            if fixed(name).is_some() {
                warnings.add(&item.path, WarningKind::FixedZoneStated);
            }
            if let Some(zone) = read_table(name, &item) {
                stated.insert(name, Arc::new(zone));
            }
        }
        Self {
            stated,
            expanded: RefCell::default(),
        }
    }

    /// The zone that a value names.
    pub(super) fn read(&self, item: &Item<'_, '_>) -> Option<Arc<Zone>> {
        let Some(name) = item.text() else {
            item.expected(ZONE);
            return None;
        };
        if let Some(zone) = fixed(name) {
            return Some(Arc::new(zone));
        }
        if let Some(zone) = self.stated.get(name) {
            return Some(Arc::clone(zone));
        }
        let mut expanded = self.expanded.borrow_mut();
        if let Some(zone) = expanded.get(name) {
            return Some(Arc::clone(zone));
        }
        match expand(name) {
            // The look-up ignores case, but a document must use the canonical spelling.
            Some(zone) if zone.name() == name => {
                let zone = Arc::new(zone);
                expanded.insert(name.into(), Arc::clone(&zone));
                Some(zone)
            }
            _ => {
                let known = names();
                let suggestion = nearest(name, known.iter().map(String::as_str));
                item.fault(FaultKind::UnknownZone {
                    suggestion: suggestion.map(Into::into),
                });
                None
            }
        }
    }

    /// The zones that were looked up, ascending by name.
    pub(super) fn into_expanded(self) -> Vec<Arc<Zone>> {
        self.expanded.into_inner().into_values().collect()
    }
}

fn read_table(name: &str, item: &Item<'_, '_>) -> Option<Zone> {
    const ROW: &str = "an instant and the offset from then on, as \"2026-03-29T01:00:00Z +02:00\"";
    let section = item.table("a table as { offsets = [\"+01:00\"] }")?;
    section.only(ZONE_FIELDS);
    let list = section.require("offsets", "the zone's offsets, as [\"+01:00\"]")?;
    let values = list.list("the zone's offsets, as [\"+01:00\"]")?;
    let mut offsets = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let item = list.nth(value, index + 1);
        let row = match index {
            0 => item
                .text()
                .and_then(parse_offset)
                .map(|offset| (Timestamp::ZERO, offset)),
            _ => item.text().and_then(parse_row),
        };
        match (row, index) {
            (Some(row), _) => offsets.push(row),
            (None, 0) => {
                item.expected("the offset before the first instant, as \"+01:00\"");
                return None;
            }
            (None, _) => {
                item.expected(ROW);
                return None;
            }
        }
    }
    let zone = Zone::new(name, &offsets);
    if zone.is_none() {
        list.place_fault(FaultKind::OffsetsDoNotRise);
    }
    zone
}
