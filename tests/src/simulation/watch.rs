//! The log as it is, ruled beside the owners: by a second engine, and by the independent model.
//!
//! What stands in the log is told to the watch the moment it stands there. Each record is ruled by an
//! engine that never crashes and by the slow model, and both must say the same; what owners say later is
//! held against that. Laws 3, 4 and 5 are checked here as far as the log shows them.
//!
//! Knows nothing of agents' insides and owners' insides. What stays true: a place once given is never
//! given to another record, unless a power cut took it and a new generation has begun.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tollgate::core::limits_book::{Entered, LimitsBook, Made};
use tollgate::judge::to_model;
use tollgate::log::{Delivered, Stream};
use tollgate_engine::engine::{Engine, Fate, Rulings, Said};
use tollgate_model as model;
use tollgate_model::log::LogInput;
use tollgate_shared::place::{LogId, Place};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::record::{Record, kind};
use tollgate_shared::wire::verdict::Verdict;

use super::accounts::Accounts;
use super::compare;
use super::copy_limits::COPIES;
use super::coverage::Coverage;
use super::feeding::{Brought, feed_hits, feed_pointer, feed_sender, feed_totals};
use super::fullness::{AllSizes, Sums, Words, sizes_of};
use super::held::{EndedHolds, Stated};
use super::operators::counter_of;
use super::silence::Silences;
use super::trace::Violation;

