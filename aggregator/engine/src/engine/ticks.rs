//! The log's identity and its time: genesis and ticks.
//!
//! ```text
//! ticks appended at   10.3 s (slot 20)   10.4 s (slot 20)   10.6 s (slot 21)
//!                     counted            ignored            counted: log time is 10.6 s
//! ```
//!
//! Nothing else advances the time. Knows nothing of hits. What stays true: log time only rises, and what a tick
//! removes is removed at once, whenever its memory is freed.

use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::record::Tick;

use super::Engine;
use super::denials::LiveDenial;
use super::rulings::{Fate, Rulings};
use crate::pairs::{Identities, slot_of};

/// How much a counted tick looks at and frees: some tenths of a millisecond of work.
const SWEEP_BLOCKS: u32 = 32_768;
const SWEEP_PAIRS: u32 = 1_024;
const SWEEP_DENIALS: usize = 1_024;

/// Whether a tick counts: it is in a later slot than log time.
pub(super) fn is_counted(appended: Timestamp, log_time: Option<Timestamp>) -> bool {
    log_time.is_none_or(|log| slot_of(log) < slot_of(appended))
}

impl Engine {
    /// Applies a genesis: the log's identity, or after an unclean stop its next generation.
    pub(super) fn genesis(&mut self, offset: u64, log: LogId, rulings: &mut Rulings) -> Fate {
        if self.log.is_none() && self.applied_upto.is_none() {
            self.began = true;
        }
        self.identify(offset, log, rulings)
    }

    /// Applies a tick.
    pub(super) fn tick(
        &mut self,
        offset: u64,
        appended: Timestamp,
        tick: &Tick<'_>,
        rulings: &mut Rulings,
    ) -> Fate {
        // A log that is read from its beginning has its identity from its genesis. A tick before the genesis was in
        // flight when the topic was recreated, and names the old log. If this log took that identity, log positions
        // of the two could not be told apart.
        if self.log.is_none() && self.began {
            return Fate::OfAnotherLog;
        }
        match self.identify(offset, tick.log, rulings) {
            Fate::Applied => {}
            other => return other,
        }
        if !is_counted(appended, self.log_time) {
            return Fate::TickIgnored;
        }
        let before = self.log_time.replace(appended);
        self.epochs.tick(appended);
        let position = LogPosition::of_record(self.log.unwrap_or_default(), offset);
        let limits = self.steps.newest().limits.clone();
        let mut sink = self.sink(position, rulings);
        self.holders.tick(before, appended, &limits, &mut sink);
        self.amended.end_by(appended);
        self.table.advance(slot_of(appended));
        self.table.sweep(SWEEP_BLOCKS, SWEEP_PAIRS);
        self.candidates.advance(slot_of(appended));
        self.candidates.sweep(SWEEP_BLOCKS, SWEEP_PAIRS);
        self.denials.sweep(appended, SWEEP_DENIALS);
        self.steps.trim(self.oldest_ordinal());
        Fate::Applied
    }

    /// Notes the log's id.
    ///
    /// A higher generation voids all earlier statements, so the denials in force are stated again.
    fn identify(&mut self, offset: u64, log: LogId, rulings: &mut Rulings) -> Fate {
        match self.log {
            None if self.applied_upto.is_none() => {
                self.log = Some(log);
                self.identities = Identities::new(log);
                return Fate::Applied;
            }
            // Records before it, such as an activation in flight when a topic was recreated, have no generation.
            None => {}
            Some(ours) if log == ours => return Fate::Applied,
            Some(ours) if log.generation <= ours.generation => return Fate::OfAnotherLog,
            Some(_) => {}
        }
        self.log = Some(log);
        let mut position = LogPosition::of_record(log, offset);
        let now = self.now();
        for (identity, live) in self.denials.to_state_again(now) {
            // From now on it has this log position: agents drop statements of the generation before.
            self.denials
                .deny(identity, LiveDenial { position, ..live }, rulings);
            position.entry = position.entry.saturating_add(1);
        }
        let mut sink = self.sink(position, rulings);
        self.holders.state_again(&mut sink);
        Fate::Applied
    }
}
