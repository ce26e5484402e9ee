//! Laws 5 and 6: which records of holds, and which beats, are applied, counted beside the engine.
//!
//! ```text
//! 7 holds    applied
//! 9 beat     applied
//! 8 holds    overtaken: what the beat has said is newer
//! 9 beat     a duplicate, as the model says
//! 10 beat    the last one: applied, and the epoch is over
//! 11 holds   of an epoch that is over, and each operation is told so
//! ```
//!
//! Knows nothing of what is held. What stays true: what is not applied says nothing but that its epoch is over.

use std::collections::BTreeMap;

use tollgate_engine::engine::{Fate, VerdictDue};
use tollgate_model::log::NotRuled;
use tollgate_shared::wire::beat::BeatHead;
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::verdict::{VerdictSays, Why};

use super::watch::Ruled;

/// Counted ticks for which an epoch that is over is known: ten minutes.
const KEPT_TICKS: u64 = 1_200;

/// An agent's process: its name and its epoch.
type Who = (Box<str>, u128);

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The highest sequence of each that came in turn.
    newest: BTreeMap<Who, u64>,
    /// Epochs that are over, each with the ticks that had been counted then.
    over: BTreeMap<Who, u64>,
    /// Ticks counted.
    ticks: u64,
}

impl Ruled {
    /// Holds what became of a record to whose turn it was; whether it is one that comes in turn.
    ///
    /// # Errors
    ///
    /// What became of it, and what should have.
    pub(super) fn check_turn(
        &mut self,
        record: &Record<'_>,
        unruled: Option<NotRuled>,
    ) -> Result<bool, String> {
        let (sender, entries, head) = match record {
            Record::Tick(_) => {
                if self.rulings.fates == [Fate::Applied] {
                    let model = &self.model;
                    self.turns
                        .tick(|(name, epoch)| model.knows_agent(name, *epoch));
                }
                return Ok(false);
            }
            Record::Holds(batch) => (&batch.sender, batch.ops_len(), None),
            Record::Beat(beat) => (&beat.sender, beat.parts_len(), Some(beat.head)),
            _ => return Ok(false),
        };
        let expected = self.turns.take(sender, unruled, entries, head);
        if self.rulings.fates != [expected] {
            return Err(format!(
                "sequence {} of {}, epoch {:x}: {:?}, expected {expected:?}",
                sender.sequence, sender.agent, sender.epoch, self.rulings.fates
            ));
        }
        match (expected, record) {
            (Fate::Applied, _) => Ok(true),
            (Fate::EpochOver { .. }, Record::Holds(batch)) => {
                let numbers: Vec<u64> = batch.ops().map(|op| op.number).collect();
                all_told_over(&self.rulings.verdicts, &numbers).map(|()| true)
            }
            (Fate::EpochOver { .. }, _) => Ok(true),
            _ if self.rulings.verdicts.is_empty() => Ok(true),
            _ => Err(format!(
                "{expected:?}, and said {:?}",
                self.rulings.verdicts
            )),
        }
    }
}

/// Each operation of an epoch that is over is told so, once and in turn, and nothing else.
fn all_told_over(verdicts: &[VerdictDue], numbers: &[u64]) -> Result<(), String> {
    let is_right = |(due, (number, entry)): (&VerdictDue, (&u64, u32))| {
        let of = match due.says {
            VerdictSays::Refused {
                number,
                why: Why::EpochOver,
                ..
            } => Some(number),
            _ => None,
        };
        of == Some(*number) && due.place.entry == entry
    };
    let are_right = verdicts.iter().zip(numbers.iter().zip(0..)).all(is_right);
    match are_right && verdicts.len() == numbers.len() {
        true => Ok(()),
        false => Err(format!(
            "of an epoch that is over, operations on {numbers:?}: {verdicts:?} was said"
        )),
    }
}

impl Turns {
    /// What has to become of an agent's record; `head`: of a beat.
    fn take(
        &mut self,
        sender: &Sender<'_>,
        unruled: Option<NotRuled>,
        entries: u32,
        head: Option<BeatHead>,
    ) -> Fate {
        match unruled {
            None => {}
            Some(NotRuled::OlderThanWindow) => return Fate::OlderThanWindow { entries },
            Some(_) => return Fate::Duplicate { entries },
        }
        let who: Who = (sender.agent.into(), sender.epoch);
        let newest = self.newest.entry(who.clone()).or_default();
        if sender.sequence <= *newest {
            return Fate::Overtaken { entries };
        }
        *newest = sender.sequence;
        if self.over.contains_key(&who) {
            return Fate::EpochOver { entries };
        }
        let ticks = self.ticks;
        if let Some(epoch) = head.and_then(|head| head.replaces)
            && epoch != who.1
        {
            self.over.entry((who.0.clone(), epoch)).or_insert(ticks);
        }
        if head.is_some_and(|head| head.last) {
            self.over.entry(who).or_insert(ticks);
        }
        Fate::Applied
    }

    /// A tick was counted: of whom nothing is remembered, any sequence is the first again.
    fn tick(&mut self, is_known: impl Fn(&Who) -> bool) {
        self.ticks += 1;
        self.newest.retain(|who, _| is_known(who));
        let ticks = self.ticks;
        self.over.retain(|_, since| ticks < *since + KEPT_TICKS);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::time::Timestamp;

    use super::*;

    const ENTRIES: u32 = 2;

    fn take(turns: &mut Turns, epoch: u128, sequence: u64, head: Option<BeatHead>) -> Fate {
        let sender = Sender {
            agent: "web",
            epoch,
            sequence,
            sent: Timestamp::ZERO,
        };
        turns.take(&sender, None, ENTRIES, head)
    }

    fn beat(replaces: Option<u128>, last: bool) -> Option<BeatHead> {
        Some(BeatHead {
            replaces,
            more: false,
            last,
        })
    }

    #[test]
    fn what_is_older_than_what_was_applied_is_overtaken() {
        let mut turns = Turns::default();
        assert_eq!(take(&mut turns, 1, 7, None), Fate::Applied);
        assert_eq!(take(&mut turns, 1, 9, beat(None, false)), Fate::Applied);
        let overtaken = Fate::Overtaken { entries: ENTRIES };
        assert_eq!(take(&mut turns, 1, 8, None), overtaken);
        assert_eq!(take(&mut turns, 2, 8, None), Fate::Applied);
        turns.tick(|(_, epoch)| *epoch == 2);
        assert_eq!(take(&mut turns, 1, 8, None), Fate::Applied, "forgotten");
        assert_eq!(take(&mut turns, 2, 8, None), overtaken);
    }

    #[test]
    fn an_epoch_is_over_by_its_last_beat_or_its_successors_for_ten_minutes_of_ticks() {
        let mut turns = Turns::default();
        assert_eq!(take(&mut turns, 1, 1, None), Fate::Applied);
        assert_eq!(take(&mut turns, 2, 1, beat(Some(1), false)), Fate::Applied);
        let over = Fate::EpochOver { entries: ENTRIES };
        assert_eq!(take(&mut turns, 1, 2, None), over);
        assert_eq!(take(&mut turns, 2, 2, beat(None, true)), Fate::Applied);
        assert_eq!(take(&mut turns, 2, 3, beat(None, true)), over);
        (1..KEPT_TICKS).for_each(|_| turns.tick(|_| true));
        assert_eq!(take(&mut turns, 1, 3, None), over);
        turns.tick(|_| true);
        assert_eq!(take(&mut turns, 1, 4, None), Fate::Applied);
    }
}
