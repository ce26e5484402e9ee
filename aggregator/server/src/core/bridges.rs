//! Chains of totals that cannot go on are bridged.
//!
//! ```text
//! source 3      totalled 9, 12, 17 ── 21, previous 17
//! target        applied 9 ── a power cut took 12 and 17, or took the source's end and not the target's
//! bridge        an empty total: previous 9, offset 17             from 21 on each follows again
//! ```
//!
//! A total is applied only directly after its predecessor, so that each counts once. A log that lost its end
//! may have lost a total that the source will not append again, or keep one that the source never made; then no
//! total would follow any more, and the global limit would not be ruled for that source. What was granted in
//! between is left out, which is lenient. Knows nothing of why a chain broke.
//!
//! Where another aggregator rules the source, this one cannot know which totals are still to come. Then totals
//! that follow nothing show that the chain is broken, and to which total to bridge. A total that the log takes
//! before the bridge makes the bridge useless, and the next total is tried: a source that has a total more often
//! than every half second may wait long for its bridge, and is not counted meanwhile. A missing total that
//! arrives by itself after more than [`STRAYED_FOR`] is left out.
//!
//! What stays true: where both ends are ruled here, nothing is bridged that may still arrive by itself; nothing
//! is bridged backwards, where it could count twice; a bridge that was not needed follows nothing, and is
//! ignored like any total out of order.

use std::collections::BTreeMap;

use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::RecordPen;

use tollgate_limits::versions::LimitsBook;

use super::environment::{Environment, Purpose};
use super::event::Now;
use super::partition::Partition;
use super::record_keys;
use super::ruler::Met;
use super::totals::ChainKey;
use tollgate_log::Stream;

/// How often chains are looked at.
const LOOK_EVERY: Span = Span::from_millis(500);

/// How long a chain has to stand still. The log delivers what it has taken in a fraction of that time.
const STOOD_FOR: Span = Span::from_secs(2);

/// How long totals have to follow nothing, where another aggregator rules their source. Twice [`STOOD_FOR`], since
/// this one does not know what the other sends again after a failure.
const STRAYED_FOR: Span = Span::from_secs(4);

/// Chains that do not go on.
#[derive(Debug, Default)]
pub struct Bridges {
    /// Chains that stand still: the total that the target applied last, and since when nothing follows it.
    standing: BTreeMap<ChainKey, (Option<u64>, Span)>,
    /// Chains with totals that follow nothing.
    strays: BTreeMap<ChainKey, Strays>,
    next_look: Span,
}

/// Totals of one chain that follow nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strays {
    /// Since when no total has come that follows.
    since: Span,
    /// The last stray, if one has come since a bridge was tried.
    newest: Option<u64>,
}

impl Bridges {
    /// A total was applied. A bridge proves nothing: only a total after it shows that the chain goes on.
    pub fn followed(&mut self, key: &ChainKey, is_bridge: bool) {
        if !is_bridge {
            self.strays.remove(key);
        }
    }

    /// A total came that does not follow `applied`, the one that was applied last.
    pub fn strayed(&mut self, clock: Span, key: ChainKey, offset: u64, applied: Option<u64>) {
        // A total that was sent again, by a new ruling aggregator of the source or after a failure, was applied
        // already.
        if Some(offset) <= applied {
            return;
        }
        let strays = self.strays.entry(key).or_insert(Strays {
            since: clock,
            newest: None,
        });
        strays.newest = Some(offset);
    }

    /// Forgets strays from a source, and strays for the resources of a target, that is ruled again from the start
    /// or by another aggregator.
    pub fn forget(&mut self, partition: u32, is_its: impl Fn(&str) -> bool) {
        self.strays
            .retain(|key, _| key.source != partition && !is_its(&key.resource));
    }

    /// The chains that are to be bridged, each with the offset to bridge to.
    fn take_strayed(&mut self, clock: Span) -> Vec<(ChainKey, u64)> {
        let due = self
            .strays
            .iter_mut()
            .filter(|(_, strays)| strays.since.saturating_add(STRAYED_FOR) <= clock);
        due.filter_map(|(key, strays)| Some((key.clone(), strays.newest.take()?)))
            .collect()
    }
}

impl Bridges {
    /// A target met a total, and had applied the one at `applied` last.
    pub(super) fn met(&mut self, clock: Span, key: ChainKey, met: Met, applied: Option<u64>) {
        match met {
            Met::Applied { is_bridge, .. } => self.followed(&key, is_bridge),
            Met::Stray { offset } => self.strayed(clock, key, offset, applied),
        }
    }

