//! Rules one record beside the aggregators, by a second engine and by the independent
//! model, and compares their answers.
//!
//! ```text
//! record ──> engine ──> rulings ─┐
//!        └─> model  ──> outcome ─┴─> the same (`compare`)
//!        └─> model of copies ──> outcome, holds, denials ──> the same (`copies_compare`)
//! ```
//!
//! Does not know who appended the record. What stays true: each record is ruled once by
//! each, in the order of the log.

use std::fmt::Display;

use tollgate_engine::engine::Fate;
use tollgate_limits::versions::LimitsBook;
use tollgate_model::copies::CopiesOutcome;
use tollgate_model::log::{LogInput, RecordOutcome};
use tollgate_replay::model_check::{entry_to_model, total_to_model};
use tollgate_shared::wire::heartbeat::Heartbeat;
use tollgate_shared::wire::holds::HoldBatch;
use tollgate_shared::wire::record::Record;

use super::compare;
use super::copies_compare;
use super::feeding::feed_entries;
use super::trace::Violation;
use super::watch::{Kept, Ruled, Watch};

/// A record at its log position.
#[derive(Clone, Copy)]
struct At<'a> {
    partition: u32,
    offset: u64,
    kept: &'a Kept,
}

impl At<'_> {
    fn violation(self, law: u8, check: &'static str, what: impl Display) -> Violation {
        let (partition, offset) = (self.partition, self.offset);
        let what = format!("partition {partition}, offset {offset}: {what}");
        Violation::new(law, check, what)
    }
}

impl Watch {
    /// Rules a record of hits that the log accepted.
    ///
    /// # Errors
    ///
    /// The law that the record violates.
    pub(super) fn rule(
        &mut self,
        partition: u32,
        offset: u64,
        kept: &Kept,
    ) -> Result<(), Violation> {
        let at = At {
            partition,
            offset,
            kept,
        };
        let record = Record::decode(&kept.bytes)
            .map_err(|error| at.violation(4, "what is appended can be read", error))?;
        let ruled = &mut self.ruled[partition as usize];
        let pairs = ruled.engine.pairs();
        ruled.apply(offset, kept, &record, &self.book);
        let outcome = self.feed(at, &record);
        let copies = self.feed_copies(partition, kept, &record, outcome.as_ref());
        let ruled = &self.ruled[partition as usize];
        if let Some(stop) = ruled.rulings.stopped() {
            return Err(at.violation(4, "the second engine goes on", stop));
        }
        if let Some(outcome) = &outcome {
            self.compare_rates(at, &record, outcome)?;
        }
        let left = self.ruled[partition as usize].engine.pairs() < pairs;
        self.cover.see_if("pair left", left);
        self.compare_copies(at, &record, outcome.as_ref(), &copies)?;
        self.cover_copies(partition, &copies);
        self.note_totals(partition, kept.at_us, &record, outcome.as_ref());
        let ruled = &self.ruled[partition as usize];
        if let Record::Hits(batch) = &record {
            let counted = self.accounts.ruled(partition, batch, &ruled.rulings.fates);
            counted.map_err(|what| at.violation(5, "each entry counts once", what))?;
            if let Some(what) = self.accounts.wrong_mark.take() {
                return Err(at.violation(8, "who hears is guarded, and nobody else", what));
            }
        }
        Ok(())
    }

    /// The model's answer to a record; `None`: the model does not know such records.
    fn feed(&mut self, at: At<'_>, record: &Record<'_>) -> Option<RecordOutcome> {
        let (offset, kept) = (at.offset, at.kept);
        let appended_us = kept.appended.as_micros();
        let ruled = &mut self.ruled[at.partition as usize];
        match record {
            Record::Hits(batch) => {
                let entries = batch.hits().iter().map(|hit| entry_to_model(batch, hit));
                let (model, entries) = (&mut ruled.model, entries.collect());
                Some(feed_entries(model, (offset, kept), &batch.sender, entries))
            }
            Record::Tick(tick) => {
                let taken = (offset, kept.at_us, appended_us);
                ruled.ticks.entry(tick.instance).or_default().push(taken);
                let of_another = ruled.rulings.fates.contains(&Fate::OfAnotherLog);
                let tick = LogInput::Tick {
                    offset,
                    appended_us,
                };
                (!of_another).then(|| ruled.model.apply(&tick))
            }
            Record::Totals(totals) => {
                let totals = vec![total_to_model(totals)];
                Some(ruled.model.apply(&LogInput::Totals { offset, totals }))
            }
            Record::LimitsActivation(activation) => {
                let at_log = (offset, appended_us);
                Some(self.feed_activation(at.partition, at_log, activation.version))
            }
            // Copies have a separate model, but their records count among their agent's.
            Record::Holds(HoldBatch { sender, .. })
            | Record::Heartbeat(Heartbeat { sender, .. }) => {
                let model = &mut ruled.model;
                Some(feed_entries(model, (offset, kept), sender, Vec::new()))
            }
            Record::Genesis(_) | Record::StateDigest(_) | Record::Unknown { .. } => None,
        }
    }

