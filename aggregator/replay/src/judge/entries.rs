//! What stands in entries and totals, under the model's names, and the model's causes under the wire's.
//!
//! Knows nothing of limits or of what the model says.

use tollgate_model::Cause as ModelCause;
use tollgate_model::log::{EntryKind, TotalPart};
use tollgate_shared::wire::hits::HitKind;
use tollgate_shared::wire::record::Total;
use tollgate_shared::wire::statement::Cause;

/// What an entry's copies are. A cost that was known afterwards is an entry like any other.
pub fn kind_to_model(kind: HitKind) -> EntryKind {
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
pub fn part_to_model(total: Total) -> TotalPart {
    TotalPart {
        ms: total.ms,
        unguarded: total.unguarded,
        copies: u64::from(total.copies),
    }
}

/// What closes a scope, as statements say it. The model has no word of its own for a resource without
/// tiers: it says tier 0.
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
