//! Rules a record of the log, and carries out what follows from it.
//!
//! The order stands here and nowhere else. For each record of a partition:
//!
//! | step | what | if the process dies right after it |
//! |---|---|---|
//! | 1 apply | the engine's state moves | nothing is lost: the state was memory, and replay applies the record again |
//! | 2 announce | the statement goes to the feed at the end of the turn | agents receive it twice: replay ends in the same state, and a later snapshot carries the same log position |
//! | 3 record | decision records and totals are appended to the log | the append is repeated: equal decision records of one log position count as one, a total that does not follow the last applied is ignored |
//! | 4 commit | a snapshot allows recovery to begin after the record | only once everything caused up to it is acknowledged, so that nothing of 3 is skipped |
//!
//! Between 1 and 2: no agent has received the statement; agents that ask the next process receive it then.
//! Between 2 and 3: agents act on a denial whose decision record is not in the log yet; replay appends it.

use std::sync::Arc;

use tollgate_shared::wire::hits::HitBatch;
use tollgate_shared::wire::record::{Record, RecordPen, Totals, authentic, needs_tag};
use tollgate_shared::wire::statement::{Statement, StatementKind};

use tollgate_engine::engine::{AgentChange, AgentNews};

use super::event::{DeadLetter, Effect};
use super::partition::appends::AppendPurpose;
use super::partition::event::{PartitionEffect, PartitionStep, TotalsTarget};
use super::partition::{Partition, Stage};
use super::ruler::RuledRecord;
use super::totals::TotalsKey;
use tollgate_log::{Append, Delivered, Stream, Ticket};

impl Partition {
    /// Rules records for as long as the partition takes any.
    pub(super) fn delivered(&mut self, records: &[Delivered], step: &mut PartitionStep<'_>) {
        let waiting_max = step.context.settings.waiting_max;
        if self.takes() && self.totals.is_full(waiting_max) {
            return self.hold_back(step);
        }
        for record in records {
            // Records that are not taken are delivered again when the partition resumes, or are not needed.
            if !self.takes() {
                return;
            }
            if self.recordings.is_full(waiting_max) {
                return self.hold_back(step);
            }
            if self.position.unverified && !self.verify(record, step) {
                continue;
            }
            if self.position.next <= record.offset {
                self.rule_record(record, step);
            }
        }
    }

    fn rule_record(&mut self, delivered: &Delivered, step: &mut PartitionStep<'_>) {
        let Some(record) = self.read(delivered, step) else {
            return;
        };
        if let Record::LimitsActivation(activation) = &record
            && !self.may_activate(delivered, activation, step)
        {
            return;
        }
        // 1 apply.
        let log_time_before = self.ruler.log_time();
        let tells_near = self.announcing && self.position.current;
        self.ruler.note_near(tells_near);
        let mut ruled = self.ruler.apply(
            delivered.offset,
            delivered.appended,
            &record,
            &step.context.limits.book,
            step.counters(),
        );
        if let Some(why) = ruled.stopped.take() {
            return self.stop(why);
        }
        self.ruler.keep_last(delivered);
        self.snapshots.records += 1;
        self.snapshots.entries += ruled.entries;
        self.advance(delivered, step);
        step.counters().records += 1;
        self.see_own(delivered, &record, step);
        if !matches!(record, Record::Tick(_) | Record::StateDigest(_)) {
            self.ticks.busy = step.clock();
        }
        match &record {
            Record::Tick(_) => self.append_digest(delivered.offset, log_time_before, step),
            Record::StateDigest(stated) => self.compare_digest(stated, step),
            Record::Hits(batch) => {
                self.count_usage(delivered, batch);
                self.note_batch(batch, step);
            }
            Record::Totals(totals) => {
                self.look_for_forgery(totals, step);
                self.note_total(totals.resource, step);
            }
            _ => {}
        }
        // 2 announce, 3 record. Step 4 is the snapshot.
        self.follow_up(delivered.offset, ruled, step);
        // If few denials have to be ruled again, one slice is enough.
        if self.rule_slice(step) {
            self.stage = Stage::RulingAgain;
        }
    }