    fn compare_rates(
        &mut self,
        at: At<'_>,
        record: &Record<'_>,
        outcome: &RecordOutcome,
    ) -> Result<(), Violation> {
        let ruled = &mut self.ruled[at.partition as usize];
        compare::rulings(record, &ruled.rulings, outcome)
            .map_err(|what| at.violation(3, "engine and model say the same", what))?;
        compare::pairs(&ruled.engine, &ruled.model)
            .map_err(|what| at.violation(3, "engine and model know the same pairs", what))?;
        let times = &mut ruled.times;
        compare::cover(record, outcome, &ruled.rulings, times, &mut self.cover);
        Ok(())
    }

    fn compare_copies(
        &mut self,
        at: At<'_>,
        record: &Record<'_>,
        rates: Option<&RecordOutcome>,
        outcome: &CopiesOutcome,
    ) -> Result<(), Violation> {
        let ruled = &mut self.ruled[at.partition as usize];
        let rulings = &ruled.rulings;
        let unruled = rates.and_then(|rates| rates.unruled);
        let fate = copies_compare::turn(record, unruled, outcome, rulings)
            .map_err(|what| at.violation(5, "records of holds come in turn", what))?;
        copies_compare::agents(outcome, rulings)
            .map_err(|what| at.violation(6, "an agent is gone by counted ticks alone", what))?;
        copies_compare::verdicts(record, outcome, rulings)
            .map_err(|what| at.violation(6, "copies are granted as limits say", what))?;
        ruled.note_rulings();
        // The effect of a batch of hits on copies is checked at the next tick: nothing corrects it by itself.
        if !matches!(record, Record::Hits(_)) {
            copies_compare::held(&ruled.engine, &ruled.copies)
                .map_err(|what| at.violation(6, "engine and model hold the same", what))?;
            let appended_us = at.kept.appended.as_micros();
            copies_compare::denied(&ruled.stated, &ruled.copies, appended_us).map_err(|what| {
                at.violation(6, "what is full is said to be, and nothing else", what)
            })?;
        }
        let cover = &mut self.cover;
        cover.see_if("checked: a record of holds in turn", fate.is_some());
        cover.see_if(
            "checked: a record of holds that was overtaken",
            matches!(fate, Some(Fate::Overtaken { .. })),
        );
        if let (Record::Holds(batch), Some(Fate::Applied)) = (record, fate) {
            let ops = u64::from(batch.ops_len());
            cover.add("checked: an operation on copies", ops);
            let banned = outcome.banned;
            cover.add("checked: an operation of a banned domain", banned);
        }
        Ok(())
    }
}

impl Ruled {
    fn apply(&mut self, offset: u64, kept: &Kept, record: &Record<'_>, book: &LimitsBook) {
        self.rulings.clear();
        let (engine, rulings) = (&mut self.engine, &mut self.rulings);
        engine.apply(offset, kept.appended, record, book, rulings);
        self.taken.push((kept.at_us, kept.appended.as_micros()));
        self.log = self.engine.log();
        let last = self.generations.last().map(|(_, last)| *last);
        if let Some(log) = self.log
            && last.is_none_or(|last| last < log.generation)
        {
            self.generations.push((offset, log.generation));
        }
        self.digests.push(self.engine.digest());
        self.versions.push(self.engine.version().unwrap_or(0));
    }
}
