//! One partition: records in log order go in, rulings and statements come out.
//!
//! ```text
//! limits   version 1: "search" 2 per 1s
//! tick     log time begins
//! hits     agent a, seq 1: search/acme at 0.0 and 0.1   → granted, granted, denied until 1.000001
//! hits     agent a, seq 1 again                         → a duplicate: nothing is ruled
//! limits   version 2: "search" 5 per 1s                 → the denial is lifted
//! ```
//!
//! This is the stream reading with late hits, new limits, duplicates and limits activations, for rates. Knows
//! nothing of copies, shadow modes or near-limit notices, and takes its inputs for verified (a forged activation or
//! total never gets here). What stays true: the answer is a function of the records in their order.

use std::collections::BTreeMap;

mod agents;
mod amendments;
mod counters;
mod history;
mod input;
mod table;
mod totals;
mod versions;
mod whole;

use crate::effect::{EffectRecords, EffectViolation};
use crate::limits::{DomainLimits, Limits, ResourceLimits};
pub use crate::scope::ScopeName;
use crate::stream::{Denial, EntryOutcome, Over, SLOT_US, StreamPair};
use crate::verdict::End;
use agents::{Agents, Freshness};
use amendments::Amendments;
pub use counters::ModelCounters;
use history::History;
pub use history::Statement;
pub use input::{
    Act, EntryKind, EntryRuling, HitEntry, HitsRecord, LogInput, ModelPosition, NotRuled,
    RecordOutcome, ScopeChange, Total, TotalPart, TotalRuling,
};
use table::PairTable;
pub use whole::{TotalCount, WholeResource};

/// A hit stamped longer than this before its append is only counted, in microseconds.
const TOO_OLD_US: u64 = 600_000_000;
/// The resolution of append times, in microseconds.
const APPEND_UNIT_US: u64 = 1_000;

/// The model of one partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionModel {
    /// `None` before the first limits activation.
    version: Option<u64>,
    limits: Limits,
    /// How many versions were steps of the limits: all but those whose rows name single pairs.
    step: u64,
    table: PairTable,
    /// By (resource, source partition): the source offset of the last applied total.
    last_totals: BTreeMap<(String, u32), u64>,
    agents: Agents,
    /// The append time of the last counted tick, in microseconds.
    log_us: Option<u64>,
    /// The latest instant that a counted tick or limits brought, in microseconds: a denial that
    /// ended by then needs no lift.
    over_us: u64,
    history: History,
    amendments: Amendments,
    counters: ModelCounters,
    /// `None` unless the model shall check that limits limit.
    effect: Option<EffectRecords>,
}

impl PartitionModel {
    /// A partition without records, and therefore without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, but it remembers every entry so that [`Self::effect_violations`] can answer.
    pub fn with_effect() -> Self {
        Self {
            effect: Some(EffectRecords::default()),
            ..Self::default()
        }
    }

    /// The scopes in which some span let through more than a constraint and the hits of one denial delay explain.
    pub fn effect_violations(&self) -> Vec<(ScopeName, EffectViolation)> {
        let effect = self.effect.as_ref();
        effect.map(EffectRecords::violations).unwrap_or_default()
    }

    /// How many entries are remembered for this check, and how many are not because there are too many.
    pub fn effect_entries(&self) -> (u64, u64) {
        let effect = self.effect.as_ref();
        effect.map(EffectRecords::entries).unwrap_or_default()
    }

    /// The number of scopes that [`Self::effect_violations`] covers.
    pub fn effect_scopes(&self) -> usize {
        self.effect.as_ref().map_or(0, EffectRecords::len)
    }

    /// Applies the next record of the log.
    pub fn apply(&mut self, record: &LogInput<'_>) -> RecordOutcome {
        let outcome = match record {
            LogInput::Hits(hits) => self.hits(hits),
            LogInput::Tick { appended_us, .. } => self.tick(*appended_us),
            LogInput::Totals { offset, totals } => self.totals(*offset, totals),
            LogInput::Limits {
                offset,
                appended_us,
                versions,
            } => self.new_limits(*offset, self.effective_us(*appended_us), versions),
            LogInput::Rows {
                offset,
                appended_us,
                version,
                limits,
                pairs,
            } => {
                let at = (*offset, self.effective_us(*appended_us));
                self.new_rows(at, *version, limits, pairs)
            }
            LogInput::Amendment {
                offset,
                appended_us,
                version,
                act,
            } => self.amend((*offset, self.effective_us(*appended_us)), *version, act),
        };
        for change in &outcome.changes {
            self.history.add(change);
        }
        outcome
    }

