//! How soon calls of a resource have to be in the log, by its limits and its recent denials and notices.
//!
//! The listener writes, the flusher reads. Knows nothing of single calls. What stays true: while the agent knows
//! nothing of a resource, all its calls are urgent.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_shared::wire::public::{Kind, Public};

use crate::clock::Mono;

/// A limit that is never reached.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// The urgency of one resource.
#[derive(Debug, Default)]
pub(crate) struct Hurry {
    /// The least limit of any domain, in copies; [`UNLIMITED`] without a limit; 0 if unknown.
    least: AtomicU64,
    /// The same for all domains together.
    global: AtomicU64,
    /// Until this instant all its calls are urgent.
    until: AtomicU64,
}

impl Hurry {
    /// The least limit of any domain; see the field.
    #[inline]
    pub(crate) fn least(&self) -> u64 {
        self.least.load(Ordering::Relaxed)
    }

    /// The limit of all domains together; see the field.
    #[inline]
    pub(crate) fn global(&self) -> u64 {
        self.global.load(Ordering::Relaxed)
    }

    /// Whether all its calls are urgent, because of a recent denial or notice about all its domains.
    #[inline]
    pub(crate) fn is_on(&self, now: Mono) -> bool {
        now.0 < self.until.load(Ordering::Relaxed)
    }

    /// A denial or a notice about all its domains arrived.
    pub(crate) fn extend(&self, until: Mono) {
        self.until.fetch_max(until.0, Ordering::Relaxed);
    }

    /// Applies public limits.
    pub(super) fn learn(&self, public: &Public) {
        let of = |limit: Option<u64>| match public.kind {
            Kind::Rate => limit.unwrap_or(UNLIMITED),
            Kind::Copies | Kind::Unconfigured | Kind::Descriptors => UNLIMITED,
        };
        self.least.store(of(public.least), Ordering::Relaxed);
        self.global.store(of(public.global), Ordering::Relaxed);
    }
}
