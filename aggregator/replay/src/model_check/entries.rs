//! Entries and totals in the model's types, and the model's causes in those of the wire.
//!
//! Knows nothing of limits and of the model's statements.

use tollgate_model::Cause as ModelCause;
use tollgate_model::log::{EntryKind, HitEntry, Total as ModelTotal, TotalPart};
use tollgate_shared::wire::hits::{Hit, HitBatch, HitKind};
use tollgate_shared::wire::record::{Total, Totals};
use tollgate_shared::wire::statement::Cause;

/// An entry of a batch.
pub fn entry_to_model<'a>(batch: &HitBatch<'a>, hit: &Hit<'a>) -> HitEntry<'a> {
    HitEntry {
        resource: batch.resource(hit.resource),
        domain: hit.domain,
        at_us: hit.at.as_micros(),
        n: hit.total(),
        kind: kind_to_model(hit.kind),
        unguarded: hit.unguarded,
    }
}

/// A record of totals.
pub fn total_to_model<'a>(totals: &Totals<'a>) -> ModelTotal<'a> {
    ModelTotal {
        resource: totals.resource,
        source_partition: totals.source_partition,
        source_offset: totals.source_offset,
        parts: totals.counted().map(part_to_model).collect(),
    }
}

/// The kind of an entry. For the model a charge is an entry like any other.
fn kind_to_model(kind: HitKind) -> EntryKind {
    match kind {
        HitKind::Hit | HitKind::Charge => EntryKind::Hit,
        HitKind::Estimate => EntryKind::Estimate,
        HitKind::Refund {
            made,
            estimated,
            actual,
        } => EntryKind::Refund {
            made_us: made.as_micros(),
            estimated: u64::from(estimated),
            actual: u64::from(actual),
        },
    }
}

/// Copies of one millisecond of a total.
fn part_to_model(total: Total) -> TotalPart {
    TotalPart {
        ms: total.ms,
        unguarded: total.unguarded,
        copies: u64::from(total.copies),
    }
}

/// The cause of a denial, as statements name it. The model has no cause of its own for a resource
/// without tiers: it names tier 0.
pub fn cause_to_wire(cause: ModelCause) -> Cause {
    let index = |index: usize| u8::try_from(index).unwrap_or(u8::MAX);
    match cause {
        ModelCause::Hard => Cause::Hard,
        ModelCause::Global => Cause::Global,
        ModelCause::Window(window) => Cause::Window(index(window)),
        ModelCause::Quota(quota) => Cause::Quota(index(quota)),
        ModelCause::Bucket => Cause::Bucket,
        ModelCause::Tier(tier) => Cause::Tier(index(tier)),
        ModelCause::Banned => Cause::Banned,
    }
}
