//! The engine of one partition: records of its log go in, rulings come out.
//!
//! ```text
//! engine.needs(&record)                    which limits versions an activation brings in
//! engine.apply(offset, appended, …)        applies the record; cannot fail
//! engine.digest()                          equal for all engines that applied the same records
//! engine.snapshot() / Engine::restore(…)   the same engine elsewhere, or later
//! ```
//!
//! One file for each kind of record and each part of the state:
//!
//! ```text
//! hits  holds  heartbeats                  records of agents
//! totals  activations  ticks               records of aggregators
//! row_versions                             versions that set limits of single pairs
//! senders  crowd                           whether an agent's record is ruled, and which epochs are kept
//! rule                                     how a version rules a resource, and an entry on its pair
//! epochs  versions  denials  last_totals   state beside the pairs
//! holders  scopes                          which agents hold copies, and what is full
//! amendments  amended                      what operators do by hand, and its lasting effects
//! copy_bans  network_bans                  of these, bans on copies and on networks
//! digests                                  when aggregators state a digest of the state
//! candidates                               limits that are ruled beside the real ones
//! rulings                                  the output
//! snapshot  query  near                    reading the state
//! ```
//!
//! Knows no clock, no feed and no I/O. What stays true: everything in it is a function of the records in
//! their order.

mod activations;
mod admission;
mod amended;
mod amendments;
mod banned_scopes;
mod candidates;
mod clocks;
mod copy_bans;
mod crowd;
mod denials;
mod digests;
mod epochs;
mod heartbeats;
mod hits;
mod holders;
mod holds;
mod last_totals;
mod near;
mod network_bans;
mod query;
mod row_versions;
mod rule;
mod rulings;
mod scopes;
mod senders;
mod snapshot;
mod ticks;
mod totals;
mod versions;

use std::ops::RangeInclusive;

use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::record::Record;

use crate::pairs::{Identities, Table, mix};
use activations::RulingAgain;
use amended::Amended;
use denials::Denials;
use epochs::Epochs;
use holders::Holders;
use last_totals::LastTotals;
use versions::Steps;

pub use clocks::Clocks;
pub use denials::LiveDenial;
pub use digests::is_digest_due;
pub use epochs::CLOCK_TOLERATED;
pub use hits::TOO_OLD;
pub use near::PairNear;
pub use query::{BucketView, CopiesFault, Count, PairView};
pub use rule::event_of;
pub use rulings::{
    AgentChange, AgentNews, CandidateClosed, CandidateCounts, CopiesCounts, Correction, Counts,
    Fate, HoldCounts, NEAR_MAX, ResourceCounts, ResourceHolds, ResourceStatement, Rulings, Stop,
    TotalDue, VerdictDue,
};
pub use senders::{Clock, instant};
pub use snapshot::{CHUNK_BYTES_MAX, Frozen, SnapshotFault};
pub use versions::Versions;

/// Number of the content and form of [`Engine::digest`]. It changes with each change to them, so that two
/// builds never take a change of the digest for a difference of states.
pub const DIGEST_FORM: u32 = 6;

/// The engine of one partition.
pub struct Engine {
    partition: u32,
    partitions: u32,
    /// The log's id; `None` until a genesis or a tick states it.
    log: Option<LogId>,
    /// Keyed by the first id that the log had, for its whole life.
    identities: Identities,
    /// Whether the log was read from its first record on.
    began: bool,
    /// The offset of the last applied record.
    applied_upto: Option<u64>,
    /// The mark of the last applied record: see [`Engine::set_mark`].
    mark: Option<u128>,
    /// Whether records were missing in the log when it was read: see [`Engine::set_lacks_records`].
    lacks_records: bool,
    /// The append time of the last counted tick.
    log_time: Option<Timestamp>,
    steps: Steps,
    table: Table,
    /// The pairs of resources with a candidate, under the candidate.
    candidates: Table,
    denials: Denials,
    amended: Amended,
    epochs: Epochs,
    holders: Holders,
    last_totals: LastTotals,
    /// Set while the versions of an activation are not wholly in force yet.
    ruling_again: Option<RulingAgain>,
    stopped: Option<Stop>,
}

impl Engine {
    /// The engine of a partition whose log is read from its beginning.
    pub fn new(partition: u32, partitions: u32) -> Self {
        Self {
            partition,
            partitions,
            log: None,
            identities: Identities::new(LogId::default()),
            began: false,
            applied_upto: None,
            mark: None,
            lacks_records: false,
            log_time: None,
            steps: Steps::new(),
            table: Table::new(),
            candidates: Table::new(),
            denials: Denials::default(),
            amended: Amended::default(),
            epochs: Epochs::default(),
            holders: Holders::default(),
            last_totals: LastTotals::default(),
            ruling_again: None,
            stopped: None,
        }
    }

    /// Which versions a record brings in. The caller must have those of them that exist at hand when it
    /// applies the record.
    pub fn needs(&self, record: &Record<'_>) -> Option<RangeInclusive<u64>> {
        match record {
            Record::LimitsActivation(activation) => self.steps.needs(activation.version),
            _ => None,
        }
    }

    /// Applies the next record of the log, which was appended at `appended`, and adds the results to
    /// `rulings`: exactly one fate, and all statements, verdicts and counts.
    ///
    /// A record whose offset was applied before does nothing. An engine that has stopped applies nothing
    /// any more.
    pub fn apply(
        &mut self,
        offset: u64,
        appended: Timestamp,
        record: &Record<'_>,
        versions: &dyn Versions,
        rulings: &mut Rulings,
    ) {
        self.begin(offset, appended, record, versions, rulings);
        while self.go_on(rulings) {}
    }

