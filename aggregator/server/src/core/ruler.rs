//! Adapts the engine for the core: records in, rulings out.
//!
//! Knows nothing of what follows from a ruling. What stays true: there is one engine, and one buffer of rulings that
//! is reused for each record.

use std::sync::Arc;

use tollgate_api::pairs::{BucketLeft, ConstraintState, PairState};
use tollgate_engine::copies::Copies;
use tollgate_engine::engine::{
    AgentChange, AgentNews, BucketView, Correction, Count, Engine, Fate, LiveDenial, PairNear,
    ResourceCounts, Rulings, SnapshotFault, TotalDue, VerdictDue,
};
use tollgate_engine::rules::request::LimitedBy;
use tollgate_limits::Limits;
use tollgate_shared::log_position::LogId;
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::record::{Record, Totals};
use tollgate_shared::wire::statement::{Denial, Scope, Statement, StatementKind};

use super::candidates::RuledBeside;
use super::counters::Counters;
use super::snapshots::Moment;
use super::totals::{Due, TotalsKey};
use tollgate_limits::versions::LimitsBook;
use tollgate_log::Chunks;
use tollgate_log::Delivered;

/// The rulings on one record.
#[derive(Debug, Default)]
pub struct RuledRecord {
    /// Statements and their resources, in order.
    pub statements: Vec<(Arc<str>, Statement)>,
    /// Verdicts on agents' holds, in order.
    pub verdicts: Vec<VerdictDue>,
    /// What happened to agents.
    pub agents: Vec<AgentNews>,
    /// Agents whose time stamps were moved.
    pub corrections: Vec<Correction>,
    /// Totals to be appended, by resource.
    pub totals: Vec<(Box<str>, Due)>,
    /// If the record is a total that was applied: whose it is, and its source offset.
    pub total: Option<(TotalsKey, u64)>,
    /// Why nothing more can be ruled, if that is so.
    pub stopped: Option<String>,
    /// The counts of resources that have candidates.
    pub beside: RuledBeside,
    /// The number of entries of hits.
    pub entries: u64,
}

/// The engine of one partition.
pub struct Ruler {
    engine: Engine,
    rulings: Rulings,
    /// The record that was applied last; `None` if that was before this ruler was restored from a snapshot.
    last: Option<Delivered>,
}

impl std::fmt::Debug for Ruler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ruler")
            .field("log", &self.engine.log())
            .field("applied_upto", &self.engine.applied_upto())
            .finish_non_exhaustive()
    }
}

impl Ruler {
    /// A ruler that has ruled nothing.
    pub fn new(partition: u32, partitions: u32) -> Self {
        Self {
            engine: Engine::new(partition, partitions),
            rulings: Rulings::new(),
            last: None,
        }
    }

    /// A ruler restored from a snapshot.
    ///
    /// # Errors
    ///
    /// The chunks are not a whole snapshot of this partition, or limits are missing.
    pub fn restore(
        partition: u32,
        partitions: u32,
        chunks: &Chunks,
        book: &LimitsBook,
    ) -> Result<Self, SnapshotFault> {
        Ok(Self {
            engine: Engine::restore(partition, partitions, chunks, book)?,
            rulings: Rulings::new(),
            last: None,
        })
    }

    /// Keeps the record that was applied last: snapshots store its mark.
    pub fn keep_last(&mut self, delivered: &Delivered) {
        self.last = Some(delivered.clone());
    }

    /// The mark of the last record in the snapshot that this ruler was restored from.
    pub fn mark(&self) -> Option<u128> {
        self.engine.mark()
    }

    /// From now on the state is that of a log without some records, or as if none had been missing.
    pub fn set_lacks_records(&mut self, lacks_records: bool) {
        self.engine.set_lacks_records(lacks_records);
    }

    /// Whether the state is that of a log without some records.
    pub fn lacks_records(&self) -> bool {
        self.engine.lacks_records()
    }

    /// A copy of the engine at this moment.
    pub fn freeze(&mut self) -> Moment {
        let last = self.last.as_ref();
        if let Some(last) = last.filter(|last| Some(last.offset) == self.engine.applied_upto()) {
            self.engine.set_mark(last.mark());
        }
        Moment(Box::new(self.engine.freeze()))
    }

