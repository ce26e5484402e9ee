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
                // An agent that was not reported yet makes room for the new one.
                let over = { self.wrong.iter() }
                    .find(|(_, wrong)| wrong.said_us.is_none())
                    .map(|(agent, _)| agent.clone());
                let Some(over) = over else { return };
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

    /// All agents that were ever reported, by name.
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
