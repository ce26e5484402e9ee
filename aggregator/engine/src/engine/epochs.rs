//! What a partition knows of agents: the sequence numbers of their batches, and their clocks.
//!
//! ```text
//! highest 200   199 … 72 are remembered one by one; 71 is older than the window: not ruled
//! clock         append − sent: 900 ms, 400 ms, 650 ms within a minute: stamps move by 400 ms
//! ```
//!
//! An agent here is a process: a name and an epoch, known by a keyed hash of both. Knows nothing of hits.
//! What stays true: time is log time, so no agent is forgotten while the log stalls; an agent is forgotten
//! at the first counted tick more than ten minutes of log time after its last fresh batch; at the bound one
//! is given up for a new one, see `crowd`.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_shared::time::{Span, Timestamp};

use super::crowd::{Crowd, GivenUp, SeenEpoch};
use crate::pairs::{Identity, mix};

/// How many sequences below the highest are remembered one by one.
const WINDOW: u64 = 128;
/// Log time for which an agent is remembered after its last fresh batch.
const KEPT: Span = Span::from_secs(600);
/// The unit of log time for which the least append − sent is kept.
const MINUTE: Span = Span::from_secs(60);
/// The greatest difference between append and sent that is not taken as a clock error: stamps may be wrong by as much.
pub const CLOCK_TOLERATED: Span = Span::from_millis(250);
const TOLERATED_US: u64 = CLOCK_TOLERATED.as_micros();

/// Whether a batch is to be ruled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// It was not seen before; its stamps move by this.
    Fresh {
        /// Microseconds to add to its stamps.
        move_us: i64,
    },
    /// It was seen before.
    Duplicate,
    /// It is too old to decide.
    OlderThanWindow,
    /// It is of an agent that was given up, because as many as allowed are remembered.
    GivenUp,
}

/// One agent's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Epoch {
    /// The agent's name, whatever its epoch.
    pub name: Identity,
    pub highest: u64,
    /// Bit n: the sequence n + 1 below the highest was seen.
    pub below: u128,
    /// Log time at the last fresh batch; `None` until a tick was counted.
    pub last: Option<Timestamp>,
    /// The minute of log time of the last fresh batch.
    pub minute: u64,
    /// The highest sequence of its applied hold operations and heartbeats; 0: none.
    pub in_turn: u64,
    /// The least append − sent in that minute, in microseconds.
    pub least_us: i64,
    /// The same for the minute before it, if there was a batch in it.
    pub least_before_us: Option<i64>,
}

/// All agents that wrote to the partition lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Epochs {
    epochs: BTreeMap<Identity, Epoch>,
    /// By the log time of their last record, so that a tick need not look at all of them. Those without a
    /// counted tick come first.
    silent_since: BTreeSet<SeenEpoch>,
    crowd: Crowd,
    given_up: GivenUp,
    times_given_up: u64,
    digest: u128,
}

/// The facts about a batch that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    /// The agent's name, whatever its epoch.
    pub name: Identity,
    pub sequence: u64,
    pub appended: Timestamp,
    pub sent: Timestamp,
}

impl Epochs {
    /// Notes a batch. `log` is log time. `epochs_max` is how many agents are remembered: beyond it one is
    /// given up for a new one.
    pub fn batch(
        &mut self,
        process: Identity,
        batch: Batch,
        log: Option<Timestamp>,
        epochs_max: u64,
    ) -> Freshness {
        let known = self.epochs.get(&process).copied();
        if known.is_none() {
            if self.given_up.has(process) {
                return Freshness::GivenUp;
            }
            self.make_room(log, epochs_max);
        }
        let mut epoch = known.unwrap_or(Epoch {
            name: batch.name,
            highest: batch.sequence,
            ..Epoch::default()
        });
        if let Some(freshness) = epoch.seen(batch.sequence, known.is_some()) {
            return freshness;
        }
        epoch.last = log;
        let move_us = epoch.clock(batch, log, known.is_some());
        self.put(process, epoch);
        Freshness::Fresh { move_us }
    }

