//! Whose clock is wrong: agents whose stamps the engine moved, by name.
//!
//! ```text
//! web-7   +3 600 000 000 us   its stamps are moved an hour on: its clock is an hour behind
//! ```
//!
//! Knows nothing of how a clock is judged. What stays true: so many agents are named at most, and one
//! whose stamps are right again for a while is shown with 0.

use std::collections::BTreeMap;

use tollgate_engine::engine::Correction;
use tollgate_shared::time::Span;

use super::view::ClockView;

/// Agents that are named. Those beyond are counted with all others.
const NAMED_MAX: usize = 64;

/// For so long an agent is shown after its stamps were moved last.
const SHOWN_FOR: Span = Span::from_secs(120);

/// Said again once it differs by so much from what was said.
const WORTH_SAYING_US: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Wrong {
    moved_us: i64,
    said_us: i64,
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
        if let Some(known) = self.wrong.get_mut(agent) {
            let lasts = clock.saturating_sub(known.at) <= SHOWN_FOR;
            (known.moved_us, known.at) = (moved_us, clock);
            if lasts && known.said_us.abs_diff(moved_us) < WORTH_SAYING_US {
                return;
            }
            known.said_us = moved_us;
        } else if self.wrong.len() < NAMED_MAX {
            let wrong = Wrong {
                moved_us,
                said_us: moved_us,
                at: clock,
            };
            self.wrong.insert(agent.clone(), wrong);
        } else {
            return;
        }
        tracing::warn!(
            agent = &**agent,
            moved_us,
            "an agent's clock is wrong: its stamps are moved"
        );
    }

    /// All that were ever named, by name.
    pub fn view(&self, clock: Span) -> Vec<ClockView> {
        let wrong = self.wrong.iter().map(|(agent, wrong)| ClockView {
            agent: agent.to_string(),
            moved_us: match clock.saturating_sub(wrong.at) <= SHOWN_FOR {
                true => wrong.moved_us,
                false => 0,
            },
        });
        wrong.collect()
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

    #[test]
    fn an_agent_is_named_while_its_stamps_are_moved_and_no_more_than_so_many_are() {
        let mut clocks = Clocks::default();
        clocks.note(Span::from_secs(1), &moved("web-7", -400_000));
        clocks.note(Span::from_secs(2), &moved("web-7", -500_000));
        let shown = |clocks: &Clocks, at| {
            let views = clocks.view(Span::from_secs(at));
            views
                .iter()
                .find(|view| view.agent == "web-7")
                .map(|view| view.moved_us)
        };
        assert_eq!(shown(&clocks, 122), Some(-500_000));
        assert_eq!(shown(&clocks, 123), Some(0));
        for n in 0..100 {
            clocks.note(Span::from_secs(3), &moved(&format!("agent-{n}"), 1));
        }
        assert_eq!(clocks.view(Span::from_secs(3)).len(), NAMED_MAX);
        assert_eq!(shown(&clocks, 3), Some(-500_000));
    }
}
