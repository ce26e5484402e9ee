//! Converts records of the log into inputs of the model of copies.
//!
//! Limits come from the document as it was drawn; the shipped limits book tells what switches have done to a
//! namespace. Knows nothing of the model's answers. What stays true: a record that the model of rates
//! takes for a duplicate is not fed.

use std::collections::BTreeMap;

use tollgate_limits::versions::Version;
use tollgate_model::copies::{
    CopiesAct, CopiesModel, CopiesOutcome, CopiesVersion, HeartbeatRecord, HoldAct, HoldsRecord,
    LimitedCopies, ListedHold, ModelOp, ModelPart, PartHolds, SentBy,
};
use tollgate_model::log::RecordOutcome;
use tollgate_shared::holdings::Holdings;
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::heartbeat::{Heartbeat, HoldsRead, PartRead};
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::holds::{HoldAction, HoldBatch};
use tollgate_shared::wire::record::Record;

use super::copy_limits::{COPIES, CopyLimits};
use super::documents::Document;
use super::watch::{Kept, Ruled, Watch};

/// The timeout of every document here in counted ticks: two seconds.
const TIMEOUT_TICKS: u64 = 4;

/// The part of a version of one of these documents that concerns copies.
pub(super) fn copies_version(version: &Version, documents: &[Document]) -> CopiesVersion {
    let document = { documents.iter() }.find(|document| document.text() == *version.text);
    let limits = document.and_then(|document| document.copies.as_ref());
    let is_ignored = |name: &str| version.limits.namespace_of(name).ignore_configured;
    CopiesVersion {
        resources: limits
            .into_iter()
            .flat_map(CopyLimits::of_model)
            .map(|(name, limits)| {
                let is_heeded = !is_ignored(name);
                (name.to_owned(), LimitedCopies { limits, is_heeded })
            })
            .collect(),
        heeded_others: { COPIES.into_iter() }
            .filter(|name| !is_ignored(name))
            .map(str::to_owned)
            .collect(),
        refuses_others: !COPIES
            .iter()
            .all(|name| version.limits.namespace_of(name).allow_unconfigured),
        denied_max: document.map_or(usize::MAX, |document| document.pairs_max as usize),
        timeout_ticks: TIMEOUT_TICKS,
    }
}

impl Watch {
    /// Feeds a record to the model of copies. `rates` is the answer of the model of rates to it.
    pub(super) fn feed_copies(
        &mut self,
        partition: u32,
        kept: &Kept,
        record: &Record<'_>,
        rates: Option<&RecordOutcome>,
    ) -> CopiesOutcome {
        let Ruled { model, copies, .. } = &mut self.ruled[partition as usize];
        let Some(rates) = rates.filter(|rates| rates.unruled.is_none()) else {
            return CopiesOutcome::default();
        };
        let at = (kept.appended.as_micros(), rates.moved_us);
        match record {
            Record::Holds(batch) => copies.holds(&holds_of(batch, at)),
            Record::Heartbeat(heartbeat) => copies.heartbeat(&heartbeat_of(heartbeat, at)),
            Record::Tick(_) if rates.tick_counted => {
                let knows = |name: &str, epoch| model.knows_agent(name, epoch);
                copies.tick(kept.appended.as_micros(), knows)
            }
            Record::LimitsActivation(activation) => {
                let log_us = model.log_us().unwrap_or(0);
                let at_us = kept.appended.as_micros().max(log_us);
                self.feed_versions(partition, activation.version, at_us)
            }
            _ => CopiesOutcome::default(),
        }
    }

    /// Feeds the versions of a limits activation, in order.
    fn feed_versions(&mut self, partition: u32, upto: u64, at_us: u64) -> CopiesOutcome {
        let mut outcome = CopiesOutcome::default();
        let copies: &mut CopiesModel = &mut self.ruled[partition as usize].copies;
        for version in copies.version() + 1..=upto {
            let made = self.made.get(&version).map(|made| &*made.act);
            if let Some(act) = made.filter(|act| !act.is_limits()) {
                let done = copies.act(version, act_of(act).as_ref(), at_us);
                outcome.verdicts.extend(done.verdicts);
            } else if let Some(limits) = self.copies.get(&version) {
                let mut limits = limits.clone();
                let of = |name: &str| partition_of_resource(name, self.partitions);
                limits.resources.retain(|name, _| of(name) == partition);
                limits.heeded_others.retain(|name| of(name) == partition);
                copies.new_limits(version, limits, at_us);
            }
        }
        outcome
    }
}

