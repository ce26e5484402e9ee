//! Law 5: which records of holds, and which beats, are applied, counted beside the engine.
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
//! Knows nothing of what is held. What stays true: what is not applied changes nothing that is held,
//! and says nothing but that its epoch is over.

use std::collections::BTreeMap;

use tollgate_engine::engine::{Engine, Fate, VerdictDue};
use tollgate_model::log::NotRuled;
use tollgate_shared::wire::beat::BeatHead;
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::holds::{HoldBatch, HoldOp};
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::verdict::{VerdictSays, Why};

use super::silence::Who;
use super::watch::Ruled;

/// Counted ticks for which an epoch that is over is known: ten minutes.
const KEPT_TICKS: u64 = 1_200;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The highest sequence of each that came in turn.
    newest: BTreeMap<Who, u64>,
    /// Epochs that are over, each with the ticks that had been counted then.
    over: BTreeMap<Who, u64>,
}

impl Ruled {
    /// Holds what became of a record to whose turn it was; what should have, where it comes in turn. `copies` is what
    /// all copies came to before it.
    ///
    /// # Errors
    ///
    /// What became of it, and what should have.
    pub(super) fn check_turn(
        &mut self,
        record: &Record<'_>,
        unruled: Option<NotRuled>,
        copies: u128,
    ) -> Result<Option<Fate>, String> {
        let (sender, entries, head) = match record {
            Record::Tick(_) => {
                if self.rulings.fates == [Fate::Applied] {
                    let model = &self.model;
                    self.turns
                        .tick(|(name, epoch)| model.knows_agent(name, *epoch));
                }
                return Ok(None);
            }
            Record::Holds(batch) => (&batch.sender, batch.ops_len(), None),
            Record::Beat(beat) => (&beat.sender, beat.parts_len(), Some(beat.head)),
            _ => return Ok(None),
        };
        let expected = self
            .turns
            .take(sender, unruled, entries, (head, self.silences.ticks()));
        let of = || {
            let Sender {
                agent,
                epoch,
                sequence,
                ..
            } = sender;
            format!("sequence {sequence} of {agent}, epoch {epoch:x}")
        };
        if self.rulings.fates != [expected] {
            let found = &self.rulings.fates;
            return Err(format!("{}: {found:?}, expected {expected:?}", of()));
        }
        if expected == Fate::Applied {
            return Ok(Some(expected));
        }
        let verdicts = &self.rulings.verdicts;
        let is_told_right = match (expected, record) {
            (Fate::EpochOver { .. }, Record::Holds(batch)) => are_told_over(verdicts, batch),
            (Fate::EpochOver { .. }, _) => verdicts.iter().all(|due| is_told_over(due, sender)),
            _ => verdicts.is_empty(),
        };
        let statements = &self.rulings.statements;
        if !is_told_right || !statements.is_empty() || all_copies(&self.engine) != copies {
            return Err(format!(
                "{}: {expected:?}, and said {verdicts:?} and {statements:?}, or what is held has changed",
                of()
            ));
        }
        Ok(Some(expected))
    }
}

/// A number that stands for all that is held in a partition.
pub(super) fn all_copies(engine: &Engine) -> u128 {
    let digests = engine.copies().map(|(_, copies)| copies.digest());
    digests.fold(0, u128::wrapping_add)
}

/// Whether somebody is told that its epoch is over; or, as of a beat without a list, that one is wanted.
fn is_told_over(due: &VerdictDue, sender: &Sender<'_>) -> bool {
    let is_it = matches!(
        due.says,
        VerdictSays::BeatWanted
            | VerdictSays::Refused {
                why: Why::EpochOver,
                ..
            }
    );
    is_it && *due.agent == *sender.agent && due.epoch == sender.epoch
}

/// Each operation of an epoch that is over is told so, once and in turn, and nothing else.
fn are_told_over(verdicts: &[VerdictDue], batch: &HoldBatch<'_>) -> bool {
    let is_right = |(due, (op, entry)): (&VerdictDue, (HoldOp<'_>, u32))| {
        let says = VerdictSays::Refused {
            number: op.number,
            op: Some(op.does.op()),
            why: Why::EpochOver,
        };
        is_told_over(due, &batch.sender)
            && due.says == says
            && due.place.entry == entry
            && *due.resource == *batch.resource(op.resource)
    };
    let all = batch.ops().zip(0..);
    verdicts.len() == batch.ops_len() as usize && verdicts.iter().zip(all).all(is_right)
}

impl Turns {
    /// What has to become of an agent's record, when so many ticks were counted; `head`: of a beat.
    fn take(
        &mut self,
        sender: &Sender<'_>,
        unruled: Option<NotRuled>,
        entries: u32,
        (head, ticks): (Option<BeatHead>, u64),
    ) -> Fate {
        match unruled {
            None => {}
            Some(NotRuled::OlderThanWindow) => return Fate::OlderThanWindow { entries },
            // Of what becomes of entries alone nothing is said here.
            Some(_) => return Fate::Duplicate { entries },
        }
        let who: Who = (sender.agent.into(), sender.epoch);
        let newest = self.newest.entry(who.clone()).or_default();
        if sender.sequence <= *newest {
            return Fate::Overtaken { entries };
        }
        *newest = sender.sequence;
        self.over.retain(|_, since| ticks < *since + KEPT_TICKS);
        if self.over.contains_key(&who) {
            return Fate::EpochOver { entries };
        }
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
        self.newest.retain(|who, _| is_known(who));
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::time::Timestamp;

    use super::*;

    const ENTRIES: u32 = 2;

    fn take(turns: &mut Turns, epoch: u128, sequence: u64, head: Option<BeatHead>) -> Fate {
        take_at(turns, epoch, sequence, (head, 0))
    }

    fn take_at(
        turns: &mut Turns,
        epoch: u128,
        sequence: u64,
        head: (Option<BeatHead>, u64),
    ) -> Fate {
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
        let late = (None, KEPT_TICKS - 1);
        assert_eq!(take_at(&mut turns, 1, 3, late), over);
        let forgotten = (None, KEPT_TICKS);
        assert_eq!(take_at(&mut turns, 1, 4, forgotten), Fate::Applied);
    }
}
