//! How soon calls of a resource have to be in the log, as far as its limits and what is heard of it say.
//!
//! The listener writes, the flusher reads. Knows nothing of single calls. What stays true: of a resource of
//! which nothing was heard all calls are urgent.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_shared::wire::public::{Kind, Public};

use crate::clock::Mono;

/// A limit that nobody reaches.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// What is known of one resource.
#[derive(Debug, Default)]
pub(crate) struct Hurry {
    /// The least limit of any domain, in copies; [`UNLIMITED`]: there is none; 0: not known.
    least: AtomicU64,
    /// The same of all domains together.
    global: AtomicU64,
    /// All its calls are urgent until then.
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

    /// Whether all its calls are urgent, because a denial or a notice of all its domains was heard lately.
    #[inline]
    pub(crate) fn is_on(&self, now: Mono) -> bool {
        now.0 < self.until.load(Ordering::Relaxed)
    }

    /// A denial or a notice of all its domains was heard.
    pub(crate) fn extend(&self, until: Mono) {
        self.until.fetch_max(until.0, Ordering::Relaxed);
    }

    /// Takes what public limits say.
    pub(super) fn learn(&self, public: &Public) {
        let of = |limit: Option<u64>| match public.kind {
            Kind::Rate => limit.unwrap_or(UNLIMITED),
            Kind::Copies | Kind::Unconfigured | Kind::Descriptors => UNLIMITED,
        };
        self.least.store(of(public.least), Ordering::Relaxed);
        self.global.store(of(public.global), Ordering::Relaxed);
    }
}
