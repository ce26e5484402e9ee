//! Converts records of the log into inputs of the independent model.
//!
//! Knows nothing of the model's answers.

use tollgate_model as model;
use tollgate_model::log::{HitEntry, HitsRecord, LogInput};
use tollgate_replay::model_check::act_to_model;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::wire::hits::Sender;

use super::copy_limits::COPIES;
use super::watch::{Kept, Watch};

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
        // This model does not cover copies.
        let wanted = |resource: &str, domain: &str| {
            !COPIES.contains(&resource)
                && partition_of_pair(resource, domain, self.partitions) == partition
        };
        for version in model.version().unwrap_or(0) + 1..=version {
            let made = self.made.get(&version).map(|made| &*made.act);
            let act = made.filter(|act| !act.is_limits());
            let input = match (act, self.limits.get(&version)) {
                (Some(act), _) => {
                    let limits = self.book.get(version).map(|version| &version.limits);
                    LogInput::Amendment {
                        offset,
                        appended_us,
                        version,
                        act: act_to_model(act, limits, &wanted),
                    }
                }
                (None, Some(limits)) => LogInput::Limits {
                    offset,
                    appended_us,
                    versions: vec![(version, limits.clone())],
                },
                // A record that lost the race for a version.
                (None, None) => continue,
            };
            let changes = model.apply(&input).changes;
            for change in &changes {
                let cause = change.denied.map(|denial| denial.cause);
                cover.see(match (act, cause) {
                    (None, None) => "denial lifted by a version",
                    (None, Some(_)) => "denial ruled anew by a version",
                    (Some(_), None) => "denial lifted by an act",
                    (Some(_), Some(model::Cause::Banned)) => "denial by ban",
                    (Some(_), Some(_)) => "denial ruled anew by an act",
                });
            }
            outcome.changes.extend(changes);
        }
        outcome
    }
}
