//! Which agents have gone silent: their heartbeats compared with counted ticks.
//!
//! ```text
//! timeout 2s = 4 ticks     heartbeat at tick 10     gone with tick 14
//! kept for 6 ticks more                             forgotten with tick 20, unless another heartbeat comes before
//! 5s between two ticks     heartbeat at tick 10     gone with tick 34: 10s = 20 ticks more, as nobody could be heard
//! ```
//!
//! Silence is counted in ticks that are in the log. So while the log stalls no agent counts as
//! gone, and two aggregators come to the same result. After a stall agents need time to come back: see
//! [`grace_after`]. A new timeout counts from the next heartbeat. There is one [`Silence`] for each partition,
//! over all its resources. Knows nothing of holds. What stays true: an agent is gone exactly when the ticks of
//! the timeout and of its grace have been counted since its last heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::heartbeat::RECONNECT_PAUSE_MAX;

/// The length of the slot that a counted tick stands for.
pub const TICK: Span = Span::from_millis(500);

/// The number of ticks in a timeout, at least one.
pub fn ticks_of(timeout: Span) -> u64 {
    timeout.as_micros().div_ceil(TICK.as_micros()).max(1)
}

/// Ticks this far apart, or less, paused for nobody. An aggregator sends a tick each 250 ms, and each 400 ms in a
/// quiet partition; the first tick in each half second counts. So counted ticks are at most 800 ms apart if none is
/// late or lost, and a fifth of a second is left for a late one. An agent that was cut off for a second at most
/// returns within the least timeout that is recommended, two seconds.
const APART_MAX: Span = Span::from_secs(1);

/// The longest grace: an agent's longest pause between two attempts to connect, and what connecting, its hello and
/// its first heartbeat may take at an aggregator to which all agents return at once.
const GRACE_MAX: Span = RECONNECT_PAUSE_MAX.saturating_add(Span::from_secs(5));

/// By how many ticks more an agent may be silent if the ticks paused from `before` to `now`.
///
/// Without ticks there was no log or no aggregator, so that no agent could be heard either. An agent that finds no
/// aggregator makes longer and longer pauses between its attempts. A pause is half as long as the outage so far, or
/// as long if chance shortened those before it. So the agent returns within one more length of the outage, or within
/// its longest pause; the grace is twice that length.
pub fn grace_after(before: Timestamp, now: Timestamp) -> u64 {
    let pause_us = now.as_micros().saturating_sub(before.as_micros());
    if pause_us <= APART_MAX.as_micros() {
        return 0;
    }
    let grace = Span::from_micros(pause_us.saturating_mul(2));
    ticks_of(grace.min(GRACE_MAX))
}

/// An agent's last heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastHeartbeat {
    /// How many ticks had been counted.
    pub at: u64,
    /// By how many ticks more the agent may be silent, because ticks paused since, or the timeout was longer then.
    pub grace: u64,
}

impl LastHeartbeat {
    /// The tick from which the timeout is counted.
    fn counts_from(self) -> u64 {
        self.at.saturating_add(self.grace)
    }
}

/// Agents by their last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence<A> {
    ticks: u64,
    last_heartbeat: BTreeMap<A, LastHeartbeat>,
    /// By the tick from which each one's timeout is counted.
    by_heartbeat: BTreeSet<(u64, A)>,
    gone: BTreeMap<A, u64>,
    by_going: BTreeSet<(u64, A)>,
}

/// Agents whose time a tick has ended; each list ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed<A> {
    /// Silent for the whole timeout.
    pub gone: Vec<A>,
    /// Gone for as long as gone agents are kept.
    pub forgotten: Vec<A>,
}

impl<A: Ord + Clone> Silence<A> {
    /// No agent has sent a heartbeat yet.
    pub fn new() -> Self {
        Self::restore(0, [], [])
    }

    /// Notes an agent's heartbeat. Returns whether the agent was gone and comes back.
    pub fn heartbeat(&mut self, agent: &A) -> bool {
        let returned = self.remove_gone(agent);
        let heard = LastHeartbeat {
            at: self.ticks,
            grace: 0,
        };
        if let Some(before) = self.last_heartbeat.insert(agent.clone(), heard) {
            self.by_heartbeat
                .remove(&(before.counts_from(), agent.clone()));
        }
        self.by_heartbeat.insert((self.ticks, agent.clone()));
        returned
    }

    /// An agent's epoch is over: no more heartbeats are expected.
    pub fn over(&mut self, agent: &A) {
        self.remove_gone(agent);
        if let Some(before) = self.last_heartbeat.remove(agent) {
            self.by_heartbeat
                .remove(&(before.counts_from(), agent.clone()));
        }
    }

