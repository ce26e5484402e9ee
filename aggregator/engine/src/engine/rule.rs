//! How a version rules a resource, and an entry on its pair.
//!
//! ```text
//! api.search in the document          limited; its denials are stated unless it is a shadow
//! api.other, not in it                refused or free, as its namespace states
//! sandbox, limited by copies          free: hits are not what limits it
//! entry of a limited resource         ruled on its pair; afterwards a denial, if the pair is closed
//! ```
//!
//! Knows nothing of batches and earlier statements. What stays true: a ruled pair is kept at least as
//! long as its denial and as anything that it remembers.

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::hits::{Hit, HitKind};
use tollgate_shared::wire::statement::{Cause, Denial};

use super::amended::PairAmendments;
use crate::pairs::Stored;
use crate::rules::refund::Settlement;
use crate::stream::{Closed, Closure, Entry, PairEvent, Ruled};
use tollgate_limits::{Limits, Mode, RateClass, RateResource, Resource};

/// How a resource is ruled.
#[derive(Clone, Copy)]
pub(super) enum Rule<'l> {
    /// By its limits.
    Limited {
        /// The resource.
        rate: &'l RateResource,
        /// Whether its denials are stated: false for a shadow, and where the namespace ignores them.
        stated: bool,
    },
    /// It has no limits, and its namespace refuses such resources.
    Refused {
        /// Whether its denials are stated.
        stated: bool,
    },
    /// Its hits are let through: it has no limits, or limits on copies alone.
    Free,
}

impl<'l> Rule<'l> {
    /// How a resource is ruled under a version.
    pub fn of(limits: &'l Limits, resource: &str) -> Self {
        let namespace = limits.namespace_of(resource);
        let stated = !namespace.ignore_configured;
        match limits.resource(resource) {
            Some(Resource::Rate(rate)) => Self::Limited {
                rate,
                stated: stated && rate.mode() == Mode::Enforced,
            },
            // Limits name it. A hit comes from an agent that does not know yet that it is limited by copies; a denial
            // would have no end, and refuse copies to the domain.
            Some(Resource::Copies(_)) => Self::Free,
            None if namespace.allow_unconfigured => Self::Free,
            None => Self::Refused { stated },
        }
    }

    /// The limits of one of its domains, and whether its denials are stated; `None` if it is free. A
    /// resource without limits gets `nothing`.
    pub fn class_of(
        self,
        limits: &'l Limits,
        nothing: &'l RateClass,
        domain: &str,
    ) -> Option<(&'l RateClass, bool)> {
        match self {
            Self::Limited { rate, stated } => Some((limits.class(rate.class_of(domain)), stated)),
            Self::Refused { stated } => Some((nothing, stated)),
            Self::Free => None,
        }
    }

    /// The denial to state for a closure of one of its pairs.
    pub fn denial(
        self,
        class: &RateClass,
        closure: Closure,
        (now, version): (Timestamp, u64),
    ) -> Denial {
        let (limit, window) = closure.by.limit(class, now);
        let cause = match (self, closure.by) {
            (Self::Refused { .. }, _) => Cause::Unconfigured,
            (_, Closed::Hard) => Cause::Hard,
            (_, Closed::Tier(tier)) => Cause::Tier(u8::try_from(tier).unwrap_or(u8::MAX)),
            (_, Closed::Window(index)) => Cause::Window(index),
            (_, Closed::Quota(index)) => Cause::Quota(index),
            (_, Closed::Bucket) => Cause::Bucket,
            (_, Closed::Inaccessible) => Cause::Inaccessible,
        };
        Denial {
            end: closure.end,
            cause,
            version,
            limit,
            window,
            most: class.most_at_once().unwrap_or(u64::MAX),
        }
    }

    /// The percent of the least limit from which its pairs are announced as near, if it is limited.
    pub fn near(self) -> Option<u8> {
        match self {
            Self::Limited { rate, .. } => Some(rate.near()),
            Self::Refused { .. } | Self::Free => None,
        }
    }

    /// The resource's global limit, if it is limited and has one.
    pub fn global(self) -> Option<u64> {
        match self {
            Self::Limited { rate, .. } => rate.global(),
            Self::Refused { .. } | Self::Free => None,
        }
    }
}

/// What an entry is ruled by, beside its pair's limits.
pub(super) struct RulingContext<'l> {
    pub rule: Rule<'l>,
    /// Whether denials by limits are stated.
    pub stated: bool,
    /// The limits version in force.
    pub version: u64,
    pub amended: PairAmendments,
}

/// Rules an entry on its pair, and sets how long the pair is kept. Returns the ruling on its copies, and
/// the denial to state of the pair now.
#[inline]
pub(super) fn rule(
    working: &mut Stored,
    class: &RateClass,
    (at, event): (Timestamp, PairEvent),
    ruling_context: &RulingContext<'_>,
) -> (Ruled, Option<Denial>) {
    let banned = ruling_context.amended.is_banned(at);
    let ruled = working.pair.rule(class, at, event, banned);
    let now = working.pair.now();
    let own = match ruling_context.stated && !ruled.open {
        true => working.pair.closure(class, now),
        false => None,
    };
    let own = own.map(|closure| {
        ruling_context
            .rule
            .denial(class, closure, (now, ruling_context.version))
    });
    let denial = ruling_context
        .amended
        .after_entry(shows_open(&ruled, at, now))
        .denial(own, now);
    working.stated = denial.map(|denial| denial.end);
    working.stays(working.pair.matters_until(class));
    (ruled, denial)
}

/// Whether a ruling shows that the pair's limits have let it in, at an instant of the pair's time `now`. A late hit does
/// not: a quota may have granted it in an earlier period.
pub(super) fn shows_open(ruled: &Ruled, at: Timestamp, now: Timestamp) -> bool {
    at == now && 0 < ruled.granted
}

/// The event of an entry on its pair. `instant` converts an agent's stamp.
#[inline]
pub fn event_of(hit: &Hit<'_>, instant: impl Fn(Timestamp) -> Timestamp) -> PairEvent {
    match hit.kind {
        HitKind::Hit | HitKind::Charge | HitKind::Estimate => PairEvent::Entry(Entry {
            copies: hit.total(),
            unguarded: hit.unguarded,
            estimated: hit.kind == HitKind::Estimate,
        }),
        HitKind::Refund { made, actual, .. } => PairEvent::Settlement(Settlement {
            made: instant(made),
            copies: u64::from(hit.copies),
            actual: u64::from(actual),
        }),
    }
}

/// The copies that an entry adds: a refund adds none.
pub(super) fn copies_of(hit: &Hit<'_>) -> u64 {
    if hit.is_refund() { 0 } else { hit.total() }
}
