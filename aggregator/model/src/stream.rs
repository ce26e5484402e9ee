//! The stream reading of one pair: its copies were let through already, so granted copies and excess both count.
//!
//! ```text
//! windows 3 per 1 s
//! entry    5 copies at 0.0     3 granted, 2 excess: 5 count, denied until 1.000001
//! entry    4 copies at 0.5     4 excess, of which 1 counts: debt ends at twice the limit
//! entry    1 copy at 0.3       late: no room at 0.5, so it is excess; nothing more counts
//! entry    9 copies at 1.0, unguarded      9 excess: unguarded excess is no debt
//! ```
//!
//! Knows nothing of agents, clocks or records: instants come corrected, in log order. What stays
//! true: the pair's time is the greatest instant among its own entries and never runs backwards.

use crate::limits::DomainLimits;
use crate::rules::PairState;
use crate::verdict::{Cause, End, Standing, Until};

/// The least time that a pair stays after its own time, in microseconds. Older hits are only counted by then, so no
/// hit can find its pair evicted and its time lost.
pub(crate) const STAYS_US: u64 = 600_000_000;

/// The length of a tick's slot, in microseconds: the slot is the append time divided by it.
pub(crate) const SLOT_US: u64 = 500_000;

/// How long after its time a pair that remembers nothing for longer stays when room is needed: a second, ten or a
/// minute, and a slot, since a full window denies for a microsecond longer than its length.
const RESTS_US: [u64; 3] = [1_500_000, 10_500_000, 60_500_000];

/// The least of these lengths that is not shorter than `remembers_us`.
pub(crate) fn rest_us(remembers_us: u64) -> Option<u64> {
    RESTS_US
        .into_iter()
        .find(|rest_us| remembers_us <= *rest_us)
}

/// How many missed steps of the limits a pair goes through one by one; those before them count as one.
pub(crate) const STEPS_MAX: u64 = 255;

/// A denial: the pair is refused until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// When it ends by itself.
    pub end: End,
    /// The constraint that closed the pair at the instant at which the denial was ruled.
    pub cause: Cause,
}

/// The result for an entry, and the state of the pair at its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryOutcome {
    /// Copies that every constraint had room for.
    pub granted: u64,
    /// Copies that were let through although some constraint had no room.
    pub excess: u64,
    /// Copies that were too late to decide. The three add up to the entry's copies.
    pub late: u64,
    /// Copies of the excess that every constraint of the domain counted as debt.
    pub counted: u64,
    /// Copies that a settlement took out of the constraint that gave most.
    pub refunded: u64,
    /// The constraint that had no room for the first copy that was not granted.
    pub limited_by: Option<Cause>,
    /// The current tier; 0 if no tier is current.
    pub tier: usize,
    /// Copies in the current tier's window.
    pub tier_hits: u64,
    /// The denial in force after the entry.
    pub denied: Option<Denial>,
}

impl EntryOutcome {
    /// The end of the denial in force after the entry.
    pub fn denied_until(&self) -> Option<End> {
        self.denied.map(|denial| denial.end)
    }
}

/// Operators' acts in force over a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Over {
    /// The end of its ban.
    pub ban: Option<End>,
    /// The end of its pardon: until then, or until they grant a hit that is not late, its limits deny nothing, in microseconds.
    pub pardon_us: Option<u64>,
}

impl Over {
    /// Whether the ban covers a hit stamped `at_us`.
    pub fn bans(self, at_us: u64) -> bool {
        self.ban.is_some_and(|end| end.is_after(at_us))
    }

    /// The denial to state at `now_us` if the limits alone would deny `own`: of a ban and a denial the one that
    /// ends later, and the ban if they end together.
    fn stated(self, own: Option<Denial>, now_us: u64) -> Option<Denial> {
        let pardoned = self.pardon_us.is_some_and(|until_us| now_us < until_us);
        let own = own.filter(|_| !pardoned);
        let ban = self.ban.filter(|end| end.is_after(now_us));
        let ban = ban.map(|end| Denial {
            end,
            cause: Cause::Banned,
        });
        match (own, ban) {
            (Some(own), Some(ban)) if ban.end < own.end => Some(own),
            (own, ban) => ban.or(own),
        }
    }
}

