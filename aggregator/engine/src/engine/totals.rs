//! Totals: what other partitions let through of a resource that is limited globally.
//!
//! ```text
//! total of partition 3, record 17: 40 hits in ms 500, 7 in ms 501
//!   the last applied total of that source was of record 10: the hits count on (api.search, *)
//!   afterwards one statement, if the end of everybody's denial changed
//! ```
//!
//! Knows nothing of pairs of domains. What stays true: a resource's own pair has one window, the copies
//! of the last second, and remembers nothing else.

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::record::Totals;
use tollgate_shared::wire::statement::{Cause, Denial};

use super::Engine;
use super::denials::ScopeStanding;
use super::rule::Rule;
use super::rulings::{Counts, Fate, ResourceCounts, Rulings, add};
use crate::pairs::{Opened, Stored};
use crate::rules::left::near_from;
use crate::rules::{Until, whole};
use tollgate_limits::RateClass;
use tollgate_limits::SECOND;

/// The limits of a resource's own pair: the global limit is a window of a second over all domains.
/// Without a global limit nothing is granted, but it is not used either.
pub(super) fn class_of_everybody(global: Option<u64>) -> RateClass {
    RateClass {
        hard: Some(global.unwrap_or(0)),
        ..RateClass::default()
    }
}

/// The denial of everybody under a global limit at `now`, if it is closed.
pub(super) fn global_denial(
    limit: u64,
    stored: &Stored,
    now: Timestamp,
    version: u64,
) -> Option<Denial> {
    let second = stored.pair.state.windows.first()?;
    let end = match whole::open_again(limit, second, now) {
        Until::Now => return None,
        Until::At(end) => end,
        Until::Never => Timestamp::MAX,
    };
    Some(Denial {
        end,
        cause: Cause::Global,
        version,
        limit,
        window: SECOND,
        most: limit,
    })
}

impl Engine {
    /// Applies a total.
    pub(super) fn totals(
        &mut self,
        offset: u64,
        totals: &Totals<'_>,
        rulings: &mut Rulings,
    ) -> Fate {
        let source = (totals.source_partition, totals.source_offset);
        let resource = totals.resource;
        // Noted even without a limit: otherwise a total that is sent again would count under a limit that came
        // meanwhile.
        if !self.last_totals.apply(&self.identities, resource, source) {
            return Fate::TotalOutOfOrder;
        }
        let limits = self.steps.newest().limits.clone();
        let Rule::Limited { rate, stated } = Rule::of(&limits, resource) else {
            return Fate::TotalUnlimited;
        };
        let Some(limit) = rate.global() else {
            return Fate::TotalUnlimited;
        };
        if totals.counted().next().is_none() {
            return Fate::Applied;
        }
        let identity = self.identities.of_resource(resource).of(EVERYBODY);
        if self.table.open(identity) == Opened::Known {
            self.steps.migrate_whole(self.table.working(), resource);
        } else {
            // A flood of domains must not keep out the pair that limits them all. There is one for each
            // resource that the limits name, so the cap does not apply.
            let ordinal = self.steps.newest().ordinal;
            self.table.working().begin_whole(ordinal);
        }
        let working = self.table.working();
        let before = working.stated;
        let counts = count(limit, working, totals);
        let now = working.pair.now();
        let version = self.steps.newest().version;
        let denial = match stated {
            true => global_denial(limit, working, now, version),
            false => None,
        };
        working.stated = denial.map(|denial| denial.end);
        let class = class_of_everybody(Some(limit));
        working.stays(working.pair.matters_until(&class));
        let from = near_from(&class, rate.near()).filter(|_| rulings.tells_near && stated);
        rulings.near_everybody = from.is_some_and(|from| working.pair.is_near(&class, from));
        if !self.table.close() {
            return Fate::TotalAtCap;
        }
        rulings.global_counts.push(ResourceCounts {
            resource: resource.into(),
            counts,
        });
        let standing = ScopeStanding {
            identity,
            position: LogPosition::of_record(self.log.unwrap_or_default(), offset),
            now,
            over: self.now(),
            before,
            denial,
        };
        let names = || (resource.into(), None);
        self.denials.follow(standing, names, rulings);
        Fate::Applied
    }
}

/// Counts a total's hits on the resource's own pair.
fn count(limit: u64, working: &mut Stored, totals: &Totals<'_>) -> Counts {
    let mut counts = Counts::default();
    for total in totals.counted() {
        let at = total.at();
        let now = working.pair.time.map_or(at, |time| time.max(at));
        working.pair.time = Some(now);
        let Some(second) = working.pair.state.windows.first_mut() else {
            continue;
        };
        second.forget(SECOND, now);
        let copies = u64::from(total.copies);
        let share = whole::count(limit, second, (at, now), copies, total.unguarded);
        counts.entries += 1;
        add(&mut counts.granted, share.granted);
        add(&mut counts.excess, share.excess);
        add(&mut counts.late, share.late);
    }
    counts
}