    /// Ticks paused: every agent may be silent by this many ticks more, until it sends a heartbeat. Of several
    /// pauses since its last heartbeat the longest grace counts, so that the copies of a dead agent come back
    /// although pauses do not end.
    pub fn paused(&mut self, grace_ticks: u64) {
        if grace_ticks == 0 {
            return;
        }
        for heard in self.last_heartbeat.values_mut() {
            heard.grace = heard.grace.max(grace_ticks);
        }
        self.by_heartbeat = by_silence(&self.last_heartbeat);
    }

    /// The timeout changes. Until an agent sends its next heartbeat, it is not gone before the timeout under which it
    /// sent its last one has passed: the pauses between its heartbeats may be longer than the new timeout.
    pub fn new_timeout(&mut self, before_ticks: u64, ticks: u64) {
        if before_ticks == ticks {
            return;
        }
        for heard in self.last_heartbeat.values_mut() {
            let left = heard.grace.saturating_add(before_ticks);
            heard.grace = left.saturating_sub(ticks);
        }
        self.by_heartbeat = by_silence(&self.last_heartbeat);
    }

    /// Counts a tick.
    pub fn tick(&mut self, timeout_ticks: u64, kept_ticks: u64) -> Passed<A> {
        self.ticks += 1;
        let forgotten = take_due(&mut self.by_going, self.ticks, kept_ticks);
        for agent in &forgotten {
            self.gone.remove(agent);
        }
        let gone = take_due(&mut self.by_heartbeat, self.ticks, timeout_ticks);
        for agent in &gone {
            self.last_heartbeat.remove(agent);
            self.gone.insert(agent.clone(), self.ticks);
            self.by_going.insert((self.ticks, agent.clone()));
        }
        Passed { gone, forgotten }
    }

    /// Whether an agent is gone and not forgotten.
    pub fn is_gone(&self, agent: &A) -> bool {
        self.gone.contains_key(agent)
    }

    /// Whether an agent sends heartbeats, or is gone but not forgotten.
    pub fn knows(&self, agent: &A) -> bool {
        self.last_heartbeat.contains_key(agent) || self.gone.contains_key(agent)
    }

    /// The agent that has been gone for longest.
    pub fn longest_gone(&self) -> Option<&A> {
        self.by_going.first().map(|(_, agent)| agent)
    }

    /// Number of agents that send heartbeats, or are gone but not forgotten.
    pub fn len(&self) -> usize {
        self.last_heartbeat.len() + self.gone.len()
    }

    /// Whether no agent is known.
    pub fn is_empty(&self) -> bool {
        self.last_heartbeat.is_empty() && self.gone.is_empty()
    }

    /// How many ticks had been counted at an agent's last heartbeat, if it is not gone.
    pub fn last_heartbeat_of(&self, agent: &A) -> Option<u64> {
        self.last_heartbeat.get(agent).map(|heard| heard.at)
    }

    /// Ticks counted.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Agents that send heartbeats, ascending from this one on.
    pub fn present_from(&self, agent: &A) -> impl Iterator<Item = (&A, u64)> {
        let from = (Bound::Included(agent), Bound::Unbounded);
        self.last_heartbeat
            .range::<A, _>(from)
            .map(|(agent, heard)| (agent, heard.at))
    }

    /// Agents that send heartbeats, ascending, each with its last heartbeat.
    pub fn present(&self) -> impl Iterator<Item = (&A, LastHeartbeat)> {
        { self.last_heartbeat.iter() }.map(|(agent, heard)| (agent, *heard))
    }

    /// Agents that are gone, ascending, each with the tick at which it was counted as gone.
    pub fn gone(&self) -> impl Iterator<Item = (&A, u64)> {
        self.gone.iter().map(|(agent, at)| (agent, *at))
    }

    /// Restores the state from what [`ticks`](Self::ticks), [`present`](Self::present) and
    /// [`gone`](Self::gone) returned.
    pub fn restore(
        ticks: u64,
        present: impl IntoIterator<Item = (A, LastHeartbeat)>,
        gone: impl IntoIterator<Item = (A, u64)>,
    ) -> Self {
        let last_heartbeat: BTreeMap<A, LastHeartbeat> = present.into_iter().collect();
        let gone: BTreeMap<A, u64> = gone.into_iter().collect();
        Self {
            ticks,
            by_heartbeat: by_silence(&last_heartbeat),
            by_going: gone.iter().map(|(a, at)| (*at, a.clone())).collect(),
            last_heartbeat,
            gone,
        }
    }

    fn remove_gone(&mut self, agent: &A) -> bool {
        let Some(at) = self.gone.remove(agent) else {
            return false;
        };
        self.by_going.remove(&(at, agent.clone()))
    }
}

impl<A: Ord + Clone> Default for Silence<A> {
    fn default() -> Self {
        Self::new()
    }
}

