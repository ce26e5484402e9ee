//! Which agents have gone silent: their heartbeats compared with counted ticks.
//!
//! ```text
//! timeout 2s = 4 ticks     heartbeat at tick 10     gone with tick 14
//! kept for 6 ticks more                             forgotten with tick 20, unless another heartbeat comes before
//! ```
//!
//! Silence is counted in ticks that are in the log. So while the log stalls no agent counts as
//! gone, and two aggregators come to the same result. There is one [`Silence`] for each partition,
//! over all its resources. Knows nothing of holds. What stays true: an agent is gone exactly when
//! the ticks of the timeout have been counted since its last heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tollgate_shared::time::Span;

/// The length of the slot that a counted tick stands for.
pub const TICK: Span = Span::from_millis(500);

/// The number of ticks in a timeout, at least one.
pub fn ticks_of(timeout: Span) -> u64 {
    timeout.as_micros().div_ceil(TICK.as_micros()).max(1)
}

/// Agents by their last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence<A> {
    ticks: u64,
    last_heartbeat: BTreeMap<A, u64>,
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
        if let Some(before) = self.last_heartbeat.insert(agent.clone(), self.ticks) {
            self.by_heartbeat.remove(&(before, agent.clone()));
        }
        self.by_heartbeat.insert((self.ticks, agent.clone()));
        returned
    }

    /// An agent's epoch is over: no more heartbeats are expected.
    pub fn over(&mut self, agent: &A) {
        self.remove_gone(agent);
        if let Some(before) = self.last_heartbeat.remove(agent) {
            self.by_heartbeat.remove(&(before, agent.clone()));
        }
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
        self.last_heartbeat.get(agent).copied()
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
            .map(|(agent, at)| (agent, *at))
    }

    /// Agents that send heartbeats, ascending, each with the number of ticks counted before its last
    /// heartbeat.
    pub fn present(&self) -> impl Iterator<Item = (&A, u64)> {
        self.last_heartbeat.iter().map(|(agent, at)| (agent, *at))
    }

    /// Agents that are gone, ascending, each with the tick at which it was counted as gone.
    pub fn gone(&self) -> impl Iterator<Item = (&A, u64)> {
        self.gone.iter().map(|(agent, at)| (agent, *at))
    }

    /// Restores the state from what [`ticks`](Self::ticks), [`present`](Self::present) and
    /// [`gone`](Self::gone) returned.
    pub fn restore(
        ticks: u64,
        present: impl IntoIterator<Item = (A, u64)>,
        gone: impl IntoIterator<Item = (A, u64)>,
    ) -> Self {
        let last_heartbeat: BTreeMap<A, u64> = present.into_iter().collect();
        let gone: BTreeMap<A, u64> = gone.into_iter().collect();
        let turn = |by: &BTreeMap<A, u64>| by.iter().map(|(a, at)| (*at, a.clone())).collect();
        Self {
            ticks,
            by_heartbeat: turn(&last_heartbeat),
            by_going: turn(&gone),
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
        assert_eq!(silence.present().collect::<Vec<_>>(), [(&"a", 0)]);
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
        let present = silence.present().map(|(a, at)| (*a, at));
        let gone = silence.gone().map(|(a, at)| (*a, at));
        let mut other = Silence::restore(silence.ticks(), present, gone);
        assert_eq!(other, silence);
        for _ in 0..9 {
            assert_eq!(silence.tick(4, 6), other.tick(4, 6));
        }
    }
}
