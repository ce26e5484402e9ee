//! Several partitions take their steps at once, on a configured number of threads.
//!
//! ```text
//! events by partition ── thread 1: 0, 3 ─┐
//!                     ── thread 2: 1, 2 ─┴─> effects, partition after partition
//! ```
//!
//! Threads share only data that does not change meanwhile, and it makes no difference which of them takes a step:
//! effects are carried out afterwards, in the order of the partitions. Knows nothing of what the events are. What
//! stays true: the effects do not depend on the number of threads; events of one partition keep their order.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use tollgate_log::{Answer, LogEvent, Stream};

use super::Core;
use super::event::{Effect, Now};
use super::partition::Partition;
use super::partition::appends::sender_of;
use super::partition::event::{PartitionContext, PartitionEvent, PartitionOutput};

/// The partition that an event of the log concerns: deliveries, reading, and answers to its appends. `None`: the
/// event concerns no partition.
pub fn partition_of(event: &LogEvent) -> Option<u32> {
    match event {
        LogEvent::Delivered {
            stream, partition, ..
        }
        | LogEvent::CaughtUp {
            stream, partition, ..
        }
        | LogEvent::Following {
            stream, partition, ..
        }
        | LogEvent::Gap {
            stream, partition, ..
        }
        | LogEvent::Broken {
            stream, partition, ..
        } => (*stream == Stream::Hits).then_some(*partition),
        LogEvent::Appended { answers, .. } => only_sender_of(answers),
        LogEvent::Lost { .. }
        | LogEvent::Down { .. }
        | LogEvent::Up
        | LogEvent::CloseFailed { .. }
        | LogEvent::Closed => None,
    }
}

/// The partition that made all of these appends; `None`: several did, or one that no partition made is among them.
fn only_sender_of(answers: &[Answer]) -> Option<u32> {
    let sender = sender_of(answers.first()?.ticket)?;
    let is_of_it = |answer: &Answer| sender_of(answer.ticket) == Some(sender);
    answers.iter().all(is_of_it).then_some(sender)
}

/// The events for one partition, and their results.
struct PartitionJob<'a> {
    partition: &'a mut Partition,
    events: Vec<PartitionEvent<'a>>,
    out: PartitionOutput,
}

impl PartitionJob<'_> {
    fn run(&mut self, now: Now, context: &PartitionContext<'_>) {
        for event in self.events.drain(..) {
            self.partition.step(now, event, context, &mut self.out);
        }
    }
}

impl Core {
    /// Sets the number of threads that rule, where there are enough partitions with events.
    pub fn rule_on(&mut self, threads: NonZeroUsize) {
        self.threads = threads;
    }

    /// Handles events of the log that each [concern a partition](partition_of), and hands out the effects.
    pub fn rule_together(&mut self, now: Now, events: &[LogEvent], effects: &mut Vec<Effect>) {
        let mut by_partition: BTreeMap<u32, Vec<PartitionEvent<'_>>> = BTreeMap::new();
        for event in events {
            if let Some((partition, event)) = self.for_partition(event) {
                by_partition.entry(partition).or_default().push(event);
            }
        }
        self.step_together(now, by_partition.into_iter().collect());
        self.hand_out(now, effects);
    }

    /// Hands several partitions their events, in the order of the partitions, and carries out the effects.
    pub(super) fn step_together<'e>(
        &mut self,
        now: Now,
        events: Vec<(u32, Vec<PartitionEvent<'e>>)>,
    ) {
        if events.is_empty() {
            return;
        }
        let mut events = events.into_iter().peekable();
        let mut jobs: Vec<PartitionJob<'_>> = Vec::new();
        let threads = self.threads;
        let (context, partitions, _) = self.at_hand();
        for partition in partitions {
            if let Some((_, events)) = events.next_if(|(of, _)| *of == partition.index) {
                jobs.push(PartitionJob {
                    partition,
                    events,
                    out: PartitionOutput::default(),
                });
            }
        }
        run_all(&mut jobs, threads, now, &context);
        let done = jobs.into_iter().map(|job| (job.partition.index, job.out));
        let done: Vec<(u32, PartitionOutput)> = done.collect();
        for (partition, out) in done {
            self.env.out.tally.add(&out.tally);
            for effect in out.effects {
                self.carry_out(now, partition, effect);
            }
        }
    }
}

/// Does all jobs, on at most as many threads as there are jobs. The calling thread is one of them.
fn run_all(
    jobs: &mut [PartitionJob<'_>],
    threads: NonZeroUsize,
    now: Now,
    context: &PartitionContext<'_>,
) {
    let others = threads.get().min(jobs.len()).saturating_sub(1);
    let queue = Mutex::new(jobs.iter_mut());
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.next()
    };
    let work = || {
        while let Some(job) = next() {
            job.run(now, context);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..others {
            let thread = std::thread::Builder::new().name("ruling".to_owned());
            // If it cannot be spawned, the other threads do its part.
            if let Err(error) = thread.spawn_scoped(scope, work) {
                tracing::warn!(%error, "no thread to rule on");
            }
        }
        work();
    });
}