/// A record of the log.
#[derive(Clone, Debug)]
pub struct Kept {
    /// When the log says that it took it.
    pub appended: Timestamp,
    /// When that truly was.
    pub at_us: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

/// A partition of hits, ruled.
pub struct Ruled {
    /// Its number.
    pub index: u32,
    /// Rules it as owners should.
    pub engine: Engine,
    /// Rules it independently.
    pub model: model::PartitionModel,
    /// What the engine said, by place.
    pub said: BTreeMap<(u64, u32), Vec<Said>>,
    /// The engine's digest after each record.
    pub digests: Vec<u128>,
    /// The versions in force after each record.
    pub versions: Vec<u64>,
    /// Ticks: true time, and the log's.
    pub ticks: Vec<(u64, u64)>,
    /// The same of each record.
    pub taken: Vec<(u64, u64)>,
    /// The log's identity.
    pub log: Option<LogId>,
    /// Where each of its generations begins.
    pub generations: Vec<(u64, u32)>,
    /// What was said about scopes of copies.
    pub stated: Stated,
    /// What was said to agents about their holds, by place.
    pub verdicts: BTreeMap<Place, Vec<Verdict>>,
    /// What was said last about scopes of copies.
    pub(super) words: Words,
    /// Copies of each resource by scope, as they were added up last.
    pub(super) sums: BTreeMap<Arc<str>, Sums>,
    /// Holds that operators ended.
    pub(super) ended: EndedHolds,
    /// Copies that a hold has, at the most that was ever said: by resource, epoch and number.
    pub(super) granted: BTreeMap<(Box<str>, u128, u64), u32>,
    /// Reserves that were granted nothing: their numbers, by resource and epoch.
    pub(super) not_granted: BTreeMap<(Box<str>, u128), BTreeSet<u64>>,
    /// Transfers that are staged.
    pub(super) staged: u64,
    /// Who was heard when, in counted ticks.
    pub(super) silences: Silences,
    /// Statements that one record has caused, at most.
    pub(super) most_said: usize,
    pub(super) rulings: Rulings,
    times: compare::Times,
}

/// A total: its resource, and the record that asked for it.
pub(super) type TotalName = (Box<str>, u32, u64);

/// The watch.
pub struct Watch {
    pub(super) partitions: u32,
    /// Records by stream and partition. Offsets count from 0.
    pub records: BTreeMap<(Stream, u32), Vec<Kept>>,
    /// The partitions as they are now.
    pub ruled: Vec<Ruled>,
    /// Partitions of generations that a power cut ended.
    pub past: Vec<Ruled>,
    /// Who sent what.
    pub accounts: Accounts,
    /// What was met.
    pub cover: Coverage,
    /// Totals that records asked for and that have not been applied, with true time.
    pub(super) totals_due: BTreeMap<TotalName, u64>,
    /// Resources of copies whose denials some version ignored, by a switch or as the document says.
    pub(super) ever_ignored: BTreeSet<&'static str>,
    /// Partitions whose next record has to be the identity of a new generation.
    pub unbegun: BTreeSet<(Stream, u32)>,
    /// Statements that the `denials` stream should have, and has.
    pub(super) announced: Vec<BTreeSet<Vec<u8>>>,
    book: LimitsBook,
    pub(super) limits: BTreeMap<u64, model::Limits>,
    /// What operators did by hand, by version.
    pub(super) made: BTreeMap<u64, Arc<Made>>,
    texts: Vec<String>,
    /// Limits of copies, by version.
    pub(super) sizes: BTreeMap<u64, AllSizes>,
    /// Those of versions that the log has lost.
    pub(super) lost_sizes: Vec<AllSizes>,
}

impl Ruled {
    fn new(index: u32, partitions: u32) -> Self {
        Self {
            index,
            engine: Engine::new(index, partitions),
            model: model::PartitionModel::new(),
            said: BTreeMap::new(),
            digests: Vec::new(),
            versions: Vec::new(),
            ticks: Vec::new(),
            taken: Vec::new(),
            log: None,
            generations: Vec::new(),
            stated: Stated::new(),
            verdicts: BTreeMap::new(),
            words: Words::new(),
            sums: BTreeMap::new(),
            ended: EndedHolds::new(),
            granted: BTreeMap::new(),
            not_granted: BTreeMap::new(),
            staged: 0,
            silences: Silences::default(),
            most_said: 0,
            rulings: Rulings::new(),
            times: compare::Times::default(),
        }
    }
}

impl Ruled {
    /// The generation that a record belongs to.
    pub fn generation_of(&self, offset: u64) -> u32 {
        let known = self
            .generations
            .partition_point(|(from, _)| *from <= offset);
        known.checked_sub(1).map_or(0, |at| self.generations[at].1)
    }
}

impl Watch {
    /// A watch over a log without records.
    pub fn new(partitions: u32) -> Self {
        Self {
            partitions,
            records: BTreeMap::new(),
            ruled: (0..partitions).map(|p| Ruled::new(p, partitions)).collect(),
            past: Vec::new(),
            accounts: Accounts::default(),
            cover: Coverage::default(),
            totals_due: BTreeMap::new(),
            ever_ignored: BTreeSet::new(),
            unbegun: BTreeSet::new(),
            announced: vec![BTreeSet::new(); partitions as usize],
            book: LimitsBook::default(),
            limits: BTreeMap::new(),
            made: BTreeMap::new(),
            texts: Vec::new(),
            sizes: BTreeMap::new(),
            lost_sizes: Vec::new(),
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

    /// The text of the newest limits version.
    pub fn latest_text(&self) -> Option<&str> {
        self.book.latest().map(|version| &*version.text)
    }

    /// A record stands in the log, or is found there again.
    ///
    /// # Errors
    ///
    /// What it violates.
    pub fn take(
        &mut self,
        stream: Stream,
        partition: u32,
        offset: u64,
        kept: Kept,
    ) -> Result<(), Violation> {
        let at_us = kept.at_us;
        let violation = |check: &'static str, what| {
            Err(Violation {
                law: 5,
                at_us,
                check: check.into(),
                what,
            })
        };
        let records = self.records.entry((stream, partition)).or_default();
        let next = records.len() as u64;
        if let Some(known) = records.get(offset as usize) {
            if known.bytes != kept.bytes || known.appended != kept.appended {
                return violation(
                    "a place is given once",
                    format!(
                        "{stream:?} {partition}: offset {offset} has another record than before"
                    ),
                );
            }
            return Ok(());
        }
        if offset != next {
            return violation(
                "offsets rise by one",
                format!("{stream:?} {partition}: offset {offset}, expected {next}"),
            );
        }
        if records
            .last()
            .is_some_and(|last| kept.appended < last.appended)
        {
            return violation(
                "append times never decrease",
                format!("{stream:?} {partition}: offset {offset}"),
            );
        }
        if self.unbegun.remove(&(stream, partition)) && kept.bytes.get(1) != Some(&kind::GENESIS) {
            return violation(
                "a generation begins with its identity",
                format!("{stream:?} {partition}: offset {offset} has another record"),
            );
        }
        records.push(kept.clone());
        match stream {
            Stream::Hits => self.rule(partition, offset, &kept),
            Stream::Limits => {
                self.enter(offset, &kept);
                Ok(())
            }
            Stream::Denials => self.announcement(partition, &kept),
        }
    }

    fn enter(&mut self, offset: u64, kept: &Kept) {
        if kept.bytes.get(1) == Some(&kind::GENESIS) {
            return;
        }
        let record = Delivered {
            offset,
            appended: kept.appended,
            bytes: kept.bytes.clone(),
        };
        let is_act = kept.bytes.get(1) == Some(&amendment::KIND);
        match self.book.read(&record) {
            Ok(Some(Entered::Version { version, .. })) => {
                // Agents may know of it before any partition is ruled by it.
                self.sizes.insert(version.number, sizes_of(&version.text));
                let ignored = |name: &&str| version.limits.namespace_of(name).ignore_configured;
                let ignored = COPIES.into_iter().filter(ignored);
                self.ever_ignored.extend(ignored);
                match &version.made {
                    Some(made) => {
                        self.cover.see(counter_of(&made.act));
                        if made.act.is_limits() {
                            self.limits
                                .insert(version.number, to_model(&version.limits));
                        }
                        self.made.insert(version.number, Arc::clone(made));
                    }
                    None => {
                        self.limits
                            .insert(version.number, to_model(&version.limits));
                        let is_first = self.texts.is_empty();
                        if self.texts.contains(&version.text.to_string()) {
                            self.cover.see("limits rolled back");
                        } else {
                            self.texts.push(version.text.to_string());
                        }
                        self.cover.see_if("limits pushed", !is_first);
                    }
                }
            }
            Ok(Some(Entered::Void { .. })) => self.cover.see(match is_act {
                true => "act lost the race",
                false => "limits push lost the race",
            }),
            Ok(_) | Err(_) => {}
        }
    }

    /// A record of `denials` says what the second engine says at that place.
    fn announcement(&mut self, partition: u32, kept: &Kept) -> Result<(), Violation> {
        if kept.bytes.get(1) == Some(&kind::GENESIS) {
            return Ok(());
        }
        let violation = |what| {
            Err(Violation {
                law: 4,
                at_us: kept.at_us,
                check: "evidence is what a second engine says".into(),
                what,
            })
        };
        let Ok(announced) = Announced::decode(&kept.bytes) else {
            return violation("a record of `denials` cannot be read".to_owned());
        };
        if !self.says(
            announced.partition,
            &announced.resource,
            &announced.statement,
        ) {
            return violation(format!("partition {partition}: {announced:?}"));
        }
        self.announced[partition as usize].insert(kept.bytes.to_vec());
        Ok(())
    }

    fn rule(&mut self, partition: u32, offset: u64, kept: &Kept) -> Result<(), Violation> {
        let at_us = kept.at_us;
        let ruled = &mut self.ruled[partition as usize];
        let record = Record::decode(&kept.bytes).map_err(|error| Violation {
            law: 4,
            at_us,
            check: "what is appended can be read".into(),
            what: format!("partition {partition}, offset {offset}: {error}"),
        })?;
        let pairs_before = ruled.engine.pairs();
        ruled.rulings.clear();
        ruled.engine.apply(
            offset,
            kept.appended,
            &record,
            &self.book,
            &mut ruled.rulings,
        );
        ruled.taken.push((at_us, kept.appended.as_micros()));
        ruled.log = ruled.engine.log();
        if let Some(log) = ruled.log
            && ruled
                .generations
                .last()
                .is_none_or(|(_, last)| *last < log.generation)
        {
            ruled.generations.push((offset, log.generation));
        }
        ruled.digests.push(ruled.engine.digest());
        ruled.versions.push(ruled.engine.version().unwrap_or(0));
        let outcome = match &record {
            Record::Hits(batch) => Some(feed_hits(&mut ruled.model, offset, kept, batch)),
            Record::Tick(_) => {
                ruled.ticks.push((at_us, kept.appended.as_micros()));
                let of_another = ruled.rulings.fates.contains(&Fate::OfAnotherLog);
                (!of_another).then(|| {
                    ruled.model.apply(&LogInput::Tick {
                        offset,
                        appended_us: kept.appended.as_micros(),
                    })
                })
            }
            Record::Totals(totals) => Some(feed_totals(&mut ruled.model, offset, totals)),
            Record::Pointer(pointer) => {
                let brought = Brought {
                    limits: &self.limits,
                    made: &self.made,
                    book: &self.book,
                };
                let at = (partition, self.partitions);
                let (model, cover) = (&mut ruled.model, &mut self.cover);
                Some(feed_pointer(
                    model,
                    (offset, kept),
                    pointer.version,
                    &brought,
                    at,
                    cover,
                ))
            }
            // The model knows nothing of copies, but their records count among their agent's.
            Record::Holds(batch) => {
                Some(feed_sender(&mut ruled.model, offset, kept, &batch.sender))
            }
            Record::Beat(beat) => Some(feed_sender(&mut ruled.model, offset, kept, &beat.sender)),
            Record::Genesis(_) | Record::Testimony(_) | Record::Unknown { .. } => None,
        };
        if let Some(stop) = ruled.rulings.stopped() {
            return Err(Violation {
                law: 4,
                at_us,
                check: "the second engine goes on".into(),
                what: format!("partition {partition}: {stop}"),
            });
        }
        if let Some(outcome) = &outcome {
            compare::rulings(&record, &ruled.rulings, outcome).map_err(|what| Violation {
                law: 3,
                at_us,
                check: "engine and model say the same".into(),
                what: format!("partition {partition}, offset {offset}: {what}"),
            })?;
            compare::pairs(&ruled.engine, &ruled.model).map_err(|what| Violation {
                law: 3,
                at_us,
                check: "engine and model know the same pairs".into(),
                what: format!("partition {partition}, offset {offset}: {what}"),
            })?;
            compare::cover(
                &record,
                outcome,
                &ruled.rulings,
                &mut ruled.times,
                &mut self.cover,
            );
        }
        if ruled.engine.pairs() < pairs_before {
            self.cover.see("pair left");
        }
        ruled.look_at_copies(&record).map_err(|what| Violation {
            law: 6,
            at_us,
            check: "every count is the sum of its holds".into(),
            what: format!("partition {partition}, offset {offset}: {what}"),
        })?;
        if !matches!(record, Record::Hits(_))
            && let Some(version) = ruled
                .engine
                .version()
                .and_then(|number| self.book.get(number))
        {
            let sizes = self.sizes.entry(version.number);
            let sizes = sizes.or_insert_with(|| sizes_of(&version.text));
            let is_version = matches!(record, Record::Pointer(_));
            let full = ruled.check_fullness(version, sizes, is_version);
            full.map_err(|what| Violation {
                law: 6,
                at_us,
                check: "what is full is said to be, and nothing else".into(),
                what: format!("partition {partition}, offset {offset}: {what}"),
            })?;
        }
        ruled.look_at_silence(&record).map_err(|what| Violation {
            law: 6,
            at_us,
            check: "an agent is gone by counted ticks alone".into(),
            what: format!("partition {partition}, offset {offset}: {what}"),
        })?;
        self.cover_copies(partition, &record);
        self.note_totals(partition, at_us, &record, outcome.as_ref());
        let ruled = &mut self.ruled[partition as usize];
        ruled.most_said = ruled.rulings.statements.len().max(ruled.most_said);
        for said in ruled.rulings.statements.drain(..) {
            let place = said.statement.place;
            ruled
                .said
                .entry((place.offset, place.entry))
                .or_default()
                .push(said);
        }
        if let Record::Hits(batch) = &record {
            self.accounts
                .ruled(partition, batch, &ruled.rulings.fates)
                .map_err(|what| Violation {
                    law: 5,
                    at_us,
                    check: "each entry counts once".into(),
                    what: format!("partition {partition}, offset {offset}: {what}"),
                })?;
        }
        Ok(())
    }

    /// What the log has, after its machine went down: how many records of each partition are left.
    /// What was ruled beyond is void, and stays to be looked up under its generation.
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
        self.limits.clear();
        let sizes = std::mem::take(&mut self.sizes);
        self.lost_sizes.extend(sizes.into_values());
        self.texts.clear();
        self.made.clear();
        self.totals_due.clear();
        self.announced.iter_mut().for_each(BTreeSet::clear);
        let records = self.records.clone();
        let order = [Stream::Limits, Stream::Hits, Stream::Denials];
        for stream in order {
            for ((_, partition), records) in records.iter().filter(|((of, _), _)| *of == stream) {
                for (offset, kept) in records.iter().enumerate() {
                    match stream {
                        Stream::Hits => self.rule(*partition, offset as u64, kept)?,
                        Stream::Limits => self.enter(offset as u64, kept),
                        Stream::Denials => self.announcement(*partition, kept)?,
                    }
                }
            }
        }
        self.keep_ticks_shown();
        Ok(lost)
    }

    /// Owners went by ticks that a log has lost with its end, and what they told then is still believed.
    fn keep_ticks_shown(&mut self) {
        for ruled in &mut self.ruled {
            let of_it = |past: &&Ruled| past.index == ruled.index;
            let before = self.past.iter().rev().find(of_it);
            // Of a topic that was made anew nothing is left, and nothing of the one before counts.
            if let Some(before) = before.filter(|_| !ruled.taken.is_empty()) {
                ruled.ticks.extend(&before.ticks);
                ruled.ticks.sort_unstable();
                ruled.ticks.dedup();
            }
        }
    }
}
