//! Agents whose clocks are wrong, by name: those whose time stamps the engine moved.
//!
//! ```text
//! web-7   +3 600 000 000 us   the engine moves its stamps an hour on: its clock is an hour behind
//! ```
//!
//! Knows nothing of how a clock is judged. What stays true: the number of named agents is bounded; an agent whose
//! stamps have been right again for [`SHOWN_FOR`] is shown with 0.

use std::collections::BTreeMap;

use tollgate_engine::engine::Correction;
use tollgate_shared::time::Span;

use super::view::ClockView;

/// Agents that are named. Further ones are only counted.
const NAMED_MAX: usize = 64;

/// How long an agent is shown after its stamps were last moved.
const SHOWN_FOR: Span = Span::from_secs(120);

/// How long an agent's stamps have to be moved before its clock, which seems to be behind, is reported. An agent
/// that has just started sends its first batches late (it looks for its aggregator, Kafka's client for the
/// brokers), and the engine does not know yet how long its batches take. The next batch corrects that; the clock is
/// not wrong.
const NAMED_AFTER: Span = Span::from_secs(5);

/// No batch is as late as this. A clock that is ahead is not explained by lateness either.
const LATE_US_MAX: i64 = 600_000_000;

/// A correction is logged again once it differs by this much from the one logged last.
const WORTH_SAYING_US: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Wrong {
    moved_us: i64,
    /// The correction logged last; `None`: not logged yet.
    said_us: Option<i64>,
    since: Span,
    at: Span,
}

/// Agents whose stamps were moved.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    wrong: BTreeMap<Box<str>, Wrong>,
}

impl Clocks {
    /// An agent's stamps were moved.
    pub fn note(&mut self, clock: Span, correction: &Correction) {
        let moved_us = correction.moved_us;
        let agent = &correction.agent;
        let new = Wrong {
            moved_us,
            said_us: None,
            since: clock,
            at: clock,
        };
        if !self.wrong.contains_key(agent) {
            if self.wrong.len() == NAMED_MAX {
                let Some(over) = self.replaceable(clock) else {
                    return;
                };
                self.wrong.remove(&over);
            }
            self.wrong.insert(agent.clone(), new);
        }
        let Some(known) = self.wrong.get_mut(agent) else {
            return;
        };
        if SHOWN_FOR < clock.saturating_sub(known.at) {
            *known = new;
        }
        (known.moved_us, known.at) = (moved_us, clock);
        let may_be_late = (0..LATE_US_MAX).contains(&moved_us);
        let lasts = !may_be_late || NAMED_AFTER <= clock.saturating_sub(known.since);
        let worth = known
            .said_us
            .is_none_or(|said_us| WORTH_SAYING_US <= said_us.abs_diff(moved_us));
        if lasts && worth {
            known.said_us = Some(moved_us);
            tracing::warn!(
                agent = &**agent,
                moved_us,
                "an agent's clock is wrong: its timestamps are corrected"
            );
        }
    }

    /// The agent that makes room for a new one: one that was not reported yet, else the one whose stamps have been right
    /// for longest.
    fn replaceable(&self, clock: Span) -> Option<Box<str>> {
        let is_over = |wrong: &Wrong| SHOWN_FOR < clock.saturating_sub(wrong.at);
        let may_go =
            { self.wrong.iter() }.filter(|(_, wrong)| wrong.said_us.is_none() || is_over(wrong));
        let over = may_go.min_by_key(|(_, wrong)| (wrong.said_us.is_some(), wrong.at));
        over.map(|(agent, _)| agent.clone())
    }

    /// The agents that were reported, by name. Those whose stamps are right again go once others need their places.
    pub fn view(&self, clock: Span) -> Vec<ClockView> {
        let named = self.wrong.iter();
        let named = named.filter(|(_, wrong)| wrong.said_us.is_some());
        let views = named.map(|(agent, wrong)| ClockView {
            agent: agent.to_string(),
            moved_us: match clock.saturating_sub(wrong.at) <= SHOWN_FOR {
                true => wrong.moved_us,
                false => 0,
            },
        });
        views.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(agent: &str, moved_us: i64) -> Correction {
        Correction {
            agent: agent.into(),
            moved_us,
        }
    }

    fn shown(clocks: &Clocks, at: u64) -> Option<i64> {
        let views = clocks.view(Span::from_secs(at));
        let view = views.iter().find(|view| view.agent == "web-7");
        view.map(|view| view.moved_us)
    }

    #[test]
    fn agents_with_wrong_clocks_are_named_up_to_a_bound() {
        let mut clocks = Clocks::default();
        clocks.note(Span::from_secs(1), &moved("web-7", -400_000));
        assert_eq!(shown(&clocks, 1), Some(-400_000));
        clocks.note(Span::from_secs(6), &moved("web-7", -500_000));
        assert_eq!(shown(&clocks, 126), Some(-500_000));
        assert_eq!(shown(&clocks, 127), Some(0));
        for n in 0..100 {
            for at in [7, 12] {
                clocks.note(Span::from_secs(at), &moved(&format!("agent-{n}"), 1));
            }
        }
        assert_eq!(clocks.view(Span::from_secs(12)).len(), NAMED_MAX);
        assert_eq!(shown(&clocks, 12), Some(-500_000));
    }

    #[test]
    fn agents_that_are_right_again_make_room_for_wrong_ones() {
        let mut clocks = Clocks::default();
        let ahead = -60_000_000;
        for n in 0..NAMED_MAX as u64 {
            clocks.note(Span::from_secs(n), &moved(&format!("agent-{n}"), ahead));
        }
        clocks.note(Span::from_secs(120), &moved("web-7", ahead));
        assert_eq!(shown(&clocks, 120), None, "all of them may still be wrong");
        clocks.note(Span::from_secs(200), &moved("web-7", ahead));
        assert_eq!(shown(&clocks, 200), Some(ahead));
        let views = clocks.view(Span::from_secs(200));
        assert_eq!(views.len(), NAMED_MAX);
        assert!(
            views.iter().all(|view| view.agent != "agent-0"),
            "it was right for longest"
        );
    }

    #[test]
    fn an_impossible_lateness_is_reported_at_once() {
        let mut clocks = Clocks::default();
        clocks.note(Span::from_secs(1), &moved("web-7", 3_600_000_000));
        assert_eq!(shown(&clocks, 1), Some(3_600_000_000));
    }

    #[test]
    fn late_first_batches_are_not_a_wrong_clock() {
        let mut clocks = Clocks::default();
        // As on Kafka: the first batch took 337 ms. The next ones were in time; later the agent starts again.
        for at in [1, 2, 200, 201] {
            clocks.note(Span::from_secs(at), &moved("web-7", 337_294));
        }
        assert_eq!(shown(&clocks, 201), None);
        clocks.note(Span::from_secs(205), &moved("web-7", 337_294));
        assert_eq!(shown(&clocks, 205), Some(337_294));
    }
}