    /// The record, if it is to be ruled. Any other record is passed over, or stops the partition.
    fn read<'a>(
        &mut self,
        delivered: &'a Delivered,
        step: &mut PartitionStep<'_>,
    ) -> Option<Record<'a>> {
        let keys = &step.context.settings.keys;
        // Records of agents need no tag, and are the great majority.
        let ids = match needs_tag(&delivered.bytes) {
            true => step.context.limits.book.record_keys(self.ruler.version()),
            false => &[],
        };
        let why = match Record::decode(&delivered.bytes) {
            Ok(record) if keys.authentic(ids, &delivered.bytes, self.index) => match record {
                Record::Unknown { kind, skippable } => {
                    self.meet_unknown(delivered, kind, skippable, step);
                    return None;
                }
                record => return Some(record),
            },
            Ok(Record::Unknown { kind, .. }) => {
                step.counters().unknown_kinds += 1;
                format!("kind {kind} is not known to this build, and no aggregator's tag is on it")
            }
            Ok(record) => {
                step.counters().forged += 1;
                self.see_own_refused(delivered, &record, step);
                keys.refusal(ids, &delivered.bytes, self.index)
            }
            Err(error) => {
                step.counters().undecodable += 1;
                error.to_string()
            }
        };
        self.keep_dead_letter(delivered, why, step);
        self.advance(delivered, step);
        None
    }

    fn count_usage(&mut self, delivered: &Delivered, batch: &HitBatch<'_>) {
        if let Some(excess) = self.ruler.excess() {
            let (offset, appended) = (delivered.offset, delivered.appended);
            self.usage.take(offset, appended, batch, excess);
        }
    }

    /// Rules the next slice of denials that new limits rule again, unless too many decision records wait for the
    /// log. After the last slice, ruling of records resumes.
    pub(super) fn go_on_ruling(&mut self, step: &mut PartitionStep<'_>) {
        if self.has_slice(step.context.settings.waiting_max) && !self.rule_slice(step) {
            self.follow_again(step);
        }
    }

    /// Whether a slice can be ruled now, when at most `waiting_max` statements may wait for the log.
    pub(super) fn has_slice(&self, waiting_max: usize) -> bool {
        self.stage == Stage::RulingAgain && !self.recordings.is_full(waiting_max)
    }

    /// Rules one slice of the record that was met last; returns whether there are more.
    fn rule_slice(&mut self, step: &mut PartitionStep<'_>) -> bool {
        if !self.ruler.has_more() {
            return false;
        }
        let ruled = self.ruler.go_on(step.counters());
        let more = self.ruler.has_more();
        self.follow_up(self.position.next.saturating_sub(1), ruled, step);
        more
    }

    pub(super) fn advance(&mut self, delivered: &Delivered, step: &PartitionStep<'_>) {
        self.position.advance(delivered);
        self.position.current = self.is_current(step.clock());
    }

    fn follow_up(&mut self, offset: u64, ruled: RuledRecord, step: &mut PartitionStep<'_>) {
        // Counts of batches, and of denied pairs that new limits rule again.
        if self.announcing {
            let (counts, calls) = self.ruler.counts();
            step.out
                .tally
                .resources
                .note(self.ruler.limits(), counts, calls);
        }
        for (resource, statement) in ruled.statements {
            match statement.kind {
                StatementKind::Denied(_) => step.counters().denials += 1,
                StatementKind::Lifted => step.counters().lifts += 1,
            }
            self.record_statement(offset, &resource, &statement, step);
            if self.announcing {
                step.push(PartitionEffect::Announce(resource, statement));
            }
        }
        for due in ruled.verdicts {
            if self.announcing {
                step.counters().verdicts += 1;
                step.push(PartitionEffect::Verdict(due));
            }
        }
        for news in &ruled.agents {
            tell_news(self.index, news);
        }
        for correction in ruled.corrections {
            step.push(PartitionEffect::Corrected(correction));
        }
        for (resource, due) in ruled.totals {
            self.totals.due(resource, due);
        }
        self.candidates.begin(self.position.appended);
        if !ruled.beside.counts.is_empty() {
            step.out.tally.candidates.note(&ruled.beside);
            let limits = Arc::clone(self.ruler.limits());
            let appended = self.position.appended;
            self.candidates.note(appended, &limits, ruled.beside);
        }
        if let Some((key, offset)) = ruled.total {
            if key.source == self.index {
                self.totals.applied(&key.resource, offset);
            } else {
                step.push(PartitionEffect::TotalApplied { key, offset });
            }
        }
    }

    fn record_statement(
        &mut self,
        offset: u64,
        resource: &str,
        statement: &Statement,
        step: &mut PartitionStep<'_>,
    ) {
        let Some(log) = self.log() else {
            return;
        };
        let of = (log, self.index);
        let record = self.recordings.write(of, resource, statement);
        let ticket = self.appends.send_unnoted();
        step.ask(Effect::Append(Append {
            stream: Stream::Denials,
            partition: self.index,
            ticket,
            record: record.clone(),
        }));
        self.recordings.sent(offset, ticket, record);
    }

    /// Notes a record that this process appended itself, when it is read.
    fn see_own(
        &mut self,
        delivered: &Delivered,
        record: &Record<'_>,
        step: &mut PartitionStep<'_>,
    ) {
        match record {
            Record::Tick(tick) if tick.instance == step.context.instance => {
                self.ticks.came_back(tick.number, delivered.appended);
                self.announce_if_ready(step);
            }
            Record::LimitsActivation(activation) => {
                let in_force = self.ruler.version();
                let is_own = self
                    .pointing
                    .met(activation.version, in_force, step.clock());
                if is_own && in_force == step.context.limits.book.latest_number() {
                    step.push(PartitionEffect::UnderLatest);
                }
            }
            _ => {}
        }
    }

    /// A record that this process appended was refused: limits that came before it in the log do not count its key.
    /// It is not awaited any more, and another is appended under a key that counts. Its tag distinguishes it from a
    /// record that another writer forged in this process's name.
    fn see_own_refused(
        &mut self,
        delivered: &Delivered,
        record: &Record<'_>,
        step: &PartitionStep<'_>,
    ) {
        let (context, index) = (step.context, self.index);
        let is_own = |under: u64| authentic(&delivered.bytes, index, context.writer(under));
        match record {
            Record::Tick(tick)
                if (tick.instance, tick.number) == (context.instance, self.ticks.number)
                    && is_own(self.ticks.under) =>
            {
                self.ticks.slot.failed(step.clock());
            }
            Record::LimitsActivation(activation)
                if activation.version == self.pointing.version && is_own(self.pointing.under) =>
            {
                self.pointing.slot.failed(step.clock());
            }
            _ => {}
        }
    }

    /// Once a partition is caught up and has read its first own tick, its rulings are announced from then on, and
    /// what is in force already is announced once.
    fn announce_if_ready(&mut self, step: &mut PartitionStep<'_>) {
        let is_ready = self.stage == Stage::Ruling && self.log_now(step.clock()).is_some();
        if self.announcing || !is_ready {
            return;
        }
        self.announcing = true;
        tracing::debug!(partition = self.index, "announcing");
        self.recovery.end();
        step.push(PartitionEffect::Begin(self.ruler.live()));
    }

    fn meet_unknown(
        &mut self,
        delivered: &Delivered,
        kind: u8,
        skippable: bool,
        step: &mut PartitionStep<'_>,
    ) {
        if skippable {
            step.counters().skipped += 1;
            return self.advance(delivered, step);
        }
        self.stop(format!(
            "offset {}: kind {kind} is not known to this build and may not be skipped",
            delivered.offset
        ));
    }

    pub(super) fn keep_dead_letter(
        &self,
        delivered: &Delivered,
        why: String,
        step: &mut PartitionStep<'_>,
    ) {
        let letter = DeadLetter::of((Stream::Hits, self.index), delivered, why, !self.announcing);
        step.ask(Effect::Aside(letter));
    }

    /// Checks a total that was met: its source may never have made it.
    fn look_for_forgery(&self, totals: &Totals<'_>, step: &mut PartitionStep<'_>) {
        let (key, offset) = (TotalsKey::of(totals), totals.source_offset);
        if key.source != self.index {
            step.push(PartitionEffect::TotalRead { key, offset });
        } else if self.never_totalled(&key.resource, offset) {
            step.push(PartitionEffect::TotalForged { key, offset });
        }
    }

    /// Appends a record to this partition's part of a stream.
    pub(super) fn append(
        &mut self,
        stream: Stream,
        record: Vec<u8>,
        purpose: AppendPurpose,
        step: &mut PartitionStep<'_>,
    ) -> Ticket {
        let ticket = self.appends.send(purpose);
        step.ask(Effect::Append(Append {
            stream,
            partition: self.index,
            ticket,
            record: record.into(),
        }));
        ticket
    }

    /// Appends totals that are due, each resource's in the order of their records, to targets that are open to them.
    pub(super) fn send_totals(&mut self, targets: &[TotalsTarget], step: &mut PartitionStep<'_>) {
        let context = step.context;
        let partitions = context.settings.partitions;
        let target_of =
            |resource: &str| tollgate_shared::names::partition_of_resource(resource, partitions);
        // Not before source and target are caught up: totals that the target applied long ago would be appended
        // again, and again after every start. But a source that waits until the log has its totals must not wait
        // for another partition.
        let waits = self.stage == Stage::Recording;
        let announcing = self.announcing;
        let may_send = |resource: &str| {
            let is_open = || {
                let target = targets.get(target_of(resource) as usize);
                target.is_some_and(|target| target.is_open)
            };
            waits || announcing && is_open()
        };
        // A total counts by the version of its target. If that is ruled elsewhere, the own version is close to it.
        let own = self.ruler.version();
        let version_of = |target: u32| {
            let target = targets.get(target as usize);
            target.and_then(|target| target.version).unwrap_or(own)
        };
        let Self {
            index,
            totals,
            appends,
            ..
        } = self;
        totals.send(may_send, |resource, due| {
            let target = target_of(resource);
            let key = context.writer(version_of(target));
            let record =
                RecordPen::new(key, target).totals(resource, (*index, due.offset), &due.counted);
            let ticket = appends.send(AppendPurpose::Total(resource.into()));
            step.counters().totals += 1;
            step.ask(Effect::Append(Append {
                stream: Stream::Hits,
                partition: target,
                ticket,
                record: record.into(),
            }));
            ticket
        });
    }
}

/// Logs what happened to an agent.
fn tell_news(partition: u32, news: &AgentNews) {
    let agent = &*news.agent;
    match news.change {
        AgentChange::Gone { copies: 0 } => {
            tracing::debug!(partition, agent, "an agent is silent, and held nothing");
        }
        AgentChange::Gone { copies } => {
            tracing::info!(
                partition,
                agent,
                copies,
                "an agent is gone, its copies are free again"
            );
        }
        AgentChange::Returned => tracing::debug!(partition, agent, "an agent sends again"),
        AgentChange::Over { copies } => {
            tracing::debug!(partition, agent, copies, "an agent's epoch is over");
        }
        AgentChange::Twin => {
            tracing::warn!(partition, agent, "two agents have this name");
        }
    }
}
