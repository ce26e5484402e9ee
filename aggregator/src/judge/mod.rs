//! The bridge from the log's records to the independent model: what was denied, and was it right?
//!
//! Decodes records and limits and hands them to the model under its own names; rules nothing itself.
//! Used by the demonstration and by audits. What stays true: the model is fed in log order, partition
//! by partition, and neither the engine nor anything it said takes part.

mod limits;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tollgate_engine::limits::Limits;
use tollgate_model::log::{
    EntryRuling, HitEntry, HitsRecord, LogInput, Place, Scope, Statement, Total, TotalRuling,
};
use tollgate_model::{PartitionModel, log::RecordOutcome};
use tollgate_shared::mac::MacKey;
use tollgate_shared::place::Code;
use tollgate_shared::wire::record::{Record, authentic};

use crate::log::Delivered;
pub use limits::to_model;

/// Limits versions by number, as they stand in the log.
pub type Versions = BTreeMap<u64, Arc<Limits>>;

/// What the model said of one hits record, and who sent it.
#[derive(Debug)]
pub struct RuledBatch<'a> {
    /// The record's partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// The agent's name.
    pub agent: &'a str,
    /// Its entries with their rulings, in order.
    pub entries: Vec<(HitEntry<'a>, EntryRuling)>,
    /// The statements that it caused.
    pub statements: Vec<(Scope, Statement)>,
}

/// Records that the model never saw, because nobody could.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Records that cannot be decoded.
    pub undecodable: u64,
    /// Records that only aggregators may write, without their tag.
    pub forged: u64,
}

/// The model of every partition.
#[derive(Debug)]
pub struct Judge {
    partitions: Vec<PartitionModel>,
    key: MacKey,
    unseen: Unseen,
    global_excess: Vec<(u64, u64)>,
}

impl Judge {
    /// Judges a log of so many partitions, whose owners sign with this key.
    pub fn new(partitions: u32, key: MacKey) -> Self {
        let partitions = (0..partitions).map(|_| PartitionModel::new()).collect();
        Self {
            partitions,
            key,
            unseen: Unseen::default(),
            global_excess: Vec::new(),
        }
    }

    /// Applies the next record of a partition. What it says of a hits record is given back.
    pub fn apply<'a>(
        &mut self,
        partition: u32,
        delivered: &'a Delivered,
        versions: &Versions,
    ) -> Option<RuledBatch<'a>> {
        let model = self.partitions.get_mut(partition as usize)?;
        if !authentic(&delivered.bytes, partition, &self.key) {
            self.unseen.forged += 1;
            return None;
        }
        let Ok(record) = Record::decode(&delivered.bytes) else {
            self.unseen.undecodable += 1;
            return None;
        };
        let (offset, appended_us) = (delivered.offset, delivered.appended.as_micros());
        match record {
            Record::Hits(batch) => {
                let entries: Vec<HitEntry<'a>> = batch
                    .hits()
                    .map(|hit| HitEntry {
                        resource: batch.resource(hit.resource),
                        domain: hit.domain,
                        at_us: hit.at.as_micros(),
                        n: u64::from(hit.copies),
                        min: hit.min.map(u64::from),
                    })
                    .collect();
                let sender = batch.sender;
                let input = LogInput::Hits(HitsRecord {
                    offset,
                    appended_us,
                    agent: sender.agent,
                    epoch: sender.epoch,
                    seq: sender.sequence,
                    sent_us: sender.sent.as_micros(),
                    entries: entries.clone(),
                });
                let RecordOutcome {
                    entries: rulings,
                    changes,
                    ..
                } = model.apply(&input);
                let statements = changes
                    .into_iter()
                    .map(|change| {
                        (
                            change.scope,
                            Statement {
                                place: change.place,
                                denied: change.denied,
                            },
                        )
                    })
                    .collect();
                let entries = entries.into_iter().zip(rulings).collect();
                return Some(RuledBatch {
                    partition,
                    offset,
                    agent: sender.agent,
                    entries,
                    statements,
                });
            }
            Record::Tick(_) => {
                model.apply(&LogInput::Tick {
                    offset,
                    appended_us,
                });
            }
            Record::Totals(totals) => {
                let total = Total {
                    resource: totals.resource,
                    source_partition: totals.source_partition,
                    source_offset: totals.source_offset,
                    previous_offset: totals.previous,
                    granted_by_ms: totals
                        .granted()
                        .map(|(at, n)| (at.as_millis(), u64::from(n)))
                        .collect(),
                };
                let first_us = totals.granted().next().map_or(0, |(at, _)| at.as_micros());
                let totals = vec![total];
                for ruling in model.apply(&LogInput::Totals { offset, totals }).totals {
                    if let TotalRuling::Ruled { excess, .. } = ruling {
                        self.global_excess.push((first_us, excess));
                    }
                }
            }
            Record::Pointer(pointer) => {
                let known = model.version().map_or(Bound::Unbounded, Bound::Excluded);
                let versions = if model
                    .version()
                    .is_some_and(|version| pointer.version <= version)
                {
                    Vec::new()
                } else {
                    let range = versions.range((known, Bound::Included(pointer.version)));
                    range
                        .map(|(version, limits)| (*version, to_model(limits)))
                        .collect()
                };
                model.apply(&LogInput::Limits {
                    offset,
                    appended_us,
                    versions,
                });
            }
            // The model knows rates alone: it has no opinion about copies.
            Record::Holds(_) | Record::Beat(_) => {}
            Record::Genesis(_) | Record::Unknown { .. } => {}
        }
        None
    }

    /// Whether the model denies what an agent refused at `at_us`, naming `code` as its reason: the
    /// pair, or its whole resource, denied by a statement at or before that place, with a later end.
    pub fn justifies(&self, code: Code, resource: &str, domain: &str, at_us: u64) -> bool {
        let place = Place {
            offset: code.place.offset,
            entry: code.place.entry,
        };
        self.partitions
            .get(code.partition as usize)
            .and_then(|model| model.justification(place, resource, domain, at_us))
            .is_some()
    }

    /// What the model could not be fed.
    pub const fn unseen(&self) -> Unseen {
        self.unseen
    }

    /// Hits beyond global limits, stamped before `before_us`.
    pub fn global_excess(&self, before_us: u64) -> u64 {
        let before = self
            .global_excess
            .iter()
            .filter(|(at_us, _)| *at_us < before_us);
        before.map(|(_, excess)| excess).sum()
    }
}
