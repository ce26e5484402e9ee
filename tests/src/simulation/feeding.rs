//! Converts records of the log into inputs of the independent model.
//!
//! Knows nothing of the model's answers.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tollgate_limits::versions::{LimitsBook, Made};
use tollgate_model as model;
use tollgate_model::log::{HitEntry, HitsRecord, LogInput, Total};
use tollgate_replay::model_check::{act_to_model, kind_to_model, part_to_model};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::wire::hits::{HitBatch, Sender};
use tollgate_shared::wire::record::Totals;

use super::copy_limits::COPIES;
use super::coverage::Coverage;
use super::watch::Kept;

pub(super) fn feed_hits(
    model: &mut model::PartitionModel,
    offset: u64,
    kept: &Kept,
    batch: &HitBatch<'_>,
) -> model::log::RecordOutcome {
    let entries = batch
        .hits()
        .iter()
        .map(|hit| HitEntry {
            resource: batch.resource(hit.resource),
            domain: hit.domain,
            at_us: hit.at.as_micros(),
            n: hit.total(),
            kind: kind_to_model(hit.kind),
            unguarded: hit.unguarded,
        })
        .collect();
    feed_entries(model, offset, kept, &batch.sender, entries)
}

/// Feeds a record of an agent without hits.
pub(super) fn feed_sender(
    model: &mut model::PartitionModel,
    offset: u64,
    kept: &Kept,
    sender: &Sender<'_>,
) -> model::log::RecordOutcome {
    feed_entries(model, offset, kept, sender, Vec::new())
}

fn feed_entries(
    model: &mut model::PartitionModel,
    offset: u64,
    kept: &Kept,
    sender: &Sender<'_>,
    entries: Vec<HitEntry<'_>>,
) -> model::log::RecordOutcome {
    model.apply(&LogInput::Hits(HitsRecord {
        offset,
        appended_us: kept.appended.as_micros(),
        agent: sender.agent,
        epoch: sender.epoch,
        seq: sender.sequence,
        sent_us: sender.sent.as_micros(),
        entries,
    }))
}

pub(super) fn feed_totals(
    model: &mut model::PartitionModel,
    offset: u64,
    totals: &Totals<'_>,
) -> model::log::RecordOutcome {
    let total = Total {
        resource: totals.resource,
        source_partition: totals.source_partition,
        source_offset: totals.source_offset,
        parts: totals.counted().map(part_to_model).collect(),
    };
    model.apply(&LogInput::Totals {
        offset,
        totals: vec![total],
    })
}

/// Versions that limits activations may bring, by number: limits, and operators' acts.
pub(super) struct Brought<'a> {
    pub limits: &'a BTreeMap<u64, model::Limits>,
    pub made: &'a BTreeMap<u64, Arc<Made>>,
    pub book: &'a LimitsBook,
}

/// Feeds a limits activation, with the versions up to its own, in order.
pub(super) fn feed_pointer(
    model: &mut model::PartitionModel,
    (offset, kept): (u64, &Kept),
    version: u64,
    brought: &Brought<'_>,
    (partition, partitions): (u32, u32),
    cover: &mut Coverage,
) -> model::log::RecordOutcome {
    let appended_us = kept.appended.as_micros();
    let mut outcome = model::log::RecordOutcome::default();
    let mut known = model.version().unwrap_or(0);
    while known < version {
        let up_to = |end: u64| (Bound::Excluded(known), Bound::Included(end));
        let mut acts = brought.made.range(up_to(version));
        let act = acts.find(|(_, made)| !made.act.is_limits());
        // All limits up to the next act are applied at once, as if there were no acts.
        let limits = brought
            .limits
            .range(up_to(act.map_or(version, |(at, _)| *at)));
        let versions: Vec<_> = limits.map(|(at, limits)| (*at, limits.clone())).collect();
        if !versions.is_empty() {
            let changes = model.apply(&LogInput::Limits {
                offset,
                appended_us,
                versions,
            });
            for change in &changes.changes {
                cover.see(match change.denied {
                    None => "denial lifted by a version",
                    Some(_) => "denial ruled anew by a version",
                });
            }
            outcome.changes.extend(changes.changes);
        }
        known = version;
        if let Some((at, made)) = act {
            let limits = brought.book.get(*at).map(|version| &version.limits);
            // This model does not cover copies.
            let wanted = |resource: &str, domain: &str| {
                !COPIES.contains(&resource)
                    && partition_of_pair(resource, domain, partitions) == partition
            };
            let changes = model.apply(&LogInput::Amendment {
                offset,
                appended_us,
                version: *at,
                act: act_to_model(&made.act, limits, &wanted),
            });
            for change in &changes.changes {
                cover.see(match change.denied.map(|denial| denial.cause) {
                    None => "denial lifted by an act",
                    Some(model::Cause::Banned) => "denial by ban",
                    Some(_) => "denial ruled anew by an act",
                });
            }
            outcome.changes.extend(changes.changes);
            known = *at;
        }
    }
    outcome
}