    /// The offset of the last record that was applied.
    pub fn applied_upto(&self) -> Option<u64> {
        self.engine.applied_upto()
    }

    /// The log's identity, once a record has stated it.
    pub fn log(&self) -> Option<LogId> {
        self.engine.log()
    }

    /// The limits version in force; 0: none.
    pub fn version(&self) -> u64 {
        self.engine.version().unwrap_or(0)
    }

    /// The number of known pairs.
    pub fn pairs(&self) -> u64 {
        self.engine.pairs()
    }

    /// Sets whether pairs near their limits are looked for, which is useless if they are not published.
    pub fn note_near(&mut self, tells: bool) {
        self.rulings.tells_near = tells;
    }

    /// The entries of the last applied batch that left their pairs near their limits, and how many more there were.
    pub fn near(&self) -> (&[u32], u64) {
        (&self.rulings.near, self.rulings.near_shed)
    }

    /// Whether the last applied total left the use by all domains near the resource's global limit.
    pub fn is_everybody_near(&self) -> bool {
        self.rulings.near_everybody
    }

    /// The counts of the last applied batch of hits, by resource, and the calls let through of each.
    pub fn counts(&self) -> (&[ResourceCounts], &[u64]) {
        (&self.rulings.counts, &self.rulings.calls)
    }

    /// What a pair has left, if it is near its limits.
    ///
    /// [`tollgate_shared::names::EVERYBODY`] stands for all domains, under the global limit.
    pub fn near_of(&self, resource: &str, domain: &str) -> Option<PairNear> {
        self.engine.near(resource, domain)
    }

    /// Applies the next record. If it brings new limits, only one slice is done: see [`Ruler::has_more`].
    pub fn apply(
        &mut self,
        offset: u64,
        appended: Timestamp,
        record: &Record<'_>,
        book: &LimitsBook,
        counters: &mut Counters,
    ) -> RuledRecord {
        self.rulings.clear();
        self.engine
            .begin(offset, appended, record, book, &mut self.rulings);
        let mut ruled = self.ruled(counters);
        if let Record::Totals(totals) = record {
            ruled.total = applied(&self.rulings.fates, totals);
        }
        ruled
    }

    /// The entries with excess of the last applied batch of hits; `None`: it was not ruled.
    pub fn excess(&self) -> Option<&[(u32, u64)]> {
        let ruled = self.rulings.fates.contains(&Fate::Applied);
        ruled.then_some(&*self.rulings.excess)
    }

    /// Whether the last applied record has further slices, which come before the next record.
    pub fn has_more(&self) -> bool {
        self.engine.has_more()
    }

    /// Applies the next slice of the last applied record.
    pub fn go_on(&mut self, counters: &mut Counters) -> RuledRecord {
        self.rulings.clear();
        self.engine.go_on(&mut self.rulings);
        self.ruled(counters)
    }

    fn ruled(&mut self, counters: &mut Counters) -> RuledRecord {
        count(&self.rulings, counters);
        RuledRecord {
            statements: self
                .rulings
                .statements
                .drain(..)
                .map(|stated| (stated.resource, stated.statement))
                .collect(),
            verdicts: std::mem::take(&mut self.rulings.verdicts),
            agents: std::mem::take(&mut self.rulings.agents),
            corrections: std::mem::take(&mut self.rulings.corrections),
            totals: self.rulings.totals_due.drain(..).map(due).collect(),
            total: None,
            beside: self.beside(),
            stopped: self.rulings.stopped().map(|stop| stop.to_string()),
            entries: entries(&self.rulings),
        }
    }

