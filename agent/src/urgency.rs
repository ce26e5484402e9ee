//! Which calls are urgent, and which may wait and travel together.
//!
//! ```text
//! limit 1,000/s, a call now and then       waits up to `flush_relaxed`, with all others that wait
//! the same, 25 calls in a few ms           urgent from the 25th on: this agent alone could soon fill the limit
//! the same, 250 calls a second             urgent
//! a pair with a notice, or denied          urgent, and for ten seconds after the denial
//! hit_n(60) under 100/s                    urgent: more than a fortieth of the limit
//! unknown limits, tiers                    urgent
//! ```
//!
//! A record costs both sides the same whether it holds one entry or a hundred. Most calls are of pairs that are far
//! from any limit, and nothing waits for them; they only have to be in the log early enough that the aggregators see
//! a pair come near its limit *before* it reaches it. From then on notices make all its calls urgent, in every agent.
//!
//! **Why this is early enough.** Aggregators publish a notice of a pair when a fifth of its least limit L is left (if
//! `near` is smaller, the public limits state a smaller L). Until an agent acts on the notice, two times pass: the
//! wait W of the calls that brought the pair there (60 ms), and the notice's way (an aggregator publishes one for a
//! pair at most every 20 ms, then some milliseconds of ruling and network), together T = 90 ms. In T all agents
//! together must not use that fifth. So each agent has a *level* for the pair, which rises by a copy with each copy
//! and falls by L/4 a second, and its calls are urgent while the level is above L/40:
//!
//! - A steady use below L/4 a second in each of eight agents is 8 · L/4 · 90 ms = 0.18 L in T, less than is left. So is a
//!   use of 2 L a second, spread over any number of agents.
//! - A sudden use: each agent holds back less than L/40 before its calls are urgent; eight agents L/5.
//!
//! So if up to eight agents use one pair, evenly or from one instant on, the notice arrives before the pair is
//! full, and from then on nothing waits. Beyond that (a hundred agents that suddenly use several times what one pair
//! may have, each a little, or overrides that lower limits in a version that the agent does not know yet) the pair's
//! first denial may come W later than it could. The excess is then what is offered in W, once: a pair with a denial or
//! a notice stays urgent. That is law 8 with a denial delay that is longer by W, for a pair that was quiet. A single
//! copy is never urgent by its level alone if L is at least 5: a copy less than the fifth may be in flight. Below 5
//! nothing waits, since a fifth is less than a whole copy.
//!
//! An agent with many calls has many pairs whose level is above L/40 by chance: at 30,000 calls a second for 10,000
//! domains of 100/s, one call in thirty. There a call may wait for 5 ms while the level is below L/10
//! ([`Wait::Shortly`]). Of eight agents that begin at one instant each is at L/10 when the notice is due, at L/8 when the
//! pair is full: so nothing that fills the pair waits. A call of a pair that a notice or denial names does not, either.
//!
//! All domains together, under a global limit, are treated as one more pair.
//!
//! Levels are in a table of fixed memory ([`levels`]). If many more pairs are in use than it has places for, their levels
//! come out too high, which errs towards urgency.
//!
//! **While the flusher rests** it sees a call only on its next visit, so the call itself asks whether it is urgent: by
//! the level that the flusher left, and by the copies of its pair since the last visit ([`lately`]).
//!
//! Knows nothing of batches. What stays true: the flusher's answers depend on the calls, on the denials and notices
//! received, and on the instants of its visits; on no chance and no clock of its own. Only the flusher writes levels.

mod lately;
mod levels;

use std::sync::Arc;

use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::Span;

use crate::clock::Mono;
use crate::deny::DenyView;
use crate::resource::{Resource, UNLIMITED};
use lately::Lately;
use levels::{Level, Levels};

/// A whole limit, as a level.
const WHOLE: u64 = 1 << 32;

/// The share of a limit above which a level is urgent.
const URGENT_SHARE: u64 = WHOLE / 40;

/// The share of a limit above which a call does not wait at all.
const AT_ONCE_SHARE: u64 = WHOLE / 10;

/// By how much a level falls in a microsecond: a whole limit in four seconds.
const FALLS_BY: u64 = WHOLE / 4_000_000;

/// Below this limit nothing waits.
const LIMIT_MIN: u64 = 5;

/// From this many calls on a flusher that rests has to come: reading a cached clock is cheaper for them. It comes every 60
/// ms, so these are 16 calls a millisecond.
const MANY: u32 = 960;

