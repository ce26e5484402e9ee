//! Chains of totals that cannot go on are bridged.
//!
//! ```text
//! source 3      totalled 9, 12, 17 ── 21, previous 17
//! target        applied 9 ── a power cut took 12 and 17, or took the source's end and not the target's
//! bridge        a total of nothing: previous 9, offset 17         from 21 on each follows again
//! ```
//!
//! A total is applied only where the one before it was, so that each counts once. A log that lost its end
//! may have lost one that the source will not say again, or have one that the source never said; then none
//! would follow any more, and the global limit would not be ruled for that source. What was granted in
//! between is left out, which is lenient. Knows nothing of why a chain broke.
//!
//! What stays true: nothing is bridged that may still come by itself; a bridge that was not needed follows
//! nothing, and is ignored like any total out of order.

use std::collections::BTreeMap;

use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::OwnersPen;

use super::event::Now;
use super::totals::ChainKey;
use super::{Core, Purpose};
use crate::log::Stream;

/// How often chains are looked at.
const LOOK_EVERY: Span = Span::from_millis(500);

/// How long a chain has to stand still: what the log has taken is read again in a fraction of it.
const STOOD_FOR: Span = Span::from_secs(2);

/// Chains that stand still: what the target applied last, and since when nothing follows it.
#[derive(Debug, Default)]
pub struct Bridges {
    standing: BTreeMap<ChainKey, (Option<u64>, Span)>,
    next_look: Span,
}

impl Core {
    /// Looks for chains whose next total is nowhere, and appends a bridge where that has lasted.
    pub(super) fn bridges_turn(&mut self, now: Now) {
        if now.clock < self.bridges.next_look {
            return;
        }
        self.bridges.next_look = now.clock.saturating_add(LOOK_EVERY);
        let before = std::mem::take(&mut self.bridges.standing);
        for (key, applied, due) in self.broken_chains() {
            let since = before
                .get(&key)
                .filter(|(of, _)| *of == applied)
                .map_or(now.clock, |(_, since)| *since);
            let mut standing = (applied, since);
            if since.saturating_add(STOOD_FOR) <= now.clock {
                self.bridge(&key, applied, due);
                standing.1 = now.clock;
            }
            self.bridges.standing.insert(key, standing);
        }
    }

    /// Chains of which both ends are ruled here: what was applied last, and what was totalled last, where
    /// nothing on its way leads from one to the other.
    fn broken_chains(&self) -> Vec<(ChainKey, Option<u64>, u64)> {
        let count = self.settings.partitions;
        let mut found = Vec::new();
        for source in self.partitions.iter().filter(|one| one.announcing) {
            for (resource, due) in source.ruler.totalled() {
                let target = partition_of_resource(resource, count);
                let target = self.partitions.get(target as usize);
                let Some(target) = target.filter(|target| target.announcing) else {
                    continue;
                };
                let applied = target.ruler.applied_total(resource, source.index);
                let key = ChainKey {
                    source: source.index,
                    resource: resource.into(),
                };
                // One that the source never said lies before it; until the source has come so far there is
                // nothing that could follow it.
                if applied < Some(due) && !self.totals.goes_on_from(&key, applied) {
                    found.push((key, applied, due));
                }
            }
        }
        found
    }

    fn bridge(&mut self, key: &ChainKey, applied: Option<u64>, due: u64) {
        let target = partition_of_resource(&key.resource, self.settings.partitions);
        tracing::warn!(
            source = key.source,
            resource = &*key.resource,
            ?applied,
            due,
            "a chain of totals does not go on: it is bridged, and what was granted in between is left out"
        );
        let source = (key.source, due);
        let pen = OwnersPen::new(&self.settings.key, target);
        let record = pen.totals(&key.resource, source, applied, &[]);
        self.counters.totals_bridged += 1;
        self.append(Stream::Hits, target, record, Purpose::Bridge);
    }
}
