//! Law 6: who is gone, counted beside the engine.
//!
//! ```text
//! beat      tick  tick  (the log stands still for a minute)  tick  tick: gone
//! ```
//!
//! A stalled log buries nobody: silence is counted in ticks, whatever time has passed between two of them. Knows
//! nothing of holds. What stays true: an agent is said to be gone with the tick that ends its timeout, and with no
//! other.

use std::collections::BTreeMap;

use tollgate_engine::engine::{AgentChange, Fate};
use tollgate_shared::wire::record::Record;

use super::watch::Ruled;

/// Counted ticks of the timeout of every document here, which is two seconds.
const TIMEOUT_TICKS: u64 = 4;

/// An agent's process: its name and its epoch.
pub(super) type Who = (Box<str>, u128);

/// Who was heard when.
#[derive(Debug, Default)]
pub(super) struct Silences {
    /// Ticks counted.
    ticks: u64,
    /// Those that are waited for, each with the ticks that had been counted when it was heard last.
    heard: BTreeMap<Who, u64>,
}

impl Ruled {
    /// Counts on, and holds whom the engine takes for gone against it.
    ///
    /// # Errors
    ///
    /// Who is gone too early, or not at all.
    pub(super) fn look_at_silence(&mut self, record: &Record<'_>) -> Result<(), String> {
        if self.rulings.fates == [Fate::Applied] {
            self.silences.hear(record);
        }
        let news = self.rulings.agents.iter();
        self.silences
            .look(news.map(|news| ((&*news.agent).into(), news.epoch, news.change)))
    }
}

impl Silences {
    /// How many ticks were counted.
    pub(super) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// A record that was applied.
    fn hear(&mut self, record: &Record<'_>) {
        let sender = match record {
            Record::Tick(_) => {
                self.ticks += 1;
                return;
            }
            Record::Holds(batch) => batch.sender,
            Record::Beat(beat) => beat.sender,
            _ => return,
        };
        let who = (sender.agent.into(), sender.epoch);
        self.heard.insert(who, self.ticks);
    }

    /// What the engine says that became of agents.
    fn look(
        &mut self,
        news: impl Iterator<Item = (Box<str>, u128, AgentChange)>,
    ) -> Result<(), String> {
        for (name, epoch, change) in news {
            let who = (name, epoch);
            match change {
                AgentChange::Gone { .. } => {
                    let heard = self.heard.remove(&who);
                    let silent = heard.map(|heard| self.ticks - heard);
                    if silent != Some(TIMEOUT_TICKS) {
                        let (name, epoch) = who;
                        return Err(format!(
                            "{name}, epoch {epoch:x}: gone, silent for {silent:?} ticks, expected {TIMEOUT_TICKS}"
                        ));
                    }
                }
                AgentChange::Over { .. } => drop(self.heard.remove(&who)),
                AgentChange::Returned | AgentChange::Twin => {}
            }
        }
        let is_late = |(_, heard): &(&Who, &u64)| TIMEOUT_TICKS <= self.ticks - **heard;
        match self.heard.iter().find(is_late) {
            Some(((name, epoch), heard)) => Err(format!(
                "{name}, epoch {epoch:x}: silent for {} ticks, and not gone",
                self.ticks - heard
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone() -> std::iter::Once<(Box<str>, u128, AgentChange)> {
        std::iter::once(("web".into(), 1, AgentChange::Gone { copies: 1 }))
    }

    fn silent_for(ticks: u64) -> Silences {
        Silences {
            ticks,
            heard: BTreeMap::from([(("web".into(), 1), 0)]),
        }
    }

    #[test]
    fn gone_is_who_was_silent_for_the_ticks_of_the_timeout() {
        assert_eq!(silent_for(TIMEOUT_TICKS).look(gone()), Ok(()));
        let early = silent_for(TIMEOUT_TICKS - 1).look(gone());
        assert!(early.is_err_and(|what| what.contains("silent for Some(3)")));
        let late = silent_for(TIMEOUT_TICKS).look(std::iter::empty());
        assert!(late.is_err_and(|what| what.contains("not gone")));
        assert_eq!(silent_for(3).look(std::iter::empty()), Ok(()));
    }
}