fn by_silence<A: Ord + Clone>(heard: &BTreeMap<A, LastHeartbeat>) -> BTreeSet<(u64, A)> {
    let entry = |(agent, heard): (&A, &LastHeartbeat)| (heard.counts_from(), agent.clone());
    heard.iter().map(entry).collect()
}

fn take_due<A: Ord + Clone>(waiting: &mut BTreeSet<(u64, A)>, now: u64, span: u64) -> Vec<A> {
    let mut due = Vec::new();
    while waiting
        .first()
        .is_some_and(|(since, _)| span <= now.saturating_sub(*since))
    {
        due.extend(waiting.pop_first().map(|(_, agent)| agent));
    }
    due.sort_unstable();
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(silence: &mut Silence<&'static str>, count: u64) -> Vec<&'static str> {
        (0..count).flat_map(|_| silence.tick(4, 6).gone).collect()
    }

    #[test]
    fn an_agent_is_gone_after_the_ticks_of_its_timeout() {
        let mut silence = Silence::new();
        assert_eq!(ticks_of(Span::from_secs(2)), 4);
        assert!(!silence.heartbeat(&"a"));
        assert!(ticks(&mut silence, 3).is_empty());
        silence.heartbeat(&"a");
        silence.heartbeat(&"b");
        assert!(ticks(&mut silence, 3).is_empty());
        silence.heartbeat(&"b");
        assert_eq!(ticks(&mut silence, 1), ["a"]);
        assert!(silence.is_gone(&"a") && !silence.is_gone(&"b"));
    }

    #[test]
    fn without_ticks_no_agent_is_gone() {
        let mut silence = Silence::new();
        silence.heartbeat(&"a");
        assert_eq!(silence.gone().count(), 0);
        assert_eq!(
            silence.present().collect::<Vec<_>>(),
            [(&"a", LastHeartbeat::default())]
        );
    }

    #[test]
    fn grace_is_twice_the_pause_up_to_the_longest_return() {
        let grace = |ms: u64| {
            let before = Timestamp::from_millis(7_000);
            grace_after(before, Timestamp::from_millis(7_000 + ms))
        };
        assert_eq!([grace(400), grace(800), grace(1_000)], [0, 0, 0]);
        assert_eq!([grace(1_001), grace(6_000), grace(9_999)], [5, 24, 40]);
        assert_eq!([grace(10_000), grace(60_000)], [40, 40]);
        assert_eq!(grace_after(Timestamp::MAX, Timestamp::ZERO), 0);
    }

    #[test]
    fn after_a_pause_only_those_not_heard_since_have_longer() {
        let mut silence = Silence::new();
        silence.heartbeat(&"lives");
        silence.heartbeat(&"dead");
        assert!(ticks(&mut silence, 3).is_empty());
        silence.paused(5);
        assert!(ticks(&mut silence, 2).is_empty(), "the timeout has passed");
        silence.heartbeat(&"lives");
        silence.paused(2);
        assert_eq!(ticks(&mut silence, 4), ["dead"], "9 ticks in all");
        silence.heartbeat(&"lives");
        assert_eq!(ticks(&mut silence, 4), ["lives"]);
    }

    #[test]
    fn pauses_without_end_do_not_keep_the_dead() {
        let mut silence = Silence::new();
        silence.heartbeat(&"dead");
        let gone = (1..=12).find(|_| {
            silence.paused(5);
            !ticks(&mut silence, 1).is_empty()
        });
        assert_eq!(gone, Some(9));
    }

    #[test]
    fn gone_agents_are_kept_for_a_while_and_then_forgotten() {
        let mut silence = Silence::new();
        silence.heartbeat(&"a");
        silence.heartbeat(&"b");
        assert_eq!(ticks(&mut silence, 4), ["a", "b"]);
        ticks(&mut silence, 5);
        assert!(silence.heartbeat(&"a"));
        let passed = silence.tick(4, 6);
        assert_eq!((passed.gone.len(), passed.forgotten), (0, vec!["b"]));
        silence.over(&"a");
        assert!(ticks(&mut silence, 9).is_empty());
    }

    #[test]
    fn a_restored_list_declares_the_same_agents_gone() {
        let mut silence = Silence::new();
        for (n, agent) in ["a", "b", "c", "d"].into_iter().enumerate() {
            silence.heartbeat(&agent);
            ticks(&mut silence, n as u64);
        }
        silence.paused(2);
        silence.heartbeat(&"d");
        let present = silence.present().map(|(a, heard)| (*a, heard));
        let gone = silence.gone().map(|(a, at)| (*a, at));
        let mut other = Silence::restore(silence.ticks(), present, gone);
        assert_eq!(other, silence);
        for _ in 0..9 {
            assert_eq!(silence.tick(4, 6), other.tick(4, 6));
        }
    }
}
