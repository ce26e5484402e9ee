//! Heartbeats: they state to a partition everything that the agent holds of the partition's resources.
//!
//! Mostly a digest; a list at first, every ten seconds, and after anything that may have been lost. A list that does
//! not fit into one record is cut into records that are valid by themselves.

use std::sync::Arc;

use tollgate_shared::time::Span;
use tollgate_shared::wire::heartbeat::HeartbeatHead;

use super::HoldSession;
use super::entry::{HeldResource, KeptHold};
use crate::batch::Payload;
use crate::batch::holds::{Heartbeat, HeartbeatContent, HeartbeatHold, HeartbeatPart};
use crate::clock::Mono;
use crate::stats::Counters;

/// How often everything is listed: for at most this long a lost release has no effect, while the agent sends
/// heartbeats.
const LIST_EVERY: Span = Span::from_secs(10);

/// How long a verdict may take before the agent asks for it.
const ASK_AFTER: Span = Span::from_secs(1);

/// The most holds of each resource that one heartbeat asks about; the next one asks about more.
const ASKED_MAX: usize = 1_024;

/// The most awaited verdicts of each resource that go with a digest; the next heartbeat has more.
const AWAITING_MAX: usize = 16_384;

/// Bytes of one part, and of one record: a message may have a million.
const PART_BYTES: usize = 200_000;
const RECORD_BYTES: usize = 500_000;

/// Resources of one record; with names of the greatest length they are a fourth of a message.
pub(super) const RESOURCES_MAX: usize = 1_000;

impl HoldSession {
    /// The least heartbeat interval of a partition's resources.
    pub(super) fn heartbeat_every(&self, partition: u32) -> Span {
        let of_it = self.held.values().filter(|one| one.partition == partition);
        of_it
            .map(HeldResource::heartbeat_every)
            .min()
            .unwrap_or(Span::from_millis(500))
    }

    /// After limits have changed, no heartbeat is due later than by the interval of the new ones, which may be shorter.
    pub(super) fn heartbeats_in_time(&mut self, now: Mono) {
        let changes = self.resources.limits_changes();
        if std::mem::replace(&mut self.limits_changes, changes) == changes {
            return;
        }
        let partitions: Vec<u32> = self.queues.keys().copied().collect();
        for partition in partitions {
            let latest = now.plus(self.heartbeat_every(partition));
            if let Some(queue) = self.queues.get_mut(&partition) {
                queue.heartbeat_at = queue.heartbeat_at.map(|at| at.min(latest));
            }
        }
    }

    /// Sends a heartbeat, if one is due and no operation waits before it.
    pub(super) fn heartbeat_if_due(&mut self, partition: u32, now: Mono, out: &mut Vec<Payload>) {
        let due = self.queues.get(&partition).is_some_and(|queue| {
            queue.operations.is_empty() && queue.heartbeat_at.is_some_and(|at| at <= now)
        });
        if !due {
            return;
        }
        let of_it = |held: &&mut HeldResource| held.partition == partition;
        let holds = self
            .held
            .values_mut()
            .filter(of_it)
            .any(|one| !one.holds.is_empty());
        let every = self.heartbeat_every(partition);
        let Some(queue) = self.queues.get_mut(&partition) else {
            return;
        };
        let owed = std::mem::take(&mut queue.owed);
        queue.heartbeat_at = holds.then(|| now.plus(every));
        if !holds && !owed {
            return;
        }
        queue.used = true;
        let parts: Vec<HeartbeatPart> = self
            .held
            .values_mut()
            .filter(of_it)
            .flat_map(|held| held.parts(now))
            .collect();
        Counters::add(&self.counters.heartbeats, 1);
        out.extend(records(partition, self.origin.replaces, parts));
    }
}