/// When a record was appended, and by how much its stamps move, in microseconds.
type SentAt = (u64, i64);

fn sender_of<'a>(sender: &Sender<'a>, (appended_us, moved_us): SentAt) -> SentBy<'a> {
    SentBy {
        agent: sender.agent,
        epoch: sender.epoch,
        sequence: sender.sequence,
        moved_us,
        appended_us,
    }
}

fn holds_of<'a>(batch: &HoldBatch<'a>, at: SentAt) -> HoldsRecord<'a> {
    let act = |does: HoldAction<'a>| match does {
        HoldAction::Reserve {
            domain,
            copies,
            min,
        } => HoldAct::Reserve {
            domain,
            copies: copies.into(),
            min: min.into(),
        },
        HoldAction::Hold { domain, copies } => HoldAct::Hold {
            domain,
            copies: copies.into(),
        },
        HoldAction::Release { copies } => HoldAct::Release {
            copies: copies.into(),
        },
        HoldAction::Transfer { copies, to, ttl } => HoldAct::Transfer {
            copies: copies.into(),
            to: to.0,
            ttl_us: ttl.as_micros(),
        },
        HoldAction::Seize { from } => HoldAct::Seize { from: from.0 },
        HoldAction::Cancel => HoldAct::Cancel,
    };
    HoldsRecord {
        sender: sender_of(&batch.sender, at),
        ops: batch
            .ops()
            .map(|op| ModelOp {
                resource: batch.resource(op.resource),
                number: op.number,
                at_us: op.at.as_micros(),
                act: act(op.action),
            })
            .collect(),
    }
}

fn heartbeat_of<'a>(heartbeat: &Heartbeat<'a>, at: SentAt) -> HeartbeatRecord<'a> {
    let holds = |part: &PartRead<'a>| match part.holds {
        HoldsRead::Digest(digest) => {
            PartHolds::Digest(Box::new(move |held| digest_of(held) == digest))
        }
        HoldsRead::List { from, upto, .. } => PartHolds::List {
            from,
            upto,
            listed: part
                .listed()
                .map(|entry| ListedHold {
                    number: entry.number,
                    domain: entry.domain,
                    copies: entry.copies.into(),
                    start_us: entry.start.as_micros(),
                    strict: entry.strict,
                    seized: entry.seized.map(|id| id.0),
                })
                .collect(),
        },
    };
    HeartbeatRecord {
        sender: sender_of(&heartbeat.sender, at),
        replaces: heartbeat.head.replaces,
        more: heartbeat.head.more,
        last: heartbeat.head.last,
        parts: heartbeat
            .parts()
            .map(|part| ModelPart {
                resource: heartbeat.resource(part.resource),
                holds: holds(&part),
                awaiting: part.awaiting().collect(),
                asked: part.asked().collect(),
            })
            .collect(),
    }
}

fn digest_of(held: &BTreeMap<u64, u64>) -> Holdings {
    let all = held.iter();
    all.fold(Holdings::default(), |sum, (number, copies)| {
        sum.with(*number, *copies as u32)
    })
}

/// The effect of an operator's act on copies.
fn act_of(act: &Act) -> Option<CopiesAct<'_>> {
    Some(match act {
        Act::Ban {
            resource,
            domain,
            until,
        } => CopiesAct::Ban {
            resource: resource.as_deref(),
            domain,
            until_us: Some(until.as_micros()),
        },
        Act::Unban { resource, domain } => CopiesAct::Ban {
            resource: resource.as_deref(),
            domain,
            until_us: None,
        },
        Act::ReleaseHold {
            resource,
            agent,
            epoch,
            number,
        } => CopiesAct::EndHold {
            resource,
            agent,
            epoch: *epoch,
            number: *number,
        },
        Act::ReleaseHolds {
            resource,
            domain,
            agent,
        } => CopiesAct::EndHolds {
            resource,
            domain: domain.as_deref(),
            agent: agent.as_deref(),
        },
        Act::ReleaseTransfer { resource, transfer } => CopiesAct::EndTransfer {
            resource,
            id: transfer.0,
        },
        _ => return None,
    })
}