/// The state of one pair after its records in the log.
#[derive(Clone, Debug)]
pub struct StreamPair {
    /// The limits of its last ruling, which shape its state.
    limits: DomainLimits,
    /// The step of the limits at its last ruling.
    step: u64,
    /// Its limits by the steps since then that changed them; they shape its state at its next ruling.
    missed: Vec<(u64, DomainLimits)>,
    state: PairState,
    /// `None` before the first entry.
    time_us: Option<u64>,
    denied: Option<Denial>,
    over: Over,
    /// The instant after which it may be evicted, by the limits of its last ruling. `None` means never.
    stays_us: Option<u64>,
    /// How long after its time the pair remembers anything, as one of the lengths in [`RESTS_US`]. `None` means
    /// longer, or that the denial was ruled again at another instant than the pair's time.
    rests_us: Option<u64>,
}

impl StreamPair {
    /// A pair without entries. The limits are normalised here.
    pub fn new(limits: &DomainLimits) -> Self {
        let limits = limits.normalized();
        Self {
            state: PairState::new(&limits, 0),
            limits,
            step: 0,
            missed: Vec::new(),
            time_us: None,
            denied: None,
            over: Over::default(),
            stays_us: Some(STAYS_US),
            rests_us: None,
        }
    }

    /// The same pair, begun at a step of the limits.
    pub(crate) fn begun_at(self, step: u64) -> Self {
        Self { step, ..self }
    }

    /// Rules one entry: `n` copies at `at_us`. Excess of unguarded copies is only tallied.
    ///
    /// A copy is late if its stamp is below the pair's time ("a stamp equal to the pair's time is not late"). An
    /// entry that is not late moves the pair's time, whatever the result for its copies.
    pub fn entry(&mut self, at_us: u64, n: u64, unguarded: bool) -> EntryOutcome {
        self.copies(at_us, n, unguarded, false)
    }

    /// The same for copies with an estimated cost; a later settlement refers to what they counted.
    pub fn estimate(&mut self, at_us: u64, n: u64, unguarded: bool) -> EntryOutcome {
        self.copies(at_us, n, unguarded, true)
    }

    fn copies(&mut self, at_us: u64, n: u64, unguarded: bool, estimated: bool) -> EntryOutcome {
        let now_us = self.move_time(at_us);
        self.state.expect(estimated);
        let (limits, state) = (&self.limits, &mut self.state);
        let mut outcome = EntryOutcome::default();
        // `None`: too late to decide, so the copies are only counted.
        let granted = if self.over.bans(at_us) {
            outcome.limited_by = Some(Cause::Banned);
            Some(0)
        } else {
            let granted = match at_us < now_us {
                true => state.late_request(limits, now_us, at_us, n),
                false => Some(state.request(limits, now_us, n, 0, None)),
            };
            outcome.limited_by = granted.and_then(|granted| granted.stopped_by);
            granted.map(|granted| granted.copies)
        };
        match granted {
            Some(granted) => (outcome.granted, outcome.excess) = (granted, n - granted),
            None => outcome.late = n,
        }
        if !unguarded && 0 < outcome.excess {
            outcome.counted = state.excess(limits, now_us, at_us, outcome.excess);
        }
        // The limits have let it in, so the pardon has done its work. What is late may be granted in an earlier period
        // of a quota, which shows nothing of this one.
        if at_us == now_us && 0 < outcome.granted {
            self.over.pardon_us = None;
        }
        self.stand(now_us, outcome)
    }

    /// A downward settlement at `at_us`: an estimate of `estimated` copies made at `made_us` cost only `actual`. It
    /// moves the pair's time as any entry does.
    pub fn settle(
        &mut self,
        at_us: u64,
        made_us: u64,
        estimated: u64,
        actual: u64,
    ) -> EntryOutcome {
        let now_us = self.move_time(at_us);
        let mut outcome = EntryOutcome::default();
        if !self.limits.no_refunds {
            let (limits, state) = (&self.limits, &mut self.state);
            outcome.refunded = state.settle(limits, now_us, made_us, estimated, actual);
        }
        self.stand(now_us, outcome)
    }

    /// The counts of the pair's constraints at its time.
    pub fn standing(&self) -> Standing {
        self.state.standing(&self.limits, self.time_us.unwrap_or(0))
    }

    fn move_time(&mut self, at_us: u64) -> u64 {
        // Before its first entry the pair has no time.
        if self.time_us.is_none() {
            self.state = PairState::new(&self.limits, at_us);
        }
        let now_us = self.time_us.map_or(at_us, |time_us| time_us.max(at_us));
        self.time_us = Some(now_us);
        self.state.advance(&self.limits, now_us);
        now_us
    }