/// Packs parts into records.
fn records(partition: u32, replaces: Option<u128>, parts: Vec<HeartbeatPart>) -> Vec<Payload> {
    let mut records: Vec<Heartbeat> = Vec::new();
    let mut bytes = 0;
    for part in parts {
        let size = part.bytes();
        match records.last_mut() {
            Some(record) if bytes + size <= RECORD_BYTES && record.parts.len() < RESOURCES_MAX => {
                bytes += size;
                record.parts.push(part);
            }
            _ => {
                bytes = size;
                records.push(Heartbeat {
                    partition,
                    parts: vec![part],
                    ..Heartbeat::default()
                });
            }
        }
    }
    if records.is_empty() {
        records.push(Heartbeat {
            partition,
            ..Heartbeat::default()
        });
    }
    // Every resource that was ever used is listed, so that a missing resource has no meaning.
    let more = 1 < records.len();
    for record in &mut records {
        record.head = HeartbeatHead {
            replaces,
            more,
            last: false,
        };
    }
    records.into_iter().map(Payload::Heartbeat).collect()
}

impl HeldResource {
    /// The heartbeat's statements about the resource: the parts of a list, or a digest.
    fn parts(&mut self, now: Mono) -> Vec<HeartbeatPart> {
        self.ask_back();
        let list = self.list_wanted || self.listed.is_none_or(|last| LIST_EVERY <= now.since(last));
        let mut part = self.part(HeartbeatContent::Digest(self.digest));
        if !list {
            for (number, kept) in &self.holds {
                if !kept.in_use() && part.awaiting.len() < AWAITING_MAX {
                    part.awaiting.push(*number);
                }
                part.ask_if_silent(*number, kept, now);
            }
            return vec![part];
        }
        (self.list_wanted, self.listed) = (false, Some(now));
        let mut parts = Vec::new();
        let mut from = 0;
        let mut listed = Vec::new();
        let mut bytes = 0;
        for (number, kept) in &self.holds {
            if PART_BYTES <= bytes && from < *number {
                // Up to the number before this one; there is one, since something was listed.
                let upto = number.saturating_sub(1);
                let content = HeartbeatContent::List {
                    from,
                    upto,
                    listed: std::mem::take(&mut listed),
                };
                let next = self.part(HeartbeatContent::Digest(self.digest));
                parts.push(std::mem::replace(&mut part, next).with(content));
                (from, bytes) = (*number, 0);
            }
            if kept.in_use() {
                let hold = kept.listed(*number);
                bytes += hold.bytes();
                listed.push(hold);
                part.ask_if_silent(*number, kept, now);
            } else {
                bytes += 9;
                part.awaiting.push(*number);
            }
        }
        parts.push(part.with(HeartbeatContent::List {
            from,
            upto: u64::MAX,
            listed,
        }));
        parts
    }

    fn part(&self, content: HeartbeatContent) -> HeartbeatPart {
        HeartbeatPart {
            name: Arc::clone(&self.resource.name),
            awaiting: Vec::new(),
            asked: Vec::new(),
            content,
        }
    }
}

impl HeartbeatPart {
    fn with(self, content: HeartbeatContent) -> Self {
        Self { content, ..self }
    }

    fn ask_if_silent(&mut self, number: u64, kept: &KeptHold, now: Mono) {
        let silent = kept.in_use() && kept.in_doubt && ASK_AFTER <= now.since(kept.since);
        if silent && self.asked.len() < ASKED_MAX {
            self.asked.push(number);
        }
    }
}

impl KeptHold {
    fn listed(&self, number: u64) -> HeartbeatHold {
        HeartbeatHold {
            number,
            domain: Arc::clone(&self.domain),
            copies: self.copies,
            start: self.start,
            strict: self.strict,
            seized: self.seized,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{SessionBench, counted, digest};
    use super::*;

    #[test]
    fn after_a_shorter_timeout_the_next_heartbeat_is_due_sooner() {
        let mut bench = SessionBench::new();
        bench.learn_timeout(2, 40);
        let one = bench.hold("acme", 1);
        bench.sent();
        bench.say(counted(one, 1));
        let ten = Span::from_secs(10);
        assert_eq!(bench.sent_after(ten), ["heartbeat list [1x1]"]);
        bench.learn_timeout(3, 2);
        assert_eq!(bench.sent(), [""; 0]);
        assert_eq!(bench.half_second(), [digest(&[(1, 1)])]);
        assert_eq!(bench.half_second(), [digest(&[(1, 1)])]);
        // A longer one makes none later that is due.
        bench.learn_timeout(4, 40);
        assert_eq!(bench.half_second(), [digest(&[(1, 1)])]);
        assert_eq!(bench.sent_after(Span::from_secs(9)), [""; 0]);
    }
}
