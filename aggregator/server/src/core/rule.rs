//! From a record in the log to what follows from it.
//!
//! The order stands here and nowhere else. For each record of a partition:
//!
//! | step | what | if the process dies right after it |
//! |---|---|---|
//! | 1 apply | the engine's state moves | nothing is lost: the state was memory, and replay applies the record again |
//! | 2 announce | the statement goes to the feed at the end of the turn | agents hear it twice: replay ends in the same state, and a later snapshot carries the same place |
//! | 3 record | statement and totals are appended to the log | the append is repeated: equal evidence of one place is one, a total that does not follow the last applied is ignored |
//! | 4 commit | a snapshot says that recovery may begin behind the record | only once everything caused up to it is acknowledged, so that nothing of 3 is skipped |
//!
//! Between 1 and 2: nobody heard; agents that ask the next process hear it then. Between 2 and 3: agents
//! act on a denial whose evidence is not in the log yet; replay puts it there.

use std::sync::Arc;

use tollgate_shared::wire::Writer;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::hits::HitBatch;
use tollgate_shared::wire::record::{OwnersPen, Record, authentic};
use tollgate_shared::wire::statement::{Says, Statement};

use tollgate_engine::engine::{AgentChange, AgentNews};

use super::event::{Aside, Effect, Now};
use super::partition::{Partition, Slot, Stage};
use super::ruler::{Met, Ruled};
use super::{Core, Purpose};
use tollgate_log::{Delivered, Stream};

impl Core {
    /// Rules records of a partition as far as it can be ruled.
    pub(super) fn hits_delivered(&mut self, now: Now, index: u32, records: &[Delivered]) {
        let takes = |core: &Self| core.partitions.get(index as usize).map(Partition::takes);
        if takes(self) == Some(true) && self.totals.is_full(index, self.settings.waiting_max) {
            return self.hold_back(index);
        }
        for record in records {
            let Some(partition) = self.partitions.get(index as usize) else {
                return;
            };
            // What is not taken is delivered again when the partition returns, or never will be.
            if !partition.takes() {
                return;
            }
            if partition.recordings.is_full(self.settings.waiting_max) {
                return self.hold_back(index);
            }
            if partition.unproved && !self.prove(index, record) {
                continue;
            }
            let next = self.partitions.get(index as usize).map_or(0, |p| p.next);
            if next <= record.offset {
                self.rule_record(now, index, record);
            }
        }
    }