    /// "Whenever a scope is not open after an entry, there is a denial until it is open again":
    /// after any entry, a late one too.
    fn stand(&mut self, now_us: u64, outcome: EntryOutcome) -> EntryOutcome {
        self.denied = self.over.stated(self.rule_denial(now_us), now_us);
        self.stay();
        let standing = self.state.standing(&self.limits, now_us);
        EntryOutcome {
            tier: standing.tier,
            tier_hits: standing.tier_hits,
            denied: self.denied,
            ..outcome
        }
    }

    /// Applies a new version whose record has the instant `at_us`. Returns the denial that is still in force.
    ///
    /// A denial that has ended by then stays ended, and a version starts no denial.
    pub fn new_limits(&mut self, at_us: u64, limits: &DomainLimits) -> Option<Denial> {
        self.reshape(limits);
        self.version(at_us)
    }

    /// The same for a step of the limits that may have left the pair's own ones unchanged. Only a denied pair comes under
    /// them now: "every other pair follows at its next entry".
    pub(crate) fn new_version(
        &mut self,
        step: u64,
        at_us: u64,
        limits: &DomainLimits,
    ) -> Option<Denial> {
        let limits = limits.normalized();
        let last = self.missed.last().map_or(&self.limits, |(_, last)| last);
        if limits != *last {
            self.missed.push((step, limits));
        }
        if self.denied.is_some_and(|denial| denial.end.is_after(at_us)) {
            self.come_to(step);
        }
        self.version(at_us)
    }

    /// The same for a version whose rows name the pair: it comes under its limits now, denied or not.
    pub(crate) fn new_row(&mut self, step: u64, at_us: u64, limits: &DomainLimits) {
        self.come_to(step);
        if limits.normalized() != self.limits {
            self.reshape(limits);
        }
        self.version(at_us);
    }

    /// Brings the pair under a step of the limits, through those that it missed. If these are more than [`STEPS_MAX`],
    /// those before them count as one.
    pub(crate) fn come_to(&mut self, step: u64) {
        let oldest = step.saturating_sub(STEPS_MAX);
        if self.step < oldest {
            let as_one = self.missed.partition_point(|(of, _)| *of <= oldest);
            if let Some((_, limits)) = self.missed.drain(..as_one).next_back() {
                let time_us = self.time_us.unwrap_or(0);
                self.state.follow(&self.limits, &limits, time_us);
                self.limits = limits;
            }
        }
        for (_, limits) in std::mem::take(&mut self.missed) {
            self.reshape(&limits);
        }
        self.step = step;
    }

    fn reshape(&mut self, limits: &DomainLimits) {
        let limits = limits.normalized();
        let time_us = self.time_us.unwrap_or(0);
        self.state.reshape(&self.limits, &limits, time_us);
        self.limits = limits;
    }

    fn version(&mut self, at_us: u64) -> Option<Denial> {
        let denied = self.in_force(at_us);
        let was_denied = std::mem::replace(&mut self.denied, denied);
        if self.denied.is_some() {
            self.rule_again(at_us);
        } else if was_denied.is_some_and(|denial| denial.end.is_after(at_us)) {
            // The denial has ended at the pair's own time and is still ruled again. A pair that was not denied when
            // the version came stays undenied, and stays in the table as long as its older limits require.
            self.stay();
        }
        self.denied
    }

    /// The same if the resource has no limits any more: only a ban remains.
    pub(crate) fn no_limits(&mut self, step: u64, at_us: u64) {
        let denied = self.in_force(at_us);
        self.new_version(step, at_us, &DomainLimits::default());
        self.denied = denied;
        if denied.is_some() {
            self.free(at_us);
        }
    }

    /// Rules the denial again at the later of the pair's time and `at_us`. Only a ban starts a new denial.
    pub(crate) fn rule_again(&mut self, at_us: u64) {
        let now_us = self.time_us.unwrap_or(0).max(at_us);
        let before = self.in_force(at_us);
        let own = before.and_then(|_| self.rule_denial(now_us));
        self.denied = self.over.stated(own, now_us);
        self.stay();
        self.rests_no_more(before);
    }

    /// The same if the resource has no limits: only a ban denies.
    pub(crate) fn free(&mut self, at_us: u64) {
        let now_us = self.time_us.unwrap_or(0).max(at_us);
        let before = self.in_force(at_us);
        self.denied = self.over.stated(None, now_us);
        self.stay();
        self.rests_no_more(before);
    }

