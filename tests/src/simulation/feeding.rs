//! Records of the log, as the independent model takes them.
//!
//! Knows nothing of what the model says of them.

use tollgate_model as model;
use tollgate_model::log::{HitEntry, HitsRecord, LogInput, Total};
use tollgate_shared::wire::hits::{HitBatch, Sender};
use tollgate_shared::wire::record::Totals;

use super::watch::Kept;

pub(super) fn feed_hits(
    model: &mut model::PartitionModel,
    offset: u64,
    kept: &Kept,
    batch: &HitBatch<'_>,
) -> model::log::RecordOutcome {
    let entries = batch
        .hits()
        .map(|hit| HitEntry {
            resource: batch.resource(hit.resource),
            domain: hit.domain,
            at_us: hit.at.as_micros(),
            n: u64::from(hit.copies),
            min: hit.min.map(u64::from),
        })
        .collect();
    feed_entries(model, offset, kept, &batch.sender, entries)
}

/// A record of an agent without hits.
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
    let granted = totals.granted();
    let total = Total {
        resource: totals.resource,
        source_partition: totals.source_partition,
        source_offset: totals.source_offset,
        previous_offset: totals.previous,
        granted_by_ms: granted
            .map(|(at, n)| (at.as_millis(), u64::from(n)))
            .collect(),
    };
    model.apply(&LogInput::Totals {
        offset,
        totals: vec![total],
    })
}
