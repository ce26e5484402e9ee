//! The clocks of a partition's agents, as an engine corrects them, without rulings.
//!
//! ```text
//! web-1, two hours behind    its batches are sent at 10:00 by its clock, and appended at 12:00: its stamps move by 2 h
//! ```
//!
//! For those who read the calls of a log, but play them under other limits. Knows nothing of hits. What stays true:
//! the stamps of a record move as an engine moves them that has read the same records and gave up no agent.

use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::hits::Sender;

use super::epochs::{Epochs, Freshness};
use super::senders::{Clock, noted};
use super::ticks::is_counted;
use crate::pairs::Identities;

/// What is known of the clocks of a partition's agents.
#[derive(Clone, Debug)]
pub struct Clocks {
    epochs: Epochs,
    identities: Identities,
    log_time: Option<Timestamp>,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            epochs: Epochs::default(),
            identities: Identities::new(LogId::default()),
            log_time: None,
        }
    }
}

impl Clocks {
    /// Notes a tick of the log.
    pub fn tick(&mut self, appended: Timestamp) {
        if is_counted(appended, self.log_time) {
            self.log_time = Some(appended);
            self.epochs.tick(appended);
        }
    }

    /// Notes an agent's record, whatever it is about. Returns how its stamps are read; `None` if it came before.
    pub fn record(&mut self, sender: &Sender<'_>, appended: Timestamp) -> Option<Clock> {
        let (process, batch) = noted(&self.identities, sender, appended);
        // Whom an engine gives up at its bound depends on the limits in force, and these calls are played under others.
        match self.epochs.batch(process, batch, self.log_time, u64::MAX) {
            Freshness::Fresh { move_us } => Some(Clock { move_us, appended }),
            Freshness::Duplicate | Freshness::OlderThanWindow | Freshness::GivenUp => None,
        }
    }
}