    fn rests_no_more(&mut self, before: Option<Denial>) {
        if before.or(self.denied).is_some() {
            self.rests_us = None;
        }
    }

    /// Computes, after an entry ruled at the pair's own time, how long the pair remembers anything.
    pub(crate) fn rest(&mut self) {
        let time_us = self.time_us.unwrap_or(0);
        self.rests_us = self
            .matters_until_us()
            .and_then(|until_us| rest_us(until_us.saturating_sub(time_us)));
    }

    /// Whether everything that it remembered at its last entry was over at a slot's begin.
    pub(crate) fn rested_by(&self, slot: u64) -> bool {
        let time_us = self.time_us.unwrap_or(0);
        self.rests_us
            .is_some_and(|rests_us| (time_us + rests_us) / SLOT_US < slot)
    }

    /// Sets the operators' acts in force over the pair.
    pub(crate) fn set_over(&mut self, over: Over) {
        self.over = over;
    }

    /// Resets every constraint, as if the pair had never had a hit.
    pub(crate) fn reset(&mut self) {
        self.state = PairState::new(&self.limits, self.time_us.unwrap_or(0));
    }

    /// Takes copies out again, as an operator's refund does.
    pub(crate) fn refund(&mut self, hits: u64) {
        let now_us = self.time_us.unwrap_or(0);
        self.state.refund(&self.limits, now_us, hits);
    }

    /// Takes the pair's debt back to its limits and, if the limits deny the pair and ever open it, pardons it until
    /// they would. Returns the end of the pardon, in microseconds.
    pub(crate) fn pardon(&mut self, at_us: u64) -> Option<u64> {
        let now_us = self.time_us.unwrap_or(0).max(at_us);
        self.in_force(at_us)?;
        let time_us = self.time_us.unwrap_or(0);
        self.state.forgive(&self.limits, time_us);
        let Some(End::At(until_us)) = self.rule_denial(now_us).map(|denial| denial.end) else {
            return None;
        };
        self.over.pardon_us = Some(until_us);
        Some(until_us)
    }

    /// The pair's time, in microseconds; `None` before its first entry.
    pub fn time_us(&self) -> Option<u64> {
        self.time_us
    }

    /// The denial at its last ruling; it may have ended by itself since.
    pub fn denied(&self) -> Option<Denial> {
        self.denied
    }

    /// The instant after which the pair may be evicted: after its windows, active times, cooldowns and
    /// denials, the ends of its quotas' periods, the instant at which its bucket is full, and 10 minutes after
    /// its own time. `None` means never.
    ///
    /// All of this by the limits of its last ruling: a version rules only denied pairs again.
    pub fn stays_until_us(&self) -> Option<u64> {
        self.stays_us
    }

    fn stay(&mut self) {
        let stays_us = self.time_us.unwrap_or(0).saturating_add(STAYS_US);
        let matters_us = self.matters_until_us();
        if matters_us.is_none_or(|matters_us| stays_us < matters_us) {
            self.rests_us = None;
        }
        self.stays_us = matters_us.map(|matters_us| matters_us.max(stays_us));
    }

    /// The same without the 10 minutes: until when anything that it remembers matters.
    pub fn matters_until_us(&self) -> Option<u64> {
        let time_us = self.time_us.unwrap_or(0);
        let matters_us = self.state.last_matter_us(&self.limits, time_us);
        let denied_us = match self.denied.map(|denial| denial.end) {
            Some(End::Never) => return None,
            Some(End::At(end_us)) => end_us,
            None => 0,
        };
        Some(matters_us.max(denied_us))
    }

    /// The denial, unless it has ended at the later of the pair's time and `at_us`.
    fn in_force(&self, at_us: u64) -> Option<Denial> {
        let now_us = self.time_us.unwrap_or(0).max(at_us);
        self.denied.filter(|denial| denial.end.is_after(now_us))
    }

    fn rule_denial(&self, now_us: u64) -> Option<Denial> {
        let end = match self.state.open_again(&self.limits, now_us) {
            Until::Now => return None,
            Until::At(end_us) => End::At(end_us),
            Until::Never => End::Never,
        };
        // People read the end and the cause together: the cause is what lasts longest.
        let last_us = match end {
            End::At(end_us) => end_us - 1,
            End::Never => now_us,
        };
        let cause = match self.state.closed_by(&self.limits, last_us)? {
            Cause::Tier(_) => self.state.current_tier(&self.limits, now_us),
            other => other,
        };
        Some(Denial { end, cause })
    }
}
