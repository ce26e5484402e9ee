//! Converts records of the log into inputs of the independent model.
//!
//! Knows nothing of the model's answers.

use std::ops::Bound;

use tollgate_model as model;
use tollgate_model::log::{HitEntry, HitsRecord, LogInput};
use tollgate_replay::model_check::{act_to_model, entry_to_model, total_to_model};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::wire::hits::{HitBatch, Sender};
use tollgate_shared::wire::record::Totals;

use super::copy_limits::COPIES;
use super::watch::{Kept, Watch};

pub(super) fn feed_hits(
    model: &mut model::PartitionModel,
    offset: u64,
    kept: &Kept,
    batch: &HitBatch<'_>,
) -> model::log::RecordOutcome {
    let entries = batch.hits().iter().map(|hit| entry_to_model(batch, hit));
    feed_entries(model, (offset, kept), &batch.sender, entries.collect())
}

/// Feeds a record of an agent, with its hits if it has any.
pub(super) fn feed_entries(
    model: &mut model::PartitionModel,
    (offset, kept): (u64, &Kept),
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
    let totals = vec![total_to_model(totals)];
    model.apply(&LogInput::Totals { offset, totals })
}

impl Watch {
    /// Feeds a limits activation, with the versions up to its own, in order.
    pub(super) fn feed_activation(
        &mut self,
        partition: u32,
        (offset, appended_us): (u64, u64),
        version: u64,
    ) -> model::log::RecordOutcome {
        let (model, cover) = (&mut self.ruled[partition as usize].model, &mut self.cover);
        let mut outcome = model::log::RecordOutcome::default();
        let mut known = model.version().unwrap_or(0);
        while known < version {
            let up_to = |end: u64| (Bound::Excluded(known), Bound::Included(end));
            let mut acts = self.made.range(up_to(version));
            let act = acts.find(|(_, made)| !made.act.is_limits());
            // All limits up to the next act are applied at once, as if there were no acts.
            let limits = self.limits.range(up_to(act.map_or(version, |(at, _)| *at)));
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
                let limits = self.book.get(*at).map(|version| &version.limits);
                // This model does not cover copies.
                let wanted = |resource: &str, domain: &str| {
                    !COPIES.contains(&resource)
                        && partition_of_pair(resource, domain, self.partitions) == partition
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
}
