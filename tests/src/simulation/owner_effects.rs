//! Performs the effects that an aggregator's core requests (appends, frames, answers,
//! snapshots), and asks it queries.
//!
//! A process may end between any two effects. What stays true: everything that it publishes or answers is compared
//! with the second engine before any agent receives it.

use bytes::Bytes;
use tollgate_agent::simulation::SocketEvent;
use tollgate_server::core::announce::TOPIC_KEY_UNPROTECTED;
use tollgate_server::core::event::{Effect, Event as CoreEvent, Peer};
use tollgate_server::core::view::{Query, Reply};
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::{Frame, StatementNotice, Topic, Watermark};
use tollgate_shared::wire::link::FromAggregator;
use tollgate_shared::wire::notice::NoticeFrame;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::StatementKind;
use tollgate_shared::wire::verdict::{Verdict, VerdictFrame};

use super::plan::Way;
use super::trace::hash_of;
use super::world::World;

use super::arrivals::drift_us;
use super::owner_host::Doom;
use super::refusals::ROUNDED_US;
use super::watch::Ruled;

/// A record that the log took less than this ago was surely ruled within a second.
const NEW_US: u64 = 500_000;

/// An aggregator goes by the newest of its ticks that it has read. It does not count a tick that the log took although
/// it refused it; that many in a row are not refused.
const TICKS_BACK: usize = 16;

impl Ruled {
    /// The least log time that a process may assume which has ruled all records below an offset. An aggregator takes
    /// the log to have taken a tick as it was sent, and the time since then to have passed for the log, too. `None`:
    /// the log has no tick of it.
    fn log_time(&self, instance: u128, ruled_upto: u64, now_us: u64) -> Option<u64> {
        let ticks = self.ticks.get(&instance)?;
        let read = ticks.partition_point(|(offset, ..)| *offset < ruled_upto);
        let times = ticks[read.saturating_sub(TICKS_BACK)..].iter();
        let times = times.map(|(_, at_us, log_us)| {
            let since_us = now_us.saturating_sub(*at_us);
            (log_us + since_us).saturating_sub(ROUNDED_US + drift_us(since_us))
        });
        times.min()
    }
}

impl World {
    /// Performs the effects of a core, one after the other; the process may end in between.
    pub(super) fn perform(&mut self, owner: usize, effects: Vec<Effect>) {
        for effect in effects {
            if let Some(Doom {
                after_effects: Some(left),
                ..
            }) = &mut self.owners[owner].doom
            {
                if *left == 0 {
                    self.see("crash between effects");
                    return self.owner_dies(owner);
                }
                *left -= 1;
            }
            self.perform_one(owner, effect);
            if !self.owners[owner].is_up() {
                // Its machine stopped within this effect.
                return;
            }
        }
    }

    pub(super) fn perform_one(&mut self, owner: usize, effect: Effect) {
        match effect {
            Effect::Append(append) => {
                let (stream, partition) = (append.stream, append.partition);
                let record = &append.record;
                let numbers = [22, owner as u64, u64::from(partition), hash_of(record)];
                self.event(&numbers, || {
                    let kind = kind_of(record);
                    format!("owner {owner} appends to {stream:?} {partition}: {kind}")
                });
                self.append(owner, append);
            }
            Effect::Follow {
                stream,
                partition,
                from,
            } => self.follow(owner, stream, partition, from),
            Effect::Unfollow { stream, partition } => {
                self.owners[owner].session.unfollow(stream, partition);
            }
            Effect::Restore {
                partition,
                attempt,
                known,
            } => {
                let us = self.random.spread(500, 600_000);
                self.at_owner(owner, self.now_us + us, move |world| {
                    world.restored(owner, partition, attempt, &known);
                });
            }
            Effect::Publish { topic, frame } => self.publish(owner, topic, frame),
            Effect::Answer { peer, message } => self.answer(owner, &peer, message),
            Effect::Reply { id, reply } => self.operator_is_told(owner, id, &reply),
            Effect::SaveSnapshot {
                partition,
                upto,
                moment,
            } => {
                let mut chunks = Vec::new();
                moment.0.write(|chunk| chunks.push(chunk));
                let host = &mut self.owners[owner];
                host.writing.insert(partition, (upto, chunks));
                let us = host.random.spread(500, 400_000);
                self.at_owner(owner, self.now_us + us, move |world| {
                    world.snapshot_written(owner, partition);
                });
            }
            Effect::DropSnapshot { partition, upto } => self.drop_snapshot(owner, partition, upto),
            Effect::Aside(aside) => {
                let what = format!(
                    "owner {owner} refuses {:?} {}, offset {}: {}",
                    aside.stream, aside.partition, aside.offset, aside.why
                );
                self.violated(5, "what is in the log is ruled", what);
            }
            Effect::GiveUp { why, .. } => {
                self.violated(7, "an owner goes on", format!("owner {owner}: {why}"));
            }
        }
    }