    fn rule_record(&mut self, now: Now, index: u32, delivered: &Delivered) {
        let decoded = match Record::decode(&delivered.bytes) {
            Ok(record) if authentic(&delivered.bytes, index, &self.settings.key) => match record {
                Record::Unknown { kind, skippable } => {
                    self.meet_unknown(now, index, delivered, kind, skippable);
                    return;
                }
                record => Ok(record),
            },
            Ok(Record::Unknown { kind, .. }) => {
                self.counters.unknown_kinds += 1;
                Err(format!(
                    "kind {kind} is not known to this build, and no aggregator's tag is on it"
                ))
            }
            Ok(_) => {
                self.counters.forged += 1;
                Err("its tag is wrong: not written by an aggregator of this fleet".to_owned())
            }
            Err(error) => {
                self.counters.undecodable += 1;
                Err(error.to_string())
            }
        };
        let record = match decoded {
            Ok(record) => record,
            Err(why) => {
                self.keep_aside(Stream::Hits, index, delivered, why);
                self.advance(now, index, delivered);
                return;
            }
        };
        if let Record::Pointer(pointer) = &record
            && !self.may_follow_pointer(now, index, delivered, pointer)
        {
            return;
        }
        #[cfg(feature = "wrong-engine")]
        let record = self.wrongly(delivered.offset, record);
        // 1 apply.
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return;
        };
        let log_time_before = partition.ruler.log_time();
        let tells_near = partition.announcing && partition.current;
        partition.ruler.tell_near(tells_near);
        let ruled = partition.ruler.apply(
            delivered.offset,
            delivered.appended,
            &record,
            &self.limits.book,
            &mut self.counters,
        );
        if let Some(why) = &ruled.stopped {
            tracing::error!(partition = index, why, "the partition stops");
            partition.stage = Stage::Stopped { why: why.clone() };
            return;
        }
        partition.ruler.keep_last(delivered);
        partition.snapshots.records += 1;
        partition.snapshots.entries += ruled.entries;
        self.advance(now, index, delivered);
        self.counters.records += 1;
        self.see_own(now, index, delivered, &record);
        match &record {
            Record::Tick(_) => self.testify(index, delivered.offset, log_time_before),
            Record::Testimony(said) => self.hear(index, said),
            Record::Hits(batch) => {
                self.count_usage(index, delivered, batch);
                self.note_batch(index, batch);
            }
            Record::Totals(totals) => {
                self.look_for_forgery(index, totals);
                self.note_total(index, totals.resource);
            }
            _ => {}
        }
        // 2 announce, 3 record. 4 is a snapshot's.
        self.follow_up(now, index, delivered.offset, ruled);
        // Few denials are ruled again at once.
        if self.rule_slice(now, index)
            && let Some(partition) = self.partitions.get_mut(index as usize)
        {
            partition.stage = Stage::RulingAgain;
        }
    }

    fn count_usage(&mut self, index: u32, delivered: &Delivered, batch: &HitBatch<'_>) {
        if let Some(partition) = self.partitions.get_mut(index as usize)
            && let Some(excess) = partition.ruler.excess()
        {
            let (offset, appended) = (delivered.offset, delivered.appended);
            partition.usage.take(offset, appended, batch, excess);
        }
    }

    /// The next slice of each partition whose denials new limits rule again.
    pub(super) fn slices_turn(&mut self, now: Now) {
        for index in 0..self.partitions.len() {
            self.go_on_ruling(now, index as u32);
        }
    }

    /// The next slice, unless the log is behind with the evidence of what was ruled. After the last one
    /// records are ruled again.
    fn go_on_ruling(&mut self, now: Now, index: u32) {
        let due = self
            .partitions
            .get(index as usize)
            .is_some_and(|partition| {
                partition.stage == Stage::RulingAgain
                    && !partition.recordings.is_full(self.settings.waiting_max)
            });
        if due && !self.rule_slice(now, index) {
            self.follow_again(index);
        }
    }

    /// Rules one slice of the record that was met last; says whether there is more.
    fn rule_slice(&mut self, now: Now, index: u32) -> bool {
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return false;
        };
        if !partition.ruler.has_more() {
            return false;
        }
        let ruled = partition.ruler.go_on(&mut self.counters);
        let (more, offset) = (partition.ruler.has_more(), partition.next.saturating_sub(1));
        self.follow_up(now, index, offset, ruled);
        more
    }

    /// Follows from where it was ruled to. A fleet's topic may have been made anew meanwhile and be as long: there
    /// it reads once more what it read last, which proves that it is the same.
    pub(super) fn follow_again(&mut self, index: u32) {
        let shared = self.shared;
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.stage = Stage::Returning;
            if shared
                && !partition.unproved
                && let Some(last) = &partition.last
            {
                partition.next = last.offset;
                partition.unproved = true;
            }
            let next = partition.next;
            self.follow(Stream::Hits, index, next);
        }
    }

    pub(super) fn advance(&mut self, now: Now, index: u32, delivered: &Delivered) {
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.next = delivered.offset + 1;
            partition.appended = delivered.appended;
            partition.current = partition.is_current(now.clock);
            partition.last = Some(delivered.clone());
        }
    }

    fn follow_up(&mut self, now: Now, index: u32, offset: u64, ruled: Ruled) {
        for (resource, statement) in ruled.statements {
            match statement.says {
                Says::Denied(_) => self.counters.denials += 1,
                Says::Open => self.counters.lifts += 1,
            }
            self.record_statement(index, offset, &resource, &statement);
            if self
                .partitions
                .get(index as usize)
                .is_some_and(|partition| partition.announcing)
            {
                self.announcer.announce(index, &resource, statement);
            }
        }
        let announcing = self
            .partitions
            .get(index as usize)
            .is_some_and(|partition| partition.announcing);
        for due in ruled.verdicts {
            if announcing {
                self.counters.verdicts += 1;
                self.verdicts.tell(index, due);
            }
        }
        for news in &ruled.agents {
            tell_news(index, news);
        }
        for correction in &ruled.corrections {
            self.clocks.note(now.clock, correction);
        }
        for (key, due) in ruled.totals {
            self.totals.due(key, due);
        }
        if let Some(partition) = self.partitions.get_mut(index as usize)
            && !ruled.beside.counts.is_empty()
        {
            self.candidates.note(&ruled.beside);
            let limits = Arc::clone(partition.ruler.limits());
            let appended = partition.appended;
            partition.candidates.note(appended, &limits, ruled.beside);
        }
        match ruled.total {
            Some((key, Met::Applied { offset, is_bridge })) => {
                self.bridges.followed(&key, is_bridge);
                self.totals.applied(key, offset);
            }
            Some((key, Met::Stray { offset })) if announcing => {
                let target = self.partitions.get(index as usize);
                let applied =
                    target.and_then(|target| target.ruler.applied_total(&key.resource, key.source));
                self.bridges.strayed(now.clock, key, offset, applied);
            }
            Some((_, Met::Stray { .. })) | None => {}
        }
    }

    fn record_statement(&mut self, index: u32, offset: u64, resource: &str, statement: &Statement) {
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return;
        };
        let Some(log) = partition.log() else {
            return;
        };
        let mut writer = Writer::new();
        Announced {
            log,
            partition: index,
            resource: resource.into(),
            statement: statement.clone(),
        }
        .encode(&mut writer);
        let record = writer.as_slice().to_vec();
        let ticket = self.append(
            Stream::Denials,
            index,
            record.clone(),
            Purpose::Evidence(index),
        );
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.recordings.sent(offset, ticket, record);
        }
    }

    /// What this process appended itself has come back.
    fn see_own(&mut self, now: Now, index: u32, delivered: &Delivered, record: &Record<'_>) {
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return;
        };
        match record {
            Record::Tick(tick) if tick.instance == self.instance => {
                partition.ticks.came_back(tick.number, delivered.appended);
                self.announce_if_ready(now, index);
            }
            // Whatever has become the latest version meanwhile: it gets a pointer of its own.
            Record::Pointer(pointer) if partition.pointed <= pointer.version => {
                partition.pointer = Slot::default();
                if partition.ruler.version() < pointer.version {
                    // It was passed over; what it would have brought is pointed at again, by and by.
                    partition.pointer.failed(now.clock);
                }
                if partition.ruler.version() == self.limits.book.latest_number() && !self.shared {
                    self.limits.forget_unused(&self.partitions);
                }
            }
            _ => {}
        }
    }

    /// The first own tick has come back in a partition that is caught up: from now on what is ruled is
    /// announced, and what is in force already is said once.
    fn announce_if_ready(&mut self, now: Now, index: u32) {
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return;
        };
        if partition.announcing
            || partition.stage != Stage::Ruling
            || partition.log_now(now.clock).is_none()
        {
            return;
        }
        partition.announcing = true;
        self.announcer.begin(index, partition.ruler.live());
        tracing::debug!(partition = index, "announcing");
        let ours = || {
            self.partitions
                .iter()
                .filter(|partition| partition.is_ours())
        };
        if ours().all(|partition| partition.announcing) {
            let partitions = ours().count();
            tracing::info!(
                partitions,
                live = self.announcer.live().len(),
                "all partitions are ruled"
            );
        }
    }

    fn meet_unknown(
        &mut self,
        now: Now,
        index: u32,
        delivered: &Delivered,
        kind: u8,
        skippable: bool,
    ) {
        if skippable {
            self.counters.skipped += 1;
            self.advance(now, index, delivered);
            return;
        }
        let why = format!(
            "offset {}: kind {kind} is not known to this build and may not be skipped",
            delivered.offset
        );
        tracing::error!(partition = index, why, "the partition stops");
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.stage = Stage::Stopped { why };
        }
    }

    pub(super) fn keep_aside(
        &mut self,
        stream: Stream,
        partition: u32,
        delivered: &Delivered,
        why: String,
    ) {
        self.effects.push(Effect::Aside(Aside {
            stream,
            partition,
            offset: delivered.offset,
            why,
            bytes: delivered.bytes.clone(),
        }));
    }

    /// Appends totals that are due, in the order of their chains.
    pub(super) fn send_totals(&mut self, now: Now) {
        if self.totals.is_empty() {
            return;
        }
        let partitions = &self.partitions;
        let count = self.settings.partitions;
        // Not before source and target are caught up: what the target has applied long ago would be
        // appended again, and again after every start.
        let may_send = |source: u32, target: u32| {
            let ruling = |index: u32| {
                partitions
                    .get(index as usize)
                    .is_some_and(|partition| partition.announcing)
            };
            // What a target elsewhere has applied is not known here, and passed over there; and so it is
            // by whoever takes up one that has stopped. Until then the log keeps it.
            let takes_what_comes = partitions.get(target as usize).is_some_and(|partition| {
                !partition.is_ours() || matches!(partition.stage, Stage::Stopped { .. })
            });
            // One that waits for the log to have its totals must not wait for anybody else.
            let waits = partitions
                .get(source as usize)
                .is_some_and(|partition| partition.stage == Stage::Recording);
            waits || (ruling(source) && (takes_what_comes || ruling(target)))
        };
        let target_of =
            |resource: &str| tollgate_shared::names::partition_of_resource(resource, count);
        let (key, last_ticket) = (&self.settings.key, &mut self.last_ticket);
        let (appends, effects, counters) =
            (&mut self.appends, &mut self.effects, &mut self.counters);
        self.totals.send(
            now.clock,
            |chain| may_send(chain.source, target_of(&chain.resource)),
            |chain, due| {
                let target = target_of(&chain.resource);
                let record = OwnersPen::new(key, target).totals(
                    &chain.resource,
                    (chain.source, due.offset),
                    due.previous,
                    &due.counted,
                );
                *last_ticket += 1;
                let ticket = tollgate_log::Ticket(*last_ticket);
                appends.insert(ticket, Purpose::Total(chain.clone()));
                counters.totals += 1;
                effects.push(Effect::Append {
                    stream: Stream::Hits,
                    partition: target,
                    ticket,
                    record,
                });
                ticket
            },
        );
    }
}

/// Says in the logs what happened to an agent.
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
                "an agent is gone, its copies are back"
            );
        }
        AgentChange::Returned => tracing::debug!(partition, agent, "an agent is heard again"),
        AgentChange::Over { copies } => {
            tracing::debug!(partition, agent, copies, "an agent's epoch is over");
        }
        AgentChange::Twin => {
            tracing::warn!(partition, agent, "two agents have this name");
        }
    }
}
