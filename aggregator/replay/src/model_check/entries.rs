//! Entries and totals in the model's types, and the model's causes in those of the wire.
//!
//! Knows nothing of limits and of the model's statements.

use tollgate_model::Cause as ModelCause;
use tollgate_model::log::{EntryKind, TotalPart};
use tollgate_shared::wire::hits::HitKind;
use tollgate_shared::wire::record::Total;
use tollgate_shared::wire::statement::Cause;

/// The kind of an entry. For the model a charge is an entry like any other.
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