/// How long a call may wait that raised the level to this share of its limit.
fn wait_at(share: u64, limit: u64) -> Wait {
    // At least one and a half copies.
    let is_several = 3 * WHOLE <= (2 * share).saturating_mul(limit);
    match share {
        AT_ONCE_SHARE.. if is_several => Wait::Not,
        URGENT_SHARE.. if is_several => Wait::Shortly,
        _ => Wait::Relaxed,
    }
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// Not at all: its pair is at its limit or near it, its limits are unknown or low, or this agent alone uses much of
    /// them.
    Not,
    /// For 5 ms if the agent has many calls: the pair could come near its limit soon.
    Shortly,
    /// For as long as calls that are not urgent do.
    Relaxed,
}

/// Decides which calls are urgent.
#[derive(Debug)]
pub(crate) struct Urgency {
    view: Arc<DenyView>,
    /// How long calls that are not urgent wait.
    relaxed: Span,
    levels: Levels,
    lately: Lately,
}

impl Urgency {
    /// Calls that are not urgent wait for `relaxed`; a buffer of calls takes at least `room` of them.
    pub(crate) fn new(view: Arc<DenyView>, relaxed: Span, room: usize) -> Self {
        let half = u32::try_from(room / 2).unwrap_or(u32::MAX);
        Self {
            view,
            relaxed,
            levels: Levels::new(),
            lately: Lately::new(half.min(MANY)),
        }
    }

    /// How long calls that are not urgent wait.
    pub(crate) fn relaxed(&self) -> Span {
        self.relaxed
    }

    /// The flusher visits, and takes everything that was recorded.
    pub(crate) fn visits(&self) {
        self.lately.begin();
    }

    /// Counts a call for which nobody waits. Returns whether it has to wake the flusher, which rests: a buffer could
    /// fill.
    pub(crate) fn fills(&self) -> bool {
        self.lately.are_many()
    }

    /// A call was let through for this many copies. Returns how long it may wait.
    pub(crate) fn take(&self, resource: &Resource, domain: &str, copies: u32, now: Mono) -> Wait {
        if self.is_all_urgent(resource, now) {
            // There is no level to keep.
            return Wait::Not;
        }
        let fingerprint = resource.fingerprint(domain);
        let mut wait = match self.view.recent().has(fingerprint, now) {
            true => Wait::Not,
            false => Wait::Relaxed,
        };
        // Both levels rise, whatever the other one is.
        for (_, level, limit) in self.levels_of(resource, fingerprint, now) {
            wait = wait.min(level.take(copies, limit, now));
        }
        wait
    }

    /// Whether a call that is let through for this many copies has to wake the flusher, which rests.
    pub(crate) fn wakes(
        &self,
        resource: &Resource,
        fingerprint: u64,
        copies: u32,
        now: Mono,
    ) -> bool {
        if self.lately.are_many() || self.is_all_urgent(resource, now) {
            return true;
        }
        let mut wakes = self.view.recent().has(fingerprint, now);
        for (whose, level, limit) in self.levels_of(resource, fingerprint, now) {
            let copies = self.lately.add(whose, copies);
            wakes |= level.wait_of(copies, limit, now) != Wait::Relaxed;
        }
        wakes
    }

    /// Whether every call of a resource is urgent: nothing may wait, its limits are unknown, or very low, or all its
    /// domains were at their limit lately.
    fn is_all_urgent(&self, resource: &Resource, now: Mono) -> bool {
        let hurry = resource.hurry();
        let is_low = hurry.least() < LIMIT_MIN || hurry.global() < LIMIT_MIN;
        self.relaxed == Span::ZERO || is_low || hurry.is_on(now)
    }