    /// The end of the pair's denial at its last ruling; the denial may have ended by itself since.
    pub fn denied_until(&self, resource: &str, domain: &str) -> Option<End> {
        let pair = self.table.pair(resource, domain)?;
        pair.denied().map(|denial| denial.end)
    }

    /// The same for the whole resource.
    pub fn whole_denied_until(&self, resource: &str) -> Option<End> {
        let denied = self.table.whole(resource)?.denied();
        denied.map(|denial| denial.end)
    }

    /// The pair's denial by the newest statement at or before a log position.
    pub fn denied_at_place(
        &self,
        position: ModelPosition,
        resource: &str,
        domain: &str,
    ) -> Option<Denial> {
        self.history
            .at(&ScopeName::new(resource, Some(domain)), position)?
            .denied
    }

    /// The whole resource's denial by the newest statement at or before a log position.
    pub fn whole_denied_at_position(
        &self,
        position: ModelPosition,
        resource: &str,
    ) -> Option<Denial> {
        self.history
            .at(&ScopeName::new(resource, None), position)?
            .denied
    }

    /// The denial that justifies a refusal of the pair at `at_us` by an agent that had received the
    /// partition's statements up to `position`: a denial of the pair or of its resource that ends later. `None`
    /// means that the refusal was unjustified.
    pub fn justification(
        &self,
        position: ModelPosition,
        resource: &str,
        domain: &str,
        at_us: u64,
    ) -> Option<(ScopeName, Statement)> {
        let scopes = [
            ScopeName::new(resource, Some(domain)),
            ScopeName::new(resource, None),
        ];
        scopes.into_iter().find_map(|scope| {
            let statement = self.history.at(&scope, position)?;
            let denial = statement.denied?;
            denial.end.is_after(at_us).then_some((scope, statement))
        })
    }

    /// Every statement about a scope, in order.
    pub fn statements(&self, scope: &ScopeName) -> &[Statement] {
        self.history.of(scope)
    }

    /// Every scope with its statements.
    pub fn all_statements(&self) -> impl Iterator<Item = (&ScopeName, &[Statement])> {
        self.history.scopes()
    }

    /// Pairs that are ruled at the moment, whole resources included.
    pub fn pairs_count(&self) -> u64 {
        self.table.count()
    }

    /// Log time, in microseconds; `None` before the first tick.
    pub fn log_us(&self) -> Option<u64> {
        self.log_us
    }

    /// Whether the model remembers anything of an agent's process.
    pub fn knows_agent(&self, name: &str, epoch: u128) -> bool {
        self.agents.knows(name, epoch)
    }