    /// Begins to apply the next record, for a caller that must not pause for long. The same as
    /// [`Engine::apply`], except for the slices of an activation, which [`Engine::go_on`] applies.
    /// Completes an earlier record first.
    pub fn begin(
        &mut self,
        offset: u64,
        appended: Timestamp,
        record: &Record<'_>,
        versions: &dyn Versions,
        rulings: &mut Rulings,
    ) {
        while self.go_on(rulings) {}
        if let Some(stop) = self.stopped {
            return rulings.fates.push(Fate::Stopped(stop));
        }
        if self.applied_upto.is_some_and(|upto| offset <= upto) {
            return rulings.fates.push(Fate::AlreadyApplied);
        }
        // Agents that write to the log directly may do so before the first aggregator states its identity.
        if offset == 0 && self.applied_upto.is_none() {
            self.began = true;
        }
        let from = rulings.statements.len();
        let fate = match record {
            Record::Genesis(log) => self.genesis(offset, *log, rulings),
            Record::Hits(batch) => self.hits(offset, appended, batch, rulings),
            Record::Tick(tick) => self.tick(offset, appended, tick, rulings),
            Record::Totals(totals) => self.totals(offset, totals, rulings),
            Record::LimitsActivation(activation) => {
                self.activate(offset, appended, activation, versions)
            }
            Record::Holds(batch) => self.holds(offset, appended, batch, rulings),
            Record::Heartbeat(heartbeat) => self.heartbeat(offset, appended, heartbeat, rulings),
            // Does not change the state: aggregators compare their state digests.
            Record::StateDigest(_) => Fate::Applied,
            Record::Unknown { kind, skippable } => match skippable {
                true => Fate::UnknownSkipped { kind: *kind },
                false => Fate::Stopped(Stop::UnknownKind {
                    kind: *kind,
                    offset,
                }),
            },
        };
        match fate {
            // Not applied, so that another build may go on from here.
            Fate::Stopped(stop) => self.stopped = Some(stop),
            _ => {
                self.applied_upto = Some(offset);
                self.mark = None;
            }
        }
        self.keep_banned(from, rulings);
        rulings.fates.push(fate);
    }

    /// Applies the next slice of the record that was begun last, in less than a millisecond or so, and adds
    /// the results to `rulings`. Returns whether there are more slices. Until there are no more, the
    /// engine's state is incomplete: it has no digest and no snapshot.
    pub fn go_on(&mut self, rulings: &mut Rulings) -> bool {
        let from = rulings.statements.len();
        self.rule_slice_again(rulings);
        self.keep_banned(from, rulings);
        self.has_more()
    }

    /// Whether a record was begun and [`Engine::go_on`] has more slices to apply.
    pub fn has_more(&self) -> bool {
        self.ruling_again.is_some()
    }

    /// Sets a mark by which the last applied record can be recognised. Snapshots keep it, so that the
    /// caller of a restored engine can check whether the log still has that record: an offset alone could
    /// belong to another record, in a log that lost its end and went on. Not part of the state.
    pub fn set_mark(&mut self, mark: u128) {
        self.mark = Some(mark);
    }

    /// The mark of the last applied record; `None` if the caller set none.
    pub fn mark(&self) -> Option<u128> {
        self.mark
    }

    /// Sets whether the log lacked records that an engine beside this one may have applied. Snapshots keep it, so that
    /// no restored state is compared with that engine's. Not part of the state.
    pub fn set_lacks_records(&mut self, lacks_records: bool) {
        self.lacks_records = lacks_records;
    }

    /// Whether the log lacked records.
    pub fn lacks_records(&self) -> bool {
        self.lacks_records
    }

    /// A digest of the state, which depends on the log alone: equal for all engines that applied the same
    /// records, whether or not they were restored from snapshots. Ticks enter it as differences: an engine whose log
    /// lacked records counted fewer of them, and has the digest of the others again once nothing in their states
    /// comes from those records.
    pub fn digest(&self) -> u128 {
        debug_assert!(!self.has_more(), "a digest in the middle of a record");
        let wide = |digest: u128, part: u128| mix(mix(digest, part as u64), (part >> 64) as u64);
        let log = self.log.unwrap_or_default();
        let mut digest = mix(u128::from(log.random), u64::from(log.generation));
        digest = mix(digest, self.identities.key().random);
        digest = mix(digest, self.log_time.map_or(u64::MAX, Timestamp::as_micros));
        digest = mix(digest, self.steps.newest().version);
        digest = mix(digest, u64::from(self.steps.newest().ordinal));
        digest = mix(digest, self.steps.version().unwrap_or(0));
        digest = wide(digest, self.amended.digest());
        digest = mix(digest, self.table.alive().count());
        digest = wide(digest, self.table.alive().digest());
        digest = mix(digest, self.table.alive().room_age());
        digest = mix(digest, self.candidates.alive().count());
        digest = wide(digest, self.candidates.alive().digest());
        digest = mix(digest, self.candidates.alive().room_age());
        digest = wide(digest, self.epochs.digest());
        digest = wide(digest, self.holders.digest(&self.identities));
        wide(digest, self.last_totals.digest())
    }
}
