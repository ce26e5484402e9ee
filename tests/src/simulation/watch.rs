//! The actual log, ruled beside the aggregators: by a second engine, and by the independent model.
//!
//! The watch gets every record at the moment at which the log accepts it. An engine that never crashes and the slow
//! model rule each record, and both must agree; the aggregators' later statements are compared with theirs. Laws 3,
//! 4 and 5 are checked here as far as the log shows them.
//!
//! Knows nothing of the internals of agents and aggregators. What stays true: an offset is never assigned to
//! another record, unless a power cut removed it and a new generation has begun.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tollgate_engine::engine::{Engine, Rulings};
use tollgate_limits::versions::{LimitsBook, Made};
use tollgate_log::Stream;
use tollgate_model as model;
use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::record::kind;
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::Verdict;

use super::accounts::Accounts;
use super::compare;
use super::coverage::Coverage;
use super::documents::Document;
use super::held::Stated;
use super::plan::Plan;
use super::trace::{Violation, hash_of};

/// A record of the log.
#[derive(Clone, Debug)]
pub struct Kept {
    pub appended: Timestamp,
    /// The true time of the append.
    pub at_us: u64,
    pub bytes: Bytes,
}

impl fmt::Display for Kept {
    /// Its kind, length and append time: enough to tell two records apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, bytes) = (self.bytes.get(1).copied(), self.bytes.len());
        let (hash, appended_us) = (hash_of(&self.bytes), self.appended.as_micros());
        write!(
            f,
            "a record of kind {kind:?}, {bytes} bytes, hash {hash:016x}, taken at {appended_us} us"
        )
    }
}

/// A partition of hits, as ruled.
pub struct Ruled {
    pub index: u32,
    /// Rules it as aggregators should.
    pub engine: Engine,
    /// Rules it independently.
    pub model: model::PartitionModel,
    /// Rules its copies independently.
    pub(super) copies: model::copies::CopiesModel,
    /// The engine's digest after each record.
    pub digests: Vec<u128>,
    /// The versions in force after each record.
    pub versions: Vec<u64>,
    /// The ticks of each aggregator's process: offset, true time, and log time.
    pub ticks: BTreeMap<u128, Vec<(u64, u64, u64)>>,
    /// True time and log time of each record.
    pub taken: Vec<(u64, u64)>,
    pub log: Option<LogId>,
    /// The first offset of each of its generations.
    pub generations: Vec<(u64, u32)>,
    /// The statements about scopes.
    pub stated: Stated,
    /// The verdicts on agents' holds, by log position.
    pub verdicts: BTreeMap<LogPosition, Vec<Verdict>>,
    /// The greatest number of statements that one record has caused.
    pub(super) statements_most: usize,
    pub(super) rulings: Rulings,
    pub(super) times: compare::Times,
}

/// A total: its resource, and the record that asked for it.
pub(super) type TotalName = (Box<str>, u32, u64);

/// The watch.
#[derive(Default)]
pub struct Watch {
    pub(super) partitions: u32,
    /// The documents that operators push.
    pub(super) documents: Vec<Document>,
    /// Records by stream and partition. Offsets count from 0.
    pub records: BTreeMap<(Stream, u32), Vec<Kept>>,
    /// The partitions in their present generation.
    pub ruled: Vec<Ruled>,
    /// Partitions of generations that a power cut ended.
    pub past: Vec<Ruled>,
    pub accounts: Accounts,
    pub cover: Coverage,
    /// Totals that records asked for and that have not been applied, with the true time of the request.
    pub(super) totals_due: BTreeMap<TotalName, u64>,
    /// Whether the log has refused an append.
    pub(super) has_refused: bool,
    /// Resources of copies whose denials some version ignored, by a switch or by the document.
    pub(super) ever_ignored: BTreeSet<&'static str>,
    /// Resources of copies that some version left out.
    pub(super) ever_left_out: BTreeSet<&'static str>,
    /// Partitions whose next record has to be the identity of a new generation.
    pub unbegun: BTreeSet<(Stream, u32)>,
    /// The statements that the `denials` stream should have, and those that it has.
    pub(super) announced: Vec<BTreeSet<(LogPosition, Box<str>, Scope)>>,
    pub(super) book: LimitsBook,
    /// The number of the newest version; 0 before the first.
    pub(super) newest_version: u64,
    pub(super) limits: BTreeMap<u64, model::Limits>,
    /// Operators' acts by hand, by version.
    pub(super) made: BTreeMap<u64, Arc<Made>>,
    pub(super) texts: Vec<String>,
    /// Limits on copies, by version.
    pub(super) copies: BTreeMap<u64, model::copies::CopiesVersion>,
    /// Limits on copies of versions that the log has lost.
    pub(super) lost_copies: Vec<model::copies::CopiesVersion>,
}

impl Ruled {
    fn new(index: u32, partitions: u32) -> Self {
        Self {
            index,
            engine: Engine::new(index, partitions),
            model: model::PartitionModel::with_effect(),
            copies: model::copies::CopiesModel::new(),
            digests: Vec::new(),
            versions: Vec::new(),
            ticks: BTreeMap::new(),
            taken: Vec::new(),
            log: None,
            generations: Vec::new(),
            stated: Stated::new(),
            verdicts: BTreeMap::new(),
            statements_most: 0,
            rulings: Rulings::new(),
            times: compare::Times::default(),
        }
    }
}