    /// Whether hold operations or a heartbeat of this sequence come after all that were applied. If so, the
    /// sequence is noted as applied.
    pub fn in_turn(&mut self, process: Identity, sequence: u64) -> bool {
        let Some(epoch) = self.epochs.get(&process).copied() else {
            return false;
        };
        let rises = epoch.in_turn < sequence;
        if rises {
            self.put(
                process,
                Epoch {
                    in_turn: sequence,
                    ..epoch
                },
            );
        }
        rises
    }

    /// Gives up an agent, or more if the bound was lowered, so that there is room for a new one.
    fn make_room(&mut self, log: Option<Timestamp>, epochs_max: u64) {
        while epochs_max <= self.epochs.len() as u64
            && let Some(process) = self.crowd.to_give_up()
        {
            self.remove(process);
            self.given_up.put(process, log, epochs_max);
            self.times_given_up += 1;
        }
    }

    /// How many agents were given up since the last call.
    pub fn take_times_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.times_given_up)
    }

    /// Counts a tick: forgets agents that have been silent for too long.
    pub fn tick(&mut self, log: Timestamp) {
        let is_old = |since: Timestamp| since.saturating_add(KEPT) < log;
        self.given_up.tick(log, is_old);
        while let Some((last, process)) = self.silent_since.first().copied() {
            match last {
                None => {
                    // Its last record was before the first counted tick: its ten minutes begin here.
                    if let Some(epoch) = self.epochs.get(&process).copied() {
                        let last = Some(log);
                        self.put(process, Epoch { last, ..epoch });
                    }
                }
                Some(last) if is_old(last) => self.remove(process),
                Some(_) => return,
            }
        }
    }

    /// A digest of the content alone.
    pub fn digest(&self) -> u128 {
        self.digest.wrapping_add(self.given_up.digest())
    }

    /// Agents that were given up, in the order of their hashes, each with the log time of that.
    pub fn given_up(&self) -> impl Iterator<Item = (Identity, Option<Timestamp>)> + '_ {
        self.given_up.iter()
    }

    /// Adds a given-up agent from a snapshot.
    pub fn put_given_up(&mut self, process: Identity, log: Option<Timestamp>) {
        self.given_up.restore(process, log);
    }

    /// How many agents are remembered.
    pub fn len(&self) -> usize {
        self.epochs.len()
    }

    /// Every agent, in the order of their hashes.
    pub fn iter(&self) -> impl Iterator<Item = (Identity, Epoch)> + '_ {
        self.epochs
            .iter()
            .map(|(process, epoch)| (*process, *epoch))
    }

    /// Adds an agent, replacing what was known of it.
    pub fn put(&mut self, process: Identity, epoch: Epoch) {
        self.remove(process);
        self.digest = self.digest.wrapping_add(epoch.digest(process));
        self.silent_since.insert((epoch.last, process));
        self.crowd.enter(epoch.name, (epoch.last, process));
        self.epochs.insert(process, epoch);
    }

    fn remove(&mut self, process: Identity) {
        if let Some(epoch) = self.epochs.remove(&process) {
            self.silent_since.remove(&(epoch.last, process));
            self.crowd.leave(epoch.name, (epoch.last, process));
            self.digest = self.digest.wrapping_sub(epoch.digest(process));
        }
    }
}

impl Epoch {
    /// Marks a sequence as seen. `Some` if its batch is not fresh; then nothing has changed.
    fn seen(&mut self, sequence: u64, known: bool) -> Option<Freshness> {
        if !known {
            return None;
        }
        if let Some(above) = sequence
            .checked_sub(self.highest)
            .filter(|above| *above != 0)
        {
            // The highest so far joins the bits below; they move down with it.
            let moved = |bits: u128, by: u64| match u32::try_from(by) {
                Ok(by) => bits.checked_shl(by).unwrap_or(0),
                Err(_) => 0,
            };
            self.below = moved(self.below, above) | moved(1, above - 1);
            self.highest = sequence;
            return None;
        }
        let below = self.highest - sequence;
        if below == 0 {
            return Some(Freshness::Duplicate);
        }
        if WINDOW < below {
            return Some(Freshness::OlderThanWindow);
        }
        let bit = 1 << (below - 1);
        if self.below & bit != 0 {
            return Some(Freshness::Duplicate);
        }
        self.below |= bit;
        None
    }