    /// The counts of resources that have candidates.
    fn beside(&mut self) -> RuledBeside {
        let limits = self.engine.limits();
        let has_candidate = |of: &&ResourceCounts| {
            let rate = limits.rate(&of.resource);
            rate.is_some_and(|rate| rate.candidate().is_some())
        };
        RuledBeside {
            counts: self
                .rulings
                .counts
                .iter()
                .filter(has_candidate)
                .cloned()
                .collect(),
            closed: std::mem::take(&mut self.rulings.candidates),
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> &Arc<Limits> {
        self.engine.limits()
    }

    /// The digest of the state, in hexadecimal.
    pub fn digest(&self) -> String {
        format!("{:032x}", self.state())
    }

    /// The digest of the state.
    pub fn state(&self) -> u128 {
        self.engine.digest()
    }

    /// Log time: when the log took the last tick that counted.
    pub fn log_time(&self) -> Option<Timestamp> {
        self.engine.log_time()
    }

    /// The statements in force at log time.
    pub fn live(&self) -> Vec<(Arc<str>, Statement)> {
        let scopes = self.engine.denied_scopes();
        let scopes = scopes.map(|(resource, statement)| (Arc::clone(resource), statement));
        let denials = self.engine.live_denials().map(statement);
        denials.chain(scopes).collect()
    }

    /// The copy-limited resources that ever had a hold.
    pub fn copies(&self) -> impl Iterator<Item = (&Arc<str>, &Copies)> {
        self.engine.copies()
    }

    /// The latest instant that has been brought into the log.
    pub fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// The numbers of agents' epochs that send heartbeats, and of those that are gone and not forgotten.
    pub fn agents(&self) -> (usize, usize) {
        self.engine.agents()
    }

    /// Resources for which own records were totalled, each with the offset of the last.
    pub fn totalled(&self) -> impl Iterator<Item = (&str, u64)> {
        self.engine.totalled()
    }

    /// The denial of a domain's pair, if one is in force.
    pub fn denial(&self, resource: &str, domain: &str) -> Option<Denial> {
        Some(self.engine.pair(resource, domain)?.denial?.denial)
    }

    /// The number of bans and pardons that last.
    pub fn amended(&self) -> usize {
        self.engine.amended()
    }

    /// How many holds and staged transfers an operator's release concerns.
    pub fn holds_meant(&self, act: &Act) -> usize {
        self.engine.holds_meant(act)
    }

    /// Whether any limit of a pair counts a hit at the pair's own time, at which a refund takes hits out.
    pub fn counts_any(&self, resource: &str, domain: &str) -> bool {
        let view = self.engine.pair(resource, domain);
        view.is_some_and(|view| view.counts_any)
    }

    /// The state of a pair at log time.
    pub fn pair(&self, resource: &str, domain: &str) -> Option<PairState> {
        let view = self.engine.pair_now(resource, domain)?;
        Some(PairState {
            time_us: view.time.as_micros(),
            as_of_us: view.as_of.as_micros(),
            tier: view.tier as u64,
            tier_limit: view.tier_limit,
            tier_hits: view.tier_hits,
            remaining: view.remaining,
            last_second: view.last_second,
            hard: view.hard,
            constraints: constraints_of(domain, &view.counts),
            bucket: view.bucket.as_ref().map(bucket_left),
        })
    }
}

fn constraint_state(count: &Count) -> ConstraintState {
    ConstraintState {
        name: count.of.name().into_owned(),
        limit: count.limit,
        span_us: count.span.as_micros(),
        counted: count.counted,
    }
}

/// Whole copies; parts of a copy are left out.
fn bucket_left(view: &BucketView) -> BucketLeft {
    BucketLeft {
        level: view.level.div_euclid(view.bucket.copy_units().max(1)),
        burst: view.bucket.burst,
    }
}

/// The usage under each constraint, by the names that denials use.
fn constraints_of(domain: &str, counts: &[Count]) -> Vec<ConstraintState> {
    let mut constraints: Vec<ConstraintState> = counts.iter().map(constraint_state).collect();
    // The per-second count of all domains together comes first, like a domain's hard limit.
    if let (EVERYBODY, Some(first)) = (domain, constraints.first_mut()) {
        first.name = LimitedBy::Global.name().into_owned();
    }
    constraints
}

fn statement(live: &LiveDenial) -> (Arc<str>, Statement) {
    let statement = Statement {
        scope: match &live.domain {
            Some(domain) => Scope::Pair(domain.clone()),
            None => Scope::Resource,
        },
        position: live.position,
        kind: StatementKind::Denied(live.denial),
    };
    (Arc::clone(&live.resource), statement)
}

fn due(due: TotalDue) -> (Box<str>, Due) {
    let of = Due {
        offset: due.source_offset,
        counted: due.counted,
    };
    (due.resource, of)
}

/// The total that was applied, if the record was one and was: whose it is, and its source offset.
fn applied(fates: &[Fate], totals: &Totals<'_>) -> Option<(TotalsKey, u64)> {
    // Whatever the limits make of it.
    let is_applied = |fate: &Fate| {
        matches!(
            fate,
            Fate::Applied | Fate::TotalUnlimited | Fate::TotalAtCap
        )
    };
    let found = fates.iter().any(is_applied);
    found.then(|| (TotalsKey::of(totals), totals.source_offset))
}

/// Entries of hits and operations on holds.
fn entries(rulings: &Rulings) -> u64 {
    let hits = rulings.counts.iter().map(|of| of.counts.entries);
    let holds = rulings.hold_counts.iter().map(|of| of.counts.ops);
    hits.chain(holds).sum()
}

fn count_copies(rulings: &Rulings, counters: &mut Counters) {
    for of in &rulings.hold_counts {
        let counts = &of.counts;
        counters.hold_ops += counts.ops;
        counters.hold_ops_refused += counts.refused_ops;
        counters.copies_taken += counts.taken;
        counters.copies_excess += counts.excess;
        counters.copies_granted += counts.granted;
        counters.copies_not_granted += counts.not_granted;
        counters.copies_released += counts.released;
        counters.copies_staged += counts.staged;
        counters.copies_seized += counts.seized;
        counters.copies_unlimited += counts.unlimited;
    }
    counters.heartbeats += rulings.copies.heartbeats;
    counters.heartbeats_wanted += rulings.copies.heartbeats_wanted;
    counters.holds_ended_by_age += rulings.copies.ended_by_age;
    counters.holds_ended_by_operator += rulings.copies.ended_by_operator;
    counters.transfers_ended_by_operator += rulings.copies.transfers_ended_by_operator;
    counters.denials_at_cap += rulings.copies.denials_at_cap;
    for news in &rulings.agents {
        match news.change {
            // An agent that holds nothing sends no heartbeats, so this is normal.
            AgentChange::Gone { copies: 0 } => counters.agents_idle += 1,
            AgentChange::Gone { copies } => {
                counters.agents_gone += 1;
                counters.copies_back += copies;
            }
            AgentChange::Returned => counters.agents_returned += 1,
            AgentChange::Over { copies } => {
                counters.epochs_over += 1;
                counters.copies_back += copies;
            }
            AgentChange::Twin => counters.agents_twin += 1,
        }
    }
}

fn count(rulings: &Rulings, counters: &mut Counters) {
    count_copies(rulings, counters);
    for of in &rulings.counts {
        let counts = &of.counts;
        counters.entries += counts.entries;
        counters.granted += counts.granted;
        counters.excess += counts.excess;
        counters.late += counts.late;
        counters.unconfigured += counts.unconfigured;
        counters.not_ruled += counts.too_old + counts.at_cap + counts.misrouted;
        counters.pairs_at_cap += counts.at_cap;
        counters.refused_calls += counts.refused_calls;
        counters.refused_copies += counts.refused_copies;
    }
    for of in &rulings.global_counts {
        counters.global_excess += of.counts.excess;
    }
    counters.epochs_given_up += rulings.epochs_given_up;
    counters.pairs_evicted += rulings.evicted;
    counters.corrections += rulings.corrections.len() as u64;
    for fate in &rulings.fates {
        match fate {
            Fate::Duplicate { entries } => counters.duplicates += u64::from(*entries),
            Fate::OlderThanWindow { entries } | Fate::TooManyAgents { entries } => {
                counters.not_ruled += u64::from(*entries);
            }
            Fate::Overtaken { entries } | Fate::EpochOver { entries } => {
                counters.out_of_turn += u64::from(*entries);
            }
            Fate::OfAnotherLog => counters.foreign += 1,
            Fate::TotalOutOfOrder => counters.totals_out_of_order += 1,
            _ => {}
        }
    }
}