impl Watch {
    /// A watch over a log without records.
    pub fn new(plan: &Plan) -> Self {
        let partitions = plan.partitions;
        Self {
            partitions,
            documents: plan.documents.clone(),
            ruled: (0..partitions).map(|p| Ruled::new(p, partitions)).collect(),
            announced: vec![BTreeSet::new(); partitions as usize],
            ..Self::default()
        }
    }

    /// How many records a partition has.
    pub fn len(&self, stream: Stream, partition: u32) -> u64 {
        self.records
            .get(&(stream, partition))
            .map_or(0, |records| records.len() as u64)
    }

    /// A record.
    pub fn record(&self, stream: Stream, partition: u32, offset: u64) -> Option<&Kept> {
        self.records
            .get(&(stream, partition))?
            .get(usize::try_from(offset).ok()?)
    }

    /// The number of the newest limits version.
    pub fn latest_version(&self) -> u64 {
        self.book.latest_number()
    }

    /// Whether an operator ever set a switch that lets agents ignore denials.
    pub(super) fn was_ever_switched(&self) -> bool {
        let mut acts = self.made.values().map(|made| &*made.act);
        acts.any(|act| matches!(act, Act::Switch { .. }))
    }

    /// Law 8: a scope in which more was let through than a constraint and the copies of one denial
    /// delay explain, in any log so far.
    pub(super) fn without_effect(&self) -> Option<String> {
        let mut all = self.ruled.iter().chain(&self.past);
        all.find_map(|ruled| {
            let found = ruled.model.effect_violations().into_iter().next();
            found.map(|(scope, found)| format!("partition {}: {scope:?}: {found:?}", ruled.index))
        })
    }

    /// The text of the newest limits version.
    pub fn latest_text(&self) -> Option<&str> {
        self.book.latest().map(|version| &*version.text)
    }

    /// Notes a record that the log accepted, or that is found there again.
    ///
    /// # Errors
    ///
    /// The law that the record violates.
    pub fn take(
        &mut self,
        stream: Stream,
        partition: u32,
        offset: u64,
        kept: Kept,
    ) -> Result<(), Violation> {
        let violation = |check, what| Err(Violation::new(5, check, what));
        let records = self.records.entry((stream, partition)).or_default();
        let next = records.len() as u64;
        if let Some(known) = records.get(offset as usize) {
            if known.bytes != kept.bytes || known.appended != kept.appended {
                let what = format!(
                    "{stream:?} {partition}: offset {offset} has {kept}, and had {known} before"
                );
                return violation("a position is given once", what);
            }
            return Ok(());
        }
        if offset != next {
            let what = format!("{stream:?} {partition}: offset {offset}, expected {next}");
            return violation("offsets rise by one", what);
        }
        if let Some(last) = records.last()
            && kept.appended < last.appended
        {
            let what = format!("{stream:?} {partition}: offset {offset} has {kept} behind {last}");
            return violation("append times never decrease", what);
        }
        if self.unbegun.remove(&(stream, partition)) && kept.bytes.get(1) != Some(&kind::GENESIS) {
            let what = format!(
                "{stream:?} {partition}: offset {offset} has {kept}, expected kind {}",
                kind::GENESIS
            );
            return violation("a generation begins with its identity", what);
        }
        records.push(kept.clone());
        self.look_into(stream, partition, offset, &kept)
    }

    fn look_into(
        &mut self,
        stream: Stream,
        partition: u32,
        offset: u64,
        kept: &Kept,
    ) -> Result<(), Violation> {
        match stream {
            Stream::Hits => self.rule(partition, offset, kept),
            Stream::Limits => self.enter(offset, kept),
            Stream::Denials => self.announcement(partition, kept),
        }
    }

    /// Cuts the log after its machine went down to the number of records that are left of each partition. Rulings
    /// beyond are void, and can still be looked up under their generation.
    pub fn cut_to(
        &mut self,
        left: &BTreeMap<(Stream, u32), u64>,
        now_us: u64,
    ) -> Result<u64, Violation> {
        let mut lost = 0;
        for (at, records) in &mut self.records {
            let left = left.get(at).copied().unwrap_or(0) as usize;
            lost += records.len().saturating_sub(left) as u64;
            records.truncate(left);
        }
        if lost == 0 {
            return Ok(0);
        }
        self.accounts.forget_ruled(now_us);
        let fresh = (0..self.partitions).map(|p| Ruled::new(p, self.partitions));
        let old = std::mem::replace(&mut self.ruled, fresh.collect());
        self.past.extend(old);
        self.book = LimitsBook::default();
        self.newest_version = 0;
        self.limits.clear();
        let copies = std::mem::take(&mut self.copies);
        self.lost_copies.extend(copies.into_values());
        self.texts.clear();
        self.made.clear();
        self.totals_due.clear();
        self.announced.iter_mut().for_each(BTreeSet::clear);
        let records = self.records.clone();
        let order = [Stream::Limits, Stream::Hits, Stream::Denials];
        for stream in order {
            for ((_, partition), records) in records.iter().filter(|((of, _), _)| *of == stream) {
                for (offset, kept) in (0..).zip(records) {
                    self.look_into(stream, *partition, offset, kept)?;
                }
            }
        }
        Ok(lost)
    }
}