    /// Notes a batch's clock. Returns by how many microseconds its stamps move: by the least append − sent
    /// over the last whole minute of log time and the current one, this batch included, if that exceeds 250
    /// ms either way. If a clock was ahead and has been corrected, its batch shows it: a batch that is far
    /// less ahead than the least moves back by no more than it is ahead itself. Otherwise the agent's hits
    /// would be too old to count for two minutes.
    fn clock(&mut self, batch: Batch, log: Option<Timestamp>, known: bool) -> i64 {
        let minute = log.unwrap_or_default().as_micros() / MINUTE.as_micros();
        let behind_us = batch.appended.signed_micros_since(batch.sent);
        if !known {
            (self.minute, self.least_us) = (minute, behind_us);
        } else if minute == self.minute {
            self.least_us = self.least_us.min(behind_us);
        } else {
            let was_the_last_one = self.minute.checked_add(1) == Some(minute);
            self.least_before_us = was_the_last_one.then_some(self.least_us);
            (self.minute, self.least_us) = (minute, behind_us);
        }
        let least_us = self
            .least_before_us
            .map_or(self.least_us, |before_us| before_us.min(self.least_us));
        let is_less_ahead = least_us.saturating_add_unsigned(TOLERATED_US) < behind_us;
        let move_us = match least_us < 0 && is_less_ahead {
            true => behind_us.min(0),
            false => least_us,
        };
        match TOLERATED_US < move_us.unsigned_abs() {
            true => move_us,
            false => 0,
        }
    }

