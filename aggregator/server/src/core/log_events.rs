//! Dispatches events of the log by what they concern: a partition, the limits, an append, or the log itself.

use std::slice;

use tollgate_log::{Answer, AppendError, Delivered, LogEvent, Stream, Ticket};
use tollgate_shared::time::Timestamp;

use super::Core;
use super::environment::Purpose;
use super::event::{DeadLetter, Effect, Now};
use super::partition::appends::sender_of;
use super::partition::event::PartitionEvent;
use super::partition::{Partition, Stage};
use super::together::partition_of;

impl Core {
    pub(super) fn handle_log(&mut self, now: Now, event: LogEvent) {
        if let Some((partition, event)) = self.for_partition(&event) {
            return self.handle_partition(now, partition, event);
        }
        match event {
            LogEvent::Delivered {
                stream: Stream::Limits,
                records,
                ..
            } => self.limits_delivered(now, &records),
            LogEvent::CaughtUp {
                stream: Stream::Limits,
                next,
                ..
            } => self.limits_caught_up(now, next),
            LogEvent::Gap {
                stream,
                partition,
                wanted,
                next,
            } => self.gap(stream, partition, (wanted, next)),
            LogEvent::Broken {
                stream, next, why, ..
            } => {
                tracing::error!(?stream, next, why, "the log cannot be read any further");
                if stream == Stream::Limits {
                    self.limits.broken = Some(why);
                }
            }
            LogEvent::Lost {
                partition,
                from,
                upto,
            } => self.hits_lost(now, partition, (from, upto)),
            LogEvent::Appended { answers, taken } => self.answered(now, answers, taken),
            LogEvent::Down { why } => {
                if self.log_down.is_none() {
                    tracing::error!(why, "the log accepts nothing; trying again");
                }
                self.log_down = Some(why);
            }
            LogEvent::Up => {
                if self.log_down.take().is_some() {
                    self.log_up_since = Some(now.clock);
                    tracing::info!("the log accepts records again");
                }
            }
            // Decision records are written here and read by other programs.
            LogEvent::Delivered { .. }
            | LogEvent::CaughtUp { .. }
            | LogEvent::Following { .. }
            | LogEvent::CloseFailed { .. }
            | LogEvent::Closed => {}
        }
    }