    pub(super) fn answer(&mut self, owner: usize, peer: &Peer, message: Vec<u8>) {
        let Ok(connection) = peer.0.as_ref().try_into().map(u64::from_be_bytes) else {
            return;
        };
        let Some(agent) = self.owners[owner]
            .connections
            .get(&connection)
            .map(|c| c.agent)
        else {
            return;
        };
        if let Ok(FromAggregator::Snapshot(snapshot)) = FromAggregator::decode(&message) {
            self.note_clock(owner, snapshot.instance, snapshot.clock);
            for topic in &snapshot.topics {
                let publisher = (owner, snapshot.instance);
                self.check_statements(
                    publisher,
                    &topic.resource,
                    &topic.statements,
                    &snapshot.watermarks,
                );
            }
        }
        let event = SocketEvent::LinkMessage {
            peer: owner,
            message: message.into(),
        };
        self.send_to_agent(Way::Down.between(agent, owner), connection, event);
    }

    pub(super) fn publish(&mut self, owner: usize, topic: Topic, bytes: Vec<u8>) {
        if topic.is_of_notices() {
            return self.check_notices(owner, &bytes);
        }
        match Frame::decode(&bytes) {
            Ok(frame) => {
                self.note_clock(owner, frame.instance, frame.sent);
                let publisher = (owner, frame.instance);
                self.check_statements(
                    publisher,
                    &frame.resource,
                    &frame.statements,
                    &frame.watermarks,
                );
                self.check_order(owner, &frame);
                self.check_marks(owner, &frame.watermarks);
            }
            Err(_) if self.is_of_an_agent(topic) => {
                if let Some(violation) = self.check_verdicts(owner, &bytes) {
                    return self.violated(4, "verdicts are what a second engine says", violation);
                }
            }
            Err(error) => {
                return self.violated(4, "frames can be read", format!("owner {owner}: {error}"));
            }
        }
        let frame = Bytes::from(bytes);
        let subscribers: Vec<(u64, usize)> = self.owners[owner]
            .connections
            .iter()
            .filter(|(_, one)| one.topics.as_ref().is_some_and(|t| t.contains(&topic)))
            .map(|(connection, one)| (*connection, one.agent))
            .collect();
        for (connection, agent) in subscribers {
            let event = SocketEvent::FeedFrame {
                peer: owner,
                topic,
                frame: frame.clone(),
            };
            self.send_to_agent(Way::Feed.between(agent, owner), connection, event);
        }
    }

    /// Notices are information only: agents here ignore them, and a second engine's statements do not contain them.
    fn check_notices(&mut self, owner: usize, bytes: &[u8]) {
        let fault = match NoticeFrame::decode(bytes) {
            Ok(frame) => { frame.notices.iter() }
                .find(|notice| notice.limit < notice.left)
                .map(|notice| format!("owner {owner}: {notice:?}")),
            Err(error) => Some(format!("owner {owner}: {error}")),
        };
        if let Some(fault) = fault {
            self.violated(
                4,
                "notices can be read, and leave no more than the limit",
                fault,
            );
        }
    }

    fn is_of_an_agent(&self, topic: Topic) -> bool {
        let name = |index: usize| format!("agent-{index}");
        (0..self.agents.len())
            .any(|index| topic == Topic::of_agent(&TOPIC_KEY_UNPROTECTED, &name(index)))
    }

    /// Describes what is wrong with a frame of verdicts, if anything.
    fn check_verdicts(&self, owner: usize, bytes: &[u8]) -> Option<String> {
        match VerdictFrame::decode(bytes) {
            Ok(frame) => {
                let unsaid = |one: &&Verdict| !self.watch.says_verdict(one);
                let unsaid = frame.verdicts.iter().find(unsaid)?;
                Some(format!("owner {owner} says {unsaid:?}"))
            }
            Err(error) => Some(format!("owner {owner}: {error}")),
        }
    }

    /// Checks that an aggregator's statement equals the second engine's at that log position, and that its
    /// remaining time is no longer than the denial still lasts.
    pub(super) fn check_statements(
        &mut self,
        (owner, instance): (usize, u128),
        resource: &str,
        statement: &[StatementNotice],
        watermarks: &[Watermark],
    ) {
        for statement in statement {
            let Some(ruled) =
                self.watch
                    .of_statement(statement.partition, resource, &statement.statement)
            else {
                let what = format!("owner {owner} says of {resource}: {statement:?}");
                return self.violated(4, "what is announced is what a second engine says", what);
            };
            let StatementKind::Denied(denial) = statement.statement.kind else {
                continue;
            };
            // A denial that is over is published with no time left, and one without an end with no end.
            let has_no_end = statement.remaining == Span::MAX && denial.end == Timestamp::MAX;
            if has_no_end || statement.remaining == Span::ZERO {
                continue;
            }
            let mut of_it = watermarks
                .iter()
                .filter(|one| one.partition == statement.partition);
            let ruled_upto = of_it.next().map_or(0, |one| one.ruled);
            let Some(log_us) = ruled.log_time(instance, ruled_upto, self.now_us) else {
                let what =
                    format!("owner {owner} says of {resource} {statement:?}, without a tick");
                return self.violated(3, "a denial is told no longer than it lasts", what);
            };
            let left_us = denial.end.as_micros().saturating_sub(log_us);
            if left_us < statement.remaining.as_micros() {
                let what = format!(
                    "owner {owner} says of {resource} {statement:?}: {left_us} us are left"
                );
                return self.violated(3, "a denial is told no longer than it lasts", what);
            }
        }
    }

