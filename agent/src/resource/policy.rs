//! The limits that hold for every domain of a resource, for header fields.
//!
//! ```text
//! windows = ["50/s", "1000/m"]      "window-0" 50 in 1 s, "window-1" 1000 in 60 s
//! tiers = [100 in 1 s, …]           "tier-1" 100 in 1 s: only a denial states which tier is current
//! some domain has limits of its own, or the resource is in shadow: nothing, since the limits would not hold
//! ```
//!
//! Answers are small, `Copy` and borrow nothing, so they contain a number instead of a list. The list is kept as long
//! as the process lives. What stays true: equal lists have one number, there are at most [`LISTS_MAX`], and nobody waits
//! for the lists for long: a process may fork while another thread has locked them, and nobody unlocks them in the child.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, TryLockError, TryLockResult};

use tollgate_shared::time::Span;
use tollgate_shared::wire::public::Public;

/// The most different lists of limits: some megabytes. A fleet has as many as it has kinds of resources, and a few
/// more with each version of the limits. Further lists are not reported.
const LISTS_MAX: usize = 65_536;

/// One limit, for `RateLimit-Policy`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QuotaPolicy {
    /// The limit's name.
    pub(crate) name: String,
    /// Copies that the limit grants in its window.
    pub(crate) quota: u64,
    /// The window in seconds; 0 if it is not a whole number of seconds.
    pub(crate) seconds: u64,
}

/// The limits of a resource, as a number; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy(pub(super) u32);

#[derive(Debug)]
struct Lists {
    numbers: BTreeMap<Arc<[QuotaPolicy]>, u32>,
    /// The lists by number; the first number is 1.
    lists: Vec<Arc<[QuotaPolicy]>>,
}

static LISTS: RwLock<Lists> = RwLock::new(Lists {
    numbers: BTreeMap::new(),
    lists: Vec::new(),
});

/// How often a locked list is tried again, and others may run in between. It is locked for less than a microsecond.
const TRIES: usize = 1_000;

/// Whether that has been in vain: from then on, each caller tries once, until one succeeds.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Takes a lock, unless its holder does not give it back.
fn locked<G>(stuck: &AtomicBool, take: impl Fn() -> TryLockResult<G>) -> Option<G> {
    for _ in 0..TRIES {
        let taken = match take() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let was_stuck = stuck.load(Ordering::Relaxed);
        if was_stuck && taken.is_some() {
            stuck.store(false, Ordering::Relaxed);
        }
        if was_stuck || taken.is_some() {
            return taken;
        }
        std::thread::yield_now();
    }
    stuck.store(true, Ordering::Relaxed);
    None
}

impl Policy {
    /// No known limits.
    pub(crate) const NONE: Self = Self(0);

    /// All windows, or the first tier if there are no windows.
    pub(super) fn of(public: &Public) -> Self {
        if public.has_overrides || public.ignored {
            return Self::default();
        }
        let of = |name: String, limit: u64, window: Span| QuotaPolicy {
            name,
            quota: limit,
            seconds: whole_seconds(window),
        };
        let windows = public.windows.iter().enumerate();
        let windows = windows.map(|(at, one)| of(format!("window-{at}"), one.limit, one.window));
        let mut limits: Vec<QuotaPolicy> = windows.collect();
        if let (true, Some(tier)) = (limits.is_empty(), public.tiers.first()) {
            limits.push(of("tier-1".to_owned(), tier.limit, tier.window));
        }
        match limits.is_empty() {
            true => Self::default(),
            false => Self::numbered(limits.into()),
        }
    }

    fn numbered(limits: Arc<[QuotaPolicy]>) -> Self {
        let Some(mut known) = locked(&STUCK, || LISTS.try_write()) else {
            return Self::default();
        };
        if let Some(number) = known.numbers.get(&limits) {
            return Self(*number);
        }
        if LISTS_MAX <= known.lists.len() {
            return Self::default();
        }
        known.lists.push(Arc::clone(&limits));
        // Far below 2³².
        let number = u32::try_from(known.lists.len()).unwrap_or_default();
        known.numbers.insert(limits, number);
        Self(number)
    }

    /// The limits; `None` if unknown.
    pub(crate) fn limits(self) -> Option<Arc<[QuotaPolicy]>> {
        let at = usize::try_from(self.0).ok()?.checked_sub(1)?;
        locked(&STUCK, || LISTS.try_read())?.lists.get(at).cloned()
    }
}

/// A window in seconds; 0 if it is not a whole number of seconds.
pub(crate) fn whole_seconds(window: Span) -> u64 {
    let micros = window.as_micros();
    if micros.is_multiple_of(1_000_000) {
        micros / 1_000_000
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::wire::public::PublicTier;

    fn tier(limit: u64, seconds: u64) -> PublicTier {
        PublicTier {
            limit,
            window: Span::from_secs(seconds),
        }
    }

    fn windows_in(public: &Public) -> Vec<(String, u64, u64)> {
        let limits = Policy::of(public).limits();
        let limits = limits.iter().flat_map(|limits| limits.iter());
        let windows_in = limits.map(|one| (one.name.clone(), one.quota, one.seconds));
        windows_in.collect()
    }

    #[test]
    fn a_lock_that_nobody_gives_back_is_not_waited_for() {
        let (lock, stuck) = (RwLock::new(7), AtomicBool::new(false));
        assert_eq!(locked(&stuck, || lock.try_read()).as_deref(), Some(&7));
        let forgotten = lock.write();
        assert!(locked(&stuck, || lock.try_read()).is_none());
        assert!(locked(&stuck, || lock.try_write()).is_none());
        assert!(stuck.load(Ordering::Relaxed));
        drop(forgotten);
        assert_eq!(locked(&stuck, || lock.try_write()).as_deref(), Some(&7));
        assert!(!stuck.load(Ordering::Relaxed));
    }

    #[test]
    fn exactly_the_windows_in_force_are_shown() {
        let mut public = Public {
            version: 1,
            tiers: [tier(100, 10)].into(),
            ..Public::default()
        };
        let named = |name: &str, quota, seconds| (name.to_owned(), quota, seconds);
        assert_eq!(windows_in(&public), [named("tier-1", 100, 10)]);
        // Only a notice or a denial states that one of these is current.
        public.tiers = [tier(100, 10), tier(500, 60)].into();
        (public.hard, public.global) = (Some(200), Some(50_000));
        assert_eq!(windows_in(&public), [named("tier-1", 100, 10)]);
        public.windows = [tier(7, 60), tier(100, 3_600)].into();
        let windows = [named("window-0", 7, 60), named("window-1", 100, 3_600)];
        assert_eq!(windows_in(&public), windows);
        assert_eq!(Policy::of(&public), Policy::of(&public), "one number");
        for (has_overrides, ignored) in [(true, false), (false, true)] {
            let other = Public {
                has_overrides,
                ignored,
                ..public.clone()
            };
            assert_eq!(windows_in(&other), [], "{has_overrides} {ignored}");
        }
        assert_eq!(windows_in(&Public::default()), []);
        assert_eq!(whole_seconds(Span::from_millis(1_500)), 0);
    }
}