    /// The event for the partition that it concerns; `None`: it concerns no partition.
    pub(super) fn for_partition<'e>(
        &self,
        event: &'e LogEvent,
    ) -> Option<(u32, PartitionEvent<'e>)> {
        let partition = partition_of(event)?;
        let event = match event {
            LogEvent::Delivered { records, .. } => PartitionEvent::Delivered(records),
            LogEvent::CaughtUp { next, .. } => PartitionEvent::CaughtUp { next: *next },
            LogEvent::Following { from, .. } => PartitionEvent::Following { from: *from },
            LogEvent::Gap { wanted, next, .. } => PartitionEvent::Gap {
                wanted: *wanted,
                next: *next,
                ruled_too: self.membership.ruled_too.contains(&partition),
            },
            LogEvent::Broken { next, why, .. } => PartitionEvent::Broken { next: *next, why },
            LogEvent::Appended { answers, taken } => PartitionEvent::Answered {
                answers,
                taken: *taken,
            },
            LogEvent::Lost { .. }
            | LogEvent::Down { .. }
            | LogEvent::Up
            | LogEvent::CloseFailed { .. }
            | LogEvent::Closed => return None,
        };
        Some((partition, event))
    }

    /// Counts hits that were removed before a snapshot had them, and says so, at most once a minute.
    fn hits_lost(&mut self, now: Now, partition: u32, (from, upto): (u64, u64)) {
        let records = upto.saturating_sub(from) + 1;
        let total = &mut self.env.out.tally.counters.records_lost;
        *total += records;
        if let Some(unsaid) = self.lost.may(now.clock) {
            tracing::warn!(
                partition,
                from,
                upto,
                unsaid,
                tollgate_records_lost_total = *total,
                "hits that no snapshot has are removed, because the journal is above journal.retention_bytes: a start before \
                 the next snapshot does not know what they used"
            );
        }
    }

    fn gap(&mut self, stream: Stream, partition: u32, (wanted, next): (u64, u64)) {
        if wanted == 0 && 0 < next {
            tracing::info!(?stream, partition, next, "the log begins at a later offset");
        } else {
            self.env.out.tally.counters.gaps += 1;
            tracing::error!(
                ?stream,
                partition,
                wanted,
                next,
                "records were removed before they could be read"
            );
        }
        if stream == Stream::Limits && next < wanted {
            self.limits.on_recreated_limits(&mut self.env);
        }
    }

    /// The log answered appends of several partitions, or of others.
    fn answered(&mut self, now: Now, answers: Vec<Answer>, taken: Option<Timestamp>) {
        for answer in answers {
            if let Some(partition) = sender_of(answer.ticket) {
                let answers = slice::from_ref(&answer);
                let event = PartitionEvent::Answered { answers, taken };
                self.handle_partition(now, partition, event);
            } else {
                self.appended(now, answer.ticket, answer.result);
            }
        }
    }

    /// The log answered an append that no partition made; its purpose is found by the ticket.
    fn appended(&mut self, now: Now, ticket: Ticket, result: Result<u64, AppendError>) {
        let env = &mut self.env;
        let Some(purpose) = env.answered(ticket) else {
            return;
        };
        if let Err(error) = &result {
            env.out.tally.counters.append_failures += 1;
            tracing::debug!(?purpose, %error, "an append failed");
        }
        match (purpose, result) {
            (Purpose::Genesis(stream, partition), result) => {
                let (at, is_taken) = ((stream, partition), result.is_ok());
                self.identities.answered(at, ticket, is_taken, now.clock);
            }
            (
                Purpose::Agent {
                    peer,
                    id,
                    partition,
                },
                result,
            ) => {
                let whose = (peer, id, partition);
                self.agent_appends.answered(now, whose, result, env);
            }
            (Purpose::Document(push), Err(error)) => self.limits.push_failed(now, push, &error),
            (Purpose::Amendment(push), Err(error)) => {
                self.proposals.failed(push, &error.to_string(), env);
            }
            (Purpose::Document(_) | Purpose::Amendment(_), _) => {}
        }
    }

    fn limits_delivered(&mut self, now: Now, records: &[Delivered]) {
        if self.limits.broken.is_some() {
            return;
        }
        for record in records {
            let pairs = || self.partitions.iter().map(|p| p.ruler.pairs()).sum();
            match self.limits.read(record, pairs) {
                Ok(None) => {}
                Ok(Some(entered)) => {
                    self.proposals.entered(now, &entered, &mut self.env);
                    self.limits.entered(now, entered, &mut self.env);
                    self.limits.book.keep_act_alone(record.offset);
                }
                Err(error) => {
                    self.env.out.tally.counters.undecodable += 1;
                    let letter = DeadLetter::of(
                        (Stream::Limits, 0),
                        record,
                        error.to_string(),
                        !self.limits.caught_up,
                    );
                    self.env.effects.push(Effect::Aside(letter));
                }
            }
        }
        self.limits_are_read(now);
    }

    fn limits_caught_up(&mut self, now: Now, next: u64) {
        if next == 0 {
            self.identities.want((Stream::Limits, 0));
            self.state_identities(now.clock);
        }
        self.limits.caught_up(&mut self.env);
        if !std::mem::replace(&mut self.following_hits, true) && !self.membership.shared {
            self.begin_partitions(now);
        }
        self.limits_are_read(now);
        self.limits.turn(now, &mut self.env);
    }

    /// Restores every partition that has a snapshot, and begins to follow all of them. Called once, when the limits
    /// that snapshots refer to are known.
    fn begin_partitions(&mut self, now: Now) {
        let all = self.partitions.iter();
        let begin = all.map(|partition| (partition.index, vec![PartitionEvent::Begins]));
        self.step_together(now, begin.collect());
        let is_restored = |partition: &&Partition| partition.position.unverified;
        let restored = self.partitions.iter().filter(is_restored).count();
        if 0 < restored {
            tracing::info!(
                restored,
                partitions = self.partitions.len(),
                "partitions restored from snapshots"
            );
        }
    }

    /// Resumes partitions that waited for a limits version that is known by now: first those that are to be restored.
    fn limits_are_read(&mut self, now: Now) {
        if self.following_hits {
            self.handle_all(now, |partition| {
                let is_restored = matches!(partition.stage, Stage::Restoring { .. });
                is_restored.then_some(PartitionEvent::LimitsRead)
            });
        }
        self.handle_all(now, |partition| {
            let waits = matches!(partition.stage, Stage::Waiting { .. });
            waits.then_some(PartitionEvent::LimitsRead)
        });
    }
}