    /// The levels that a call raises, by whose they are, and their limits: of its pair, and of all domains together, as
    /// far as these are limited.
    fn levels_of(
        &self,
        resource: &Resource,
        fingerprint: u64,
        now: Mono,
    ) -> impl Iterator<Item = (u64, Level<'_>, u64)> {
        let limited = |limit: u64| Some(limit).filter(|limit| *limit != UNLIMITED);
        let (least, global) = (resource.hurry().least(), resource.hurry().global());
        let of_pair = limited(least).map(|limit| (fingerprint, limit));
        let of_all = limited(global).map(|limit| (resource.fingerprint_of_group(EVERYBODY), limit));
        let levels = of_pair.into_iter().chain(of_all);
        levels.filter_map(move |(whose, limit)| {
            let level = self.levels.of(whose, now)?;
            Some((whose, level, limit))
        })
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::wire::public::{Kind, Public};

    use super::*;
    use crate::resource::ResourceId;

    const NOW: Mono = Mono(5_000_000);

    struct Kit {
        urgency: Urgency,
        resource: Resource,
        now: Mono,
    }

    impl Kit {
        fn new(least: Option<u64>, global: Option<u64>) -> Self {
            let resource = Resource::new(ResourceId(0), "r", 1);
            resource.learn(&Public {
                version: 1,
                kind: Kind::Rate,
                least,
                global,
                ..Public::default()
            });
            Self {
                urgency: Urgency::new(
                    Arc::new(DenyView::new(64)),
                    Span::from_millis(60),
                    usize::MAX,
                ),
                resource,
                now: NOW,
            }
        }

        fn hit(&mut self, domain: &str, copies: u32) -> bool {
            self.wait(domain, copies) != Wait::Relaxed
        }

        fn wait(&mut self, domain: &str, copies: u32) -> Wait {
            self.urgency.take(&self.resource, domain, copies, self.now)
        }

        /// The same while the flusher rests.
        fn wakes(&self, domain: &str, copies: u32) -> bool {
            let fingerprint = self.resource.fingerprint(domain);
            self.urgency
                .wakes(&self.resource, fingerprint, copies, self.now)
        }

        /// How many of these calls, one every `every`, are not urgent before the first urgent one.
        fn relaxed_calls(&mut self, calls: usize, every: Span) -> usize {
            let mut relaxed = 0;
            while relaxed < calls && !self.hit("acme", 1) {
                relaxed += 1;
                self.now = self.now.plus(every);
            }
            relaxed
        }
    }

    #[test]
    fn a_pair_far_from_its_limit_is_never_urgent() {
        // 200 a second under 1,000.
        let slow = Span::from_millis(5);
        assert_eq!(
            Kit::new(Some(1_000), None).relaxed_calls(9_000, slow),
            9_000
        );
        assert_eq!(Kit::new(None, None).relaxed_calls(9_000, Span::ZERO), 9_000);
    }

    #[test]
    fn a_burst_is_urgent_after_a_fortieth_of_the_limit() {
        let at_once = |limit| Kit::new(Some(limit), None).relaxed_calls(100, Span::ZERO);
        assert_eq!((at_once(1_000), at_once(400)), (24, 9));
        // With small limits the second copy is urgent, and below five the first.
        assert_eq!((at_once(40), at_once(5), at_once(4)), (1, 1, 0));
    }

    #[test]
    fn below_a_tenth_of_the_limit_a_call_may_wait_shortly() {
        let mut kit = Kit::new(Some(1_000), None);
        let waits: Vec<Wait> = (0..101).map(|_| kit.wait("acme", 1)).collect();
        let shortly = waits.iter().filter(|wait| **wait == Wait::Shortly).count();
        assert_eq!(
            (waits[23], waits[24], shortly),
            (Wait::Relaxed, Wait::Shortly, 75)
        );
        assert_eq!((waits[98], waits[99]), (Wait::Shortly, Wait::Not));
        // With small limits that is the second copy.
        kit = Kit::new(Some(15), None);
        assert_eq!(
            (kit.wait("acme", 1), kit.wait("acme", 1)),
            (Wait::Relaxed, Wait::Not)
        );
    }

    #[test]
    fn a_steady_quarter_of_the_limit_becomes_urgent_in_time() {
        // 10,000 a second: within 3 ms; 500 a second, twice what the level falls by: within 0.1 s.
        let within = |every| {
            let mut kit = Kit::new(Some(1_000), None);
            kit.relaxed_calls(9_000, every);
            kit.now.since(NOW)
        };
        assert!(within(Span::from_micros(100)) <= Span::from_millis(3));
        assert!(within(Span::from_millis(2)) <= Span::from_millis(100));
        // And it is no longer urgent once it slows down.
        let mut kit = Kit::new(Some(1_000), None);
        assert_eq!(kit.relaxed_calls(100, Span::ZERO), 24);
        kit.now = kit.now.plus(Span::from_millis(200));
        assert!(!kit.hit("acme", 1));
    }

    #[test]
    fn a_call_of_many_copies_is_urgent_at_once() {
        let mut kit = Kit::new(Some(100), None);
        assert!(!kit.hit("acme", 2) && kit.hit("globex", 3));
        assert!(kit.hit("initech", u32::MAX));
    }

    #[test]
    fn a_pair_with_a_recent_notice_is_urgent() {
        let mut kit = Kit::new(Some(1_000), None);
        let fingerprint = kit.resource.fingerprint("acme");
        let view = Arc::clone(&kit.urgency.view);
        view.recent()
            .note(fingerprint, NOW.plus(Span::from_secs(1)));
        assert_eq!(kit.wait("acme", 1), Wait::Not);
        assert!(!kit.hit("globex", 1));
        kit.now = NOW.plus(Span::from_secs(2));
        assert!(!kit.hit("acme", 1));
        kit.resource.hurry().extend(NOW.plus(Span::from_secs(3)));
        assert!(kit.hit("globex", 1), "all domains were heard of");
    }

    #[test]
    fn all_domains_together_are_urgent_under_a_global_limit() {
        let mut kit = Kit::new(None, Some(1_000));
        let urgent = (0..30).filter(|n| kit.hit(&format!("t{n}"), 1)).count();
        assert_eq!(urgent, 6, "from the 25th on");
    }

    #[test]
    fn every_call_is_urgent_until_limits_are_known() {
        let mut kit = Kit::new(None, None);
        kit.resource = Resource::new(ResourceId(0), "r", 1);
        assert!(kit.hit("acme", 1));
        kit = Kit::new(None, None);
        kit.urgency.relaxed = Span::ZERO;
        assert!(kit.hit("acme", 1), "nothing may wait");
    }

    #[test]
    fn a_call_wakes_a_resting_flusher_if_that_would_find_it_urgent() {
        // The same calls, once with a flusher that sees each at once, and once with one that visits every 60 ms.
        for (limit, every_us) in [(1_000, 1_000), (1_000, 5_000), (100, 9_000), (100, 70_000)] {
            let mut awake = Kit::new(Some(limit), None);
            let mut resting = Kit::new(Some(limit), None);
            let (mut missed, mut visited, mut woken) = (0, NOW, 0);
            for n in 0..2_000 {
                let is_urgent = awake.hit("acme", 1);
                let wakes = resting.wakes("acme", 1);
                assert!(wakes || !is_urgent, "{limit}, {every_us}, {n}");
                woken += usize::from(wakes);
                missed += 1;
                awake.now = awake.now.plus(Span::from_micros(every_us));
                resting.now = awake.now;
                if wakes || Span::from_millis(60) <= resting.now.since(visited) {
                    for _ in 0..std::mem::take(&mut missed) {
                        resting.hit("acme", 1);
                    }
                    resting.urgency.visits();
                    visited = resting.now;
                }
            }
            // From a quarter of the limit a second on.
            assert_eq!(
                0 < woken,
                limit * every_us < 4_000_000,
                "{limit}, {every_us}"
            );
        }
    }

    #[test]
    fn a_call_that_cannot_wait_wakes_a_resting_flusher() {
        let kit = Kit::new(Some(1_000), None);
        assert!(!kit.wakes("acme", 24) && kit.wakes("acme", 1) && !kit.wakes("globex", 1));
        kit.urgency.visits();
        assert!(!kit.wakes("acme", 1) && kit.wakes("globex", 25));
        // Pairs at their limit, low and unknown limits, and all domains together.
        let fingerprint = kit.resource.fingerprint("initech");
        let recent = kit.urgency.view.recent();
        recent.note(fingerprint, NOW.plus(Span::from_secs(1)));
        assert!(kit.wakes("initech", 1));
        assert!(Kit::new(Some(4), None).wakes("acme", 1));
        let all = Kit::new(None, Some(1_000));
        let woken = (0..30).filter(|n| all.wakes(&format!("t{n}"), 1)).count();
        assert_eq!(woken, 6, "from the 25th on");
        let mut unknown = Kit::new(None, None);
        assert!(!unknown.wakes("acme", 1));
        unknown.resource = Resource::new(ResourceId(0), "r", 1);
        assert!(unknown.wakes("acme", 1));
        // And so many that buffers could fill.
        let many = Kit::new(None, None);
        let woken = (0..1_060).filter(|_| many.wakes("acme", 1)).count();
        assert_eq!(woken, 100);
    }

    #[test]
    fn calls_that_could_fill_half_a_buffer_wake_a_resting_flusher() {
        let urgency = Urgency::new(Arc::new(DenyView::new(64)), Span::from_millis(60), 170);
        let woken = |calls| (0..calls).filter(|_| urgency.fills()).count();
        assert_eq!(woken(100), 15);
        urgency.visits();
        assert_eq!(woken(85), 0);
    }
}