    /// The version in force.
    pub fn version(&self) -> Option<u64> {
        self.version
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The counters.
    pub fn counters(&self) -> ModelCounters {
        self.counters
    }

    fn hits(&mut self, record: &HitsRecord<'_>) -> RecordOutcome {
        let (name, epoch) = (record.agent, record.epoch);
        let freshness = self.agents.batch(name, epoch, record.seq, self.log_us);
        let unfresh = match freshness {
            Freshness::Fresh => None,
            Freshness::Duplicate => Some(NotRuled::Duplicate),
            Freshness::OlderThanWindow => Some(NotRuled::OlderThanWindow),
        };
        let mut outcome = RecordOutcome {
            unruled: unfresh,
            ..RecordOutcome::default()
        };
        if let Some(why) = unfresh {
            for _ in &record.entries {
                outcome.entries.push(self.not_ruled(why));
            }
            return outcome;
        }
        let (appended_us, sent_us) = (record.appended_us, record.sent_us);
        let log_us = self.log_us;
        let agents = &mut self.agents;
        outcome.moved_us = agents.stamps_move_us(name, epoch, log_us, appended_us, sent_us);
        for (i, entry) in record.entries.iter().enumerate() {
            let position = ModelPosition {
                offset: record.offset,
                entry: u32::try_from(i).unwrap_or(u32::MAX),
            };
            let at_us = instant_us(entry.at_us, outcome.moved_us, appended_us);
            let mut entry = *entry;
            if let EntryKind::Refund { made_us, .. } = &mut entry.kind {
                *made_us = instant_us(*made_us, outcome.moved_us, appended_us);
            }
            let ruling = self.entry(position, appended_us, at_us, &entry, &mut outcome);
            outcome.entries.push(ruling);
        }
        outcome
    }

    fn entry(
        &mut self,
        position: ModelPosition,
        appended_us: u64,
        at_us: u64,
        entry: &HitEntry<'_>,
        outcome: &mut RecordOutcome,
    ) -> EntryRuling {
        let over = self.amendments.over(entry.resource, entry.domain);
        let limits = self.limits.of(entry.resource);
        if limits.is_none() && !over.bans(at_us) {
            return self.not_ruled(NotRuled::Unconfigured);
        }
        let global = limits.and_then(|limits| limits.global);
        if global.is_some() {
            let totals = &mut outcome.totals_due;
            totals.entry(entry.resource.to_owned()).or_default();
        }
        if TOO_OLD_US < appended_us.saturating_sub(at_us) {
            return self.not_ruled(NotRuled::TooOld);
        }
        let (resource, domain) = (entry.resource, entry.domain);
        let step = self.step;
        let new_pair = || new_pair(limits, domain, over).begun_at(step);
        let scope = || ScopeName::new(resource, Some(domain));
        let (cap, slot) = (self.limits.pairs_per_partition_max, self.slot());
        let (before, now_us, ruled);
        if let Some(found) = rule_stored(&mut self.table, (step, limits.is_some()), at_us, entry) {
            (before, now_us, ruled) = found;
        } else if !self.table.is_full(cap, slot) {
            let mut pair = new_pair();
            ruled = rule(&mut pair, limits.is_some(), at_us, entry);
            (before, now_us) = (None, at_us);
            self.table.add_pair(resource, domain, pair);
            if let Some(effect) = &mut self.effect {
                effect.enters(&scope());
            }
        } else {
            // The pair is at its cap and so not stored: the global limit receives the copies that a pair of its own
            // would report at its first entry.
            if global.is_some() {
                let ruled = rule(&mut new_pair(), limits.is_some(), at_us, entry);
                note_outcome(outcome, entry, at_us, &ruled);
            }
            return self.not_ruled(NotRuled::AtCap);
        }
        if at_us == now_us && 0 < ruled.granted {
            self.amendments.granted(resource, domain);
        }
        self.table.leave_if_rested(&scope());
        if is_to_state(before, ruled.denied, now_us, self.over_us) {
            outcome.changes.push(ScopeChange {
                scope: scope(),
                position,
                denied: ruled.denied,
            });
        }
        self.note_effect(at_us, entry, &ruled);
        if global.is_some() {
            note_outcome(outcome, entry, at_us, &ruled);
        }
        self.counters.ruled(entry.kind, &ruled);
        EntryRuling::Ruled {
            at_us,
            outcome: ruled,
        }
    }

    /// Reports an entry that was ruled to the check of law 8.
    fn note_effect(&mut self, at_us: u64, entry: &HitEntry<'_>, ruled: &EntryOutcome) {
        let Some(effect) = &mut self.effect else {
            return;
        };
        let limits = self.limits.of(entry.resource);
        let limits = limits.map_or_else(DomainLimits::default, |limits| limits.of(entry.domain));
        let scope = ScopeName::new(entry.resource, Some(entry.domain));
        if let EntryKind::Refund { made_us, .. } = entry.kind {
            effect.taken_back(&scope, made_us, ruled.refunded);
        }
        effect.entry(scope, &limits, at_us, ruled, entry.unguarded);
    }

    /// When a limits activation takes effect: at its append, or at log time if that is later. The clock of a new
    /// leader may be behind.
    fn effective_us(&self, appended_us: u64) -> u64 {
        appended_us.max(self.over_us)
    }

    /// The slot of the last counted tick.
    fn slot(&self) -> u64 {
        self.log_us.map_or(0, |log_us| log_us / SLOT_US)
    }

    fn not_ruled(&mut self, why: NotRuled) -> EntryRuling {
        self.counters.not_ruled(why);
        EntryRuling::NotRuled(why)
    }

    fn tick(&mut self, appended_us: u64) -> RecordOutcome {
        let mut outcome = RecordOutcome::default();
        let last_slot = self.log_us.map(|log_us| log_us / SLOT_US);
        if last_slot.is_some_and(|last_slot| appended_us / SLOT_US <= last_slot) {
            self.counters.ticks_ignored += 1;
            return outcome;
        }
        self.log_us = Some(appended_us);
        self.over_us = self.over_us.max(appended_us);
        self.agents.tick(appended_us);
        self.end_amendments(appended_us);
        // Eviction goes by the slot, as ticks do: the position of a tick within its slot decides nothing.
        self.table.leave(appended_us / SLOT_US * SLOT_US);
        outcome.tick_counted = true;
        outcome
    }
}

/// The instant of a hit: its stamp, moved by the error of the agent's clock, and never later than the last
/// microsecond of the append's millisecond.
fn instant_us(stamp_us: u64, moved_us: i64, appended_us: u64) -> u64 {
    let append_ms = appended_us / APPEND_UNIT_US;
    let append_end_us = append_ms
        .saturating_mul(APPEND_UNIT_US)
        .saturating_add(APPEND_UNIT_US - 1);
    stamp_us.saturating_add_signed(moved_us).min(append_end_us)
}

/// Whether a denial after an entry is to be stated. One that had ended by itself at the pair's time needs no lift.
fn is_to_state(before: Option<Denial>, after: Option<Denial>, now_us: u64, over_us: u64) -> bool {
    let before = before.filter(|denial| denial.end.is_after(now_us));
    let is_over = before.is_some_and(|denial| !denial.end.is_after(over_us));
    ends_differ(before, after) && !(is_over && after.is_none())
}

fn ends_differ(before: Option<Denial>, after: Option<Denial>) -> bool {
    before.map(|denial| denial.end) != after.map(|denial| denial.end)
}

/// Reports an entry to the global limit: granted copies, and excess that every constraint of the domain counted.
/// Other excess is left out, so that the flood of one tenant closes little for the rest.
fn note_outcome(
    outcome: &mut RecordOutcome,
    entry: &HitEntry<'_>,
    at_us: u64,
    ruled: &EntryOutcome,
) {
    let counted = ruled.granted.saturating_add(ruled.counted);
    if counted == 0 {
        return;
    }
    let parts = outcome
        .totals_due
        .entry(entry.resource.to_owned())
        .or_default();
    let part = (at_us / APPEND_UNIT_US, entry.unguarded);
    *parts.entry(part).or_default() += counted;
}

/// A domain's pair without entries.
fn new_pair(limits: Option<&ResourceLimits>, domain: &str, over: Over) -> StreamPair {
    let own = limits.map_or_else(DomainLimits::default, |limits| limits.of(domain));
    let mut pair = StreamPair::new(&own);
    pair.set_over(over);
    pair
}

/// Rules an entry on its pair, if that is stored: the denial before it, and the pair's time after it.
fn rule_stored(
    table: &mut PairTable,
    (step, is_limited): (u64, bool),
    at_us: u64,
    entry: &HitEntry<'_>,
) -> Option<(Option<Denial>, u64, EntryOutcome)> {
    let pair = table.pair_mut(entry.resource, entry.domain)?;
    pair.come_to(step);
    let before = pair.denied();
    let stayed_us = pair.stays_until_us();
    let ruled = rule(pair, is_limited, at_us, entry);
    let now_us = pair.time_us().unwrap_or(at_us);
    let stays_us = pair.stays_until_us();
    if stays_us.is_some_and(|stays_us| stayed_us.is_none_or(|us| stays_us < us)) {
        table.leaves_sooner(&ScopeName::new(entry.resource, Some(entry.domain)));
    }
    Some((before, now_us, ruled))
}

/// Rules an entry on its pair. If no limits are set on the resource, only a ban denies.
fn rule(pair: &mut StreamPair, is_limited: bool, at_us: u64, entry: &HitEntry<'_>) -> EntryOutcome {
    let mut ruled = match entry.kind {
        EntryKind::Hit => pair.entry(at_us, entry.n, entry.unguarded),
        EntryKind::Estimate => pair.estimate(at_us, entry.n, entry.unguarded),
        EntryKind::Refund {
            made_us,
            estimated,
            actual,
        } => pair.settle(at_us, made_us, estimated, actual),
    };
    if !is_limited {
        pair.free(at_us);
        ruled.denied = pair.denied();
    }
    pair.rest();
    ruled
}