    /// Law 7: an aggregator publishes a statement before any watermark beyond it; otherwise an agent would take the
    /// statement for known. A topic that skips a sequence begins anew.
    fn check_order(&mut self, owner: usize, frame: &Frame) {
        let topic = self.owners[owner].published.entry(frame.resource.clone());
        let (sequence, watermarks) = topic.or_default();
        if *sequence + 1 != frame.sequence {
            watermarks.clear();
        }
        *sequence = frame.sequence;
        let is_late = |notice: &&StatementNotice| {
            let position = notice.statement.position;
            let known = watermarks.get(&notice.partition);
            known.is_some_and(|upto: &LogPosition| {
                upto.generation == position.generation && position < *upto
            })
        };
        let late = frame.statements.iter().find(is_late).cloned();
        for one in &frame.watermarks {
            watermarks.insert(one.partition, LogPosition::of_record(one.log, one.ruled));
        }
        if let Some(late) = late {
            let what = format!(
                "owner {owner}, frame {} of {}: {late:?}",
                frame.sequence, frame.resource
            );
            self.violated(7, "no statement comes behind a watermark beyond it", what);
        }
    }

    /// Law 8: without faults, a watermark is marked as current if its last record is new.
    fn check_marks(&mut self, owner: usize, watermarks: &[Watermark]) {
        if self.now_us < self.judged_since_us() {
            return;
        }
        let is_new = |one: &&Watermark| {
            let ruled = &self.watch.ruled[one.partition as usize];
            let last = one.ruled.checked_sub(1);
            let taken = last.and_then(|last| ruled.taken.get(last as usize));
            ruled.log == Some(one.log)
                && taken.is_some_and(|(at_us, _)| self.now_us < at_us + NEW_US)
        };
        if let Some(one) = watermarks.iter().filter(is_new).find(|one| !one.current) {
            let what = format!("owner {owner}: {one:?}");
            self.violated(8, "what is current is marked so", what);
        }
    }

    pub(super) fn ask(&mut self, owner: usize, query: Query) -> Option<Reply> {
        let host = &mut self.owners[owner];
        let now = host.now(self.now_us);
        let core = host.core.as_mut()?;
        let mut effects = Vec::new();
        let id = tollgate_server::core::event::QueryId(0);
        core.step(now, CoreEvent::Query { id, query }, &mut effects);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { reply, .. } => Some(*reply),
            _ => None,
        })
    }
}

fn kind_of(record: &[u8]) -> String {
    match Record::decode(record) {
        Ok(Record::Hits(batch)) => format!(
            "batch {} of {} with {} entries",
            batch.sender.sequence,
            batch.sender.agent,
            batch.hits().len()
        ),
        Ok(Record::Genesis(_)) => "genesis".to_owned(),
        Ok(Record::Tick(_)) => "a tick".to_owned(),
        Ok(Record::Totals(total)) => format!(
            "a total of {}, partition {}, offset {}, {} milliseconds",
            total.resource,
            total.source_partition,
            total.source_offset,
            total.counted().count()
        ),
        Ok(Record::LimitsActivation(_)) => "a pointer".to_owned(),
        Ok(Record::Holds(batch)) => {
            let ops = batch.ops().map(|op| {
                let of = batch.resource(op.resource);
                format!("{of} {}: {:?}", op.number, op.action)
            });
            let ops = ops.collect::<Vec<_>>().join(", ");
            format!("operations of {}: {ops}", batch.sender.agent)
        }
        Ok(Record::Heartbeat(heartbeat)) => format!("a heartbeat: {heartbeat:?}"),
        _ => format!("{} bytes", record.len()),
    }
}

/// Describes a frame for people.
pub fn describe_frame(bytes: &[u8]) -> String {
    match Frame::decode(bytes) {
        Ok(frame) => {
            let notices: Vec<String> = frame
                .statements
                .iter()
                .map(|notices| {
                    let says = match notices.statement.kind {
                        StatementKind::Denied(_) => {
                            format!("denied for {} us", notices.remaining.as_micros())
                        }
                        StatementKind::Lifted => "open".to_owned(),
                    };
                    format!(
                        "{:?} {says} by {}",
                        notices.statement.scope, notices.statement.position
                    )
                })
                .collect();
            let topic = match &*frame.resource {
                "" => "control",
                resource => resource,
            };
            let ruled: Vec<u64> = frame.watermarks.iter().map(|one| one.ruled).collect();
            format!(
                "{topic} {}: {notices:?}, ruled up to {ruled:?}",
                frame.sequence
            )
        }
        Err(error) => match VerdictFrame::decode(bytes) {
            Ok(frame) => format!("verdicts: {:?}", frame.verdicts),
            Err(_) => error.to_string(),
        },
    }
}