    fn digest(&self, process: Identity) -> u128 {
        let mut digest = mix(process.0, self.highest);
        digest = mix(digest, self.name.0 as u64);
        digest = mix(digest, self.below as u64);
        digest = mix(digest, (self.below >> 64) as u64);
        digest = mix(digest, self.last.map_or(u64::MAX, Timestamp::as_micros));
        digest = mix(digest, self.minute);
        digest = mix(digest, self.in_turn);
        digest = mix(digest, self.least_us as u64);
        mix(
            digest,
            self.least_before_us.map_or(u64::MAX, |us| us as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Identity = Identity(7);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn send(
        epochs: &mut Epochs,
        sequence: u64,
        behind_ms: i64,
        log: Option<Timestamp>,
    ) -> Freshness {
        let appended = at(1_000_000);
        let batch = Batch {
            name: Identity(1),
            sequence,
            appended,
            sent: appended.saturating_offset(-behind_ms * 1_000),
        };
        epochs.batch(WHO, batch, log, 10)
    }

    const FRESH: Freshness = Freshness::Fresh { move_us: 0 };

    #[test]
    fn sequences_up_to_128_below_the_highest_are_distinguished() {
        let mut epochs = Epochs::default();
        assert_eq!(send(&mut epochs, 200, 0, None), FRESH);
        assert_eq!(send(&mut epochs, 200, 0, None), Freshness::Duplicate);
        assert_eq!(send(&mut epochs, 72, 0, None), FRESH);
        assert_eq!(send(&mut epochs, 72, 0, None), Freshness::Duplicate);
        assert_eq!(send(&mut epochs, 71, 0, None), Freshness::OlderThanWindow);
        assert_eq!(send(&mut epochs, 201, 0, None), FRESH);
        assert_eq!(send(&mut epochs, 200, 0, None), Freshness::Duplicate);
        assert_eq!(send(&mut epochs, 72, 0, None), Freshness::OlderThanWindow);
        assert_eq!(send(&mut epochs, 1_000_000, 0, None), FRESH);
        assert_eq!(send(&mut epochs, 1_000_000 - 128, 0, None), FRESH);
        assert_eq!(send(&mut epochs, 201, 0, None), Freshness::OlderThanWindow);
    }

    #[test]
    fn sequences_are_kept_for_ten_minutes_of_log_time() {
        let mut epochs = Epochs::default();
        assert_eq!(send(&mut epochs, 5, 0, None), FRESH);
        epochs.tick(at(100));
        epochs.tick(at(700));
        assert_eq!(send(&mut epochs, 5, 0, Some(at(700))), Freshness::Duplicate);
        epochs.tick(Timestamp::from_micros(700_000_001));
        assert_eq!((epochs.len(), epochs.digest()), (0, 0));
        assert_eq!(send(&mut epochs, 5, 0, Some(at(701))), FRESH);
    }

    #[test]
    fn the_least_delay_of_two_minutes_is_the_clocks_error() {
        let mut epochs = Epochs::default();
        let moved = |epochs: &mut Epochs, sequence, behind_ms, seconds| match send(
            epochs,
            sequence,
            behind_ms,
            Some(at(seconds)),
        ) {
            Freshness::Fresh { move_us } => move_us / 1_000,
            other => panic!("{other:?}"),
        };
        assert_eq!(moved(&mut epochs, 1, 900, 60), 900);
        assert_eq!(moved(&mut epochs, 2, 400, 61), 400);
        assert_eq!(moved(&mut epochs, 3, 650, 119), 400);
        assert_eq!(
            moved(&mut epochs, 4, 650, 120),
            400,
            "the last whole minute"
        );
        assert_eq!(moved(&mut epochs, 5, 700, 180), 650, "no longer");
        assert_eq!(
            moved(&mut epochs, 6, 250, 181),
            0,
            "within what is tolerated"
        );
        assert_eq!(moved(&mut epochs, 7, -251, 182), -251);
        assert_eq!(
            moved(&mut epochs, 8, 300, 600),
            300,
            "a minute without batches"
        );
    }

    #[test]
    fn a_corrected_clock_moves_no_stamps() {
        let mut epochs = Epochs::default();
        let mut moved = |sequence, behind_ms| {
            let sent = send(&mut epochs, sequence, behind_ms, Some(at(60)));
            let Freshness::Fresh { move_us } = sent else {
                panic!("{sent:?}");
            };
            move_us / 1_000
        };
        assert_eq!(moved(1, -844_000), -844_000);
        assert_eq!(
            moved(2, -843_750),
            -844_000,
            "as far ahead, and slow to the log"
        );
        assert_eq!(moved(3, -843_700), -843_700);
        assert_eq!(moved(4, -10_000), -10_000, "less ahead");
        assert_eq!([moved(5, -250), moved(6, 3), moved(7, 9_000)], [0, 0, 0]);
    }

    #[test]
    fn at_the_bound_the_name_with_most_epochs_loses_one() {
        const MAX: u64 = 10;
        let mut epochs = Epochs::default();
        let mut send = |name, process, second| {
            let batch = Batch {
                name: Identity(name),
                sequence: 1,
                appended: at(1),
                sent: at(1),
            };
            let log = Some(at(second));
            epochs.tick(at(second));
            epochs.batch(Identity(process), batch, log, MAX)
        };
        assert_eq!(send(1, 1_000, 0), FRESH, "an honest one, heard once");
        for n in 1..100 {
            assert_eq!(send(2, n, n as u64), FRESH, "one that starts and starts");
        }
        assert_eq!(send(3, 2_000, 100), FRESH, "one that comes only now");
        assert_eq!(send(1, 1_000, 100), Freshness::Duplicate, "is known still");
        assert_eq!(send(2, 99, 100), Freshness::Duplicate);
        assert_eq!(send(2, 90, 100), Freshness::GivenUp);
        assert_eq!(epochs.len(), MAX as usize);
        assert_eq!(epochs.take_times_given_up(), 91);
        let mut again = Epochs::default();
        epochs
            .iter()
            .for_each(|(process, epoch)| again.put(process, epoch));
        epochs
            .given_up()
            .for_each(|(process, log)| again.put_given_up(process, log));
        assert_eq!(again.digest(), epochs.digest());
        // A given-up agent is forgotten when its sequences would have been.
        epochs.tick(at(10_000));
        assert_eq!((epochs.len(), epochs.digest()), (0, 0));
    }
}
