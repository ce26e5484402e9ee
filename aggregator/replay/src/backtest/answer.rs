//! One call of a recording, or a settlement, on the limits of its pair.
//!
//! ```text
//! let through or refused   asked again
//! an estimate              asked again, and remembered by its stamp
//! a charge                 counts, whether there is room or not
//! a refund                 gives back what its estimate counted here
//! ```
//!
//! Knows nothing of tallies. What stays true: the rules are the engine's own.

use tollgate_engine::inline::{ask, charge, settle};
use tollgate_engine::rules::refund::Settlement;
use tollgate_engine::rules::request::{LimitedBy, Request};
use tollgate_engine::rules::{Stamps, State};
use tollgate_limits::RateClass;
use tollgate_shared::time::Timestamp;

use super::moved::MovedEstimates;
use super::tape::{Call, CallKind};

/// What an ideal in-line limiter answers.
pub struct PlayedAnswer {
    /// Hits granted.
    pub hits: u64,
    /// The limit that kept it from granting more.
    pub limited_by: Option<LimitedBy>,
}

/// Plays a call, or a settlement, on the state of its pair; `second` has what all domains of the resource were granted.
pub fn answer(
    class: &RateClass,
    state: &mut State,
    (global, second): (Option<u64>, &mut Stamps),
    now: Timestamp,
    (call, moved): (&Call, &mut MovedEstimates),
) -> PlayedAnswer {
    let copies = u64::from(call.copies);
    let estimated = match call.kind {
        CallKind::LetThrough | CallKind::Refused => false,
        CallKind::Estimate { stamp } => {
            moved.counted(call.pair, stamp, now);
            true
        }
        CallKind::Charge => {
            charge(class, state, second, now, copies);
            return PlayedAnswer {
                hits: copies,
                limited_by: None,
            };
        }
        CallKind::Refund { stamp, actual } => {
            let settlement = Settlement {
                made: moved.instant_of(call.pair, stamp),
                copies,
                actual: u64::from(actual),
            };
            settle(class, state, now, settlement);
            return PlayedAnswer {
                hits: 0,
                limited_by: None,
            };
        }
    };
    let request = Request {
        copies,
        // Calls of one hit each at one instant are played together: a request for several copies is granted hit by
        // hit as well.
        min: u64::from(call.min.max(1)),
    };
    let grant = ask(class, state, (global, second), now, request, estimated);
    PlayedAnswer {
        hits: grant.hits,
        limited_by: grant.limited_by,
    }
}
