//! Whether an agent's record is ruled: not if it was seen before, is out of order, or is of an epoch
//! that is over.
//!
//! Hits may arrive in any order within their window; hold operations and heartbeats of an epoch are
//! applied in rising sequence only. Knows nothing of the content of a record. What stays true: a
//! refused record has changed nothing but what is known of its sender's sequences and clock.

use std::sync::Arc;

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::hits::Sender;

use super::Engine;
use super::epochs::{Batch, Freshness};
use super::holders::AgentProcess;
use super::rulings::{Correction, Fate, Rulings};
use crate::pairs::{Identities, Identity};

/// Converts a sender's stamps to the engine's time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// By how much its stamps move.
    pub move_us: i64,
    /// When its record was appended.
    pub appended: Timestamp,
}

impl Clock {
    /// The instant of an agent's stamp.
    #[inline]
    pub fn instant(self, stamp: Timestamp) -> Timestamp {
        instant(stamp, self.move_us, self.appended)
    }
}

/// The instant of a hit: its stamp, corrected by its agent's clock error, but never later than the end
/// of the millisecond of its append.
#[inline]
pub fn instant(stamp: Timestamp, move_us: i64, appended: Timestamp) -> Timestamp {
    let moved = stamp.saturating_offset(move_us);
    moved.min(appended.end_of_millisecond())
}

/// A record as agents are known by it: the identity of its sender's process, and the facts about the record.
pub(super) fn noted(
    identities: &Identities,
    sender: &Sender<'_>,
    appended: Timestamp,
) -> (Identity, Batch) {
    let batch = Batch {
        // No epoch is 0: it is a hash.
        name: identities.of_agent(sender.agent, 0),
        sequence: sender.sequence,
        appended,
        sent: sender.sent,
    };
    (identities.of_agent(sender.agent, sender.epoch), batch)
}

impl Engine {
    /// Notes an agent's record, which has `entries` entries. `Some` is the fate of a record that is
    /// not ruled.
    pub(super) fn admit(
        &mut self,
        sender: &Sender<'_>,
        appended: Timestamp,
        entries: u32,
        rulings: &mut Rulings,
    ) -> Result<Clock, Fate> {
        let (process, sent) = noted(&self.identities, sender, appended);
        let epochs_max = self.epochs_max();
        let freshness = self.epochs.batch(process, sent, self.log_time, epochs_max);
        rulings.epochs_given_up += self.epochs.take_times_given_up();
        let move_us = match freshness {
            Freshness::Fresh { move_us } => move_us,
            Freshness::Duplicate => return Err(Fate::Duplicate { entries }),
            Freshness::OlderThanWindow => return Err(Fate::OlderThanWindow { entries }),
            Freshness::GivenUp => return Err(Fate::TooManyAgents { entries }),
        };
        if move_us != 0 {
            rulings.corrections.push(Correction {
                agent: sender.agent.into(),
                moved_us: move_us,
            });
        }
        Ok(Clock { move_us, appended })
    }

    /// The same for hold operations and heartbeats, which are applied in rising sequence only.
    pub(super) fn admit_in_turn(
        &mut self,
        sender: &Sender<'_>,
        appended: Timestamp,
        entries: u32,
        rulings: &mut Rulings,
    ) -> Result<(AgentProcess, Clock), Fate> {
        let clock = self.admit(sender, appended, entries, rulings)?;
        let identity = self.identities.of_agent(sender.agent, sender.epoch);
        if !self.epochs.in_turn(identity, sender.sequence) {
            return Err(Fate::Overtaken { entries });
        }
        let process = AgentProcess {
            name: Arc::from(sender.agent),
            epoch: sender.epoch,
        };
        let epochs_max = self.epochs_max();
        if !self.holders.knows(&process) && !self.holders.make_room(epochs_max) {
            return Err(Fate::TooManyAgents { entries });
        }
        Ok((process, clock))
    }

    fn epochs_max(&self) -> u64 {
        self.steps.newest().limits.engine().epochs_per_partition_max
    }
}