    /// Looks for chains whose next total is nowhere, and appends a bridge where that has lasted.
    pub(super) fn turn(
        &mut self,
        now: Now,
        partitions: &[Partition],
        book: &LimitsBook,
        env: &mut Environment,
    ) {
        if now.clock < self.next_look {
            return;
        }
        self.next_look = now.clock.saturating_add(LOOK_EVERY);
        self.bridge_strayed(now, partitions, book, env);
        let before = std::mem::take(&mut self.standing);
        for (key, applied, due) in broken_chains(partitions) {
            let since = before
                .get(&key)
                .filter(|(of, _)| *of == applied)
                .map_or(now.clock, |(_, since)| *since);
            let mut standing = (applied, since);
            if since.saturating_add(STOOD_FOR) <= now.clock {
                bridge(&key, (applied, due), partitions, book, env);
                standing.1 = now.clock;
            }
            self.standing.insert(key, standing);
        }
    }

    /// Bridges chains whose source another aggregator rules.
    fn bridge_strayed(
        &mut self,
        now: Now,
        partitions: &[Partition],
        book: &LimitsBook,
        env: &mut Environment,
    ) {
        for (key, newest) in self.take_strayed(now.clock) {
            let Some(target) = target_of(&key.resource, partitions) else {
                continue;
            };
            let applied = target.ruler.applied_total(&key.resource, key.source);
            let is_elsewhere = |source: &Partition| !source.is_ours();
            let source = partitions.get(key.source as usize);
            if source.is_some_and(is_elsewhere) && applied < Some(newest) {
                bridge(&key, (applied, newest), partitions, book, env);
            }
        }
    }
}

/// The partition that rules a resource, if this process announces it.
fn target_of<'p>(resource: &str, partitions: &'p [Partition]) -> Option<&'p Partition> {
    let target = partition_of_resource(resource, partitions.len() as u32);
    let target = partitions.get(target as usize);
    target.filter(|target| target.announcing)
}

/// Chains of which both ends are ruled here and whose next total is not on its way: the last applied total, and the
/// last one that the source made.
fn broken_chains(partitions: &[Partition]) -> Vec<(ChainKey, Option<u64>, u64)> {
    let mut found = Vec::new();
    for source in partitions.iter().filter(|one| one.announcing) {
        for (resource, due) in source.ruler.totalled() {
            let Some(target) = target_of(resource, partitions) else {
                continue;
            };
            let applied = target.ruler.applied_total(resource, source.index);
            let key = ChainKey {
                source: source.index,
                resource: resource.into(),
            };
            // Otherwise the target has applied a total that the source never made. Until the source has come that
            // far, no total could follow.
            if applied < Some(due) && !source.totals.goes_on_from(resource, applied) {
                found.push((key, applied, due));
            }
        }
    }
    found
}

fn bridge(
    key: &ChainKey,
    (applied, due): (Option<u64>, u64),
    partitions: &[Partition],
    book: &LimitsBook,
    env: &mut Environment,
) {
    let target = partition_of_resource(&key.resource, env.settings.partitions);
    tracing::warn!(
        source = key.source,
        resource = &*key.resource,
        ?applied,
        due,
        "a chain of totals has a gap: it continues behind the gap, and hits granted in the gap are not counted"
    );
    let source = (key.source, due);
    let version = partitions
        .get(target as usize)
        .map_or(0, |target| target.ruler.version());
    let pen = RecordPen::new(
        record_keys::writer(&env.settings.keys, book, version),
        target,
    );
    let record = pen.totals(&key.resource, source, applied, &[]);
    env.out.tally.counters.totals_bridged += 1;
    env.append(Stream::Hits, target, record, Purpose::Bridge);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ChainKey {
        ChainKey {
            source: 3,
            resource: "api.search".into(),
        }
    }

    fn at(seconds: u64) -> Span {
        Span::from_secs(seconds)
    }

    #[test]
    fn a_chain_is_bridged_to_the_newest_total_when_none_has_followed_for_long() {
        let mut bridges = Bridges::default();
        bridges.strayed(at(1), key(), 40, Some(9));
        bridges.strayed(at(4), key(), 50, Some(9));
        assert_eq!(bridges.take_strayed(at(4)), []);
        assert_eq!(bridges.take_strayed(at(5)), [(key(), 50)]);
        // No total has come since, so nothing is known to be wrong.
        assert_eq!(bridges.take_strayed(at(9)), []);
        // Another total came before the bridge: tried again, at once.
        bridges.followed(&key(), true);
        bridges.strayed(at(9), key(), 60, Some(50));
        assert_eq!(bridges.take_strayed(at(9)), [(key(), 60)]);
        bridges.followed(&key(), false);
        bridges.strayed(at(10), key(), 90, Some(70));
        assert_eq!(bridges.take_strayed(at(12)), []);
    }

    #[test]
    fn what_is_sent_again_is_no_sign_and_what_is_forgotten_none_either() {
        let mut bridges = Bridges::default();
        for second in 0..9 {
            bridges.strayed(at(second), key(), second, Some(8));
        }
        assert_eq!(bridges.take_strayed(at(9)), []);
        for forgotten in [3, 5] {
            bridges.strayed(at(1), key(), 40, Some(8));
            bridges.forget(forgotten, |resource| {
                forgotten == 5 && resource == "api.search"
            });
            assert_eq!(bridges.take_strayed(at(9)), []);
        }
    }
}
