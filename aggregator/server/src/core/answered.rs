//! What the log says of an append: done, or not.
//!
//! Whoever asked for it is found by its ticket. What stays true: an answer that nobody waits for changes nothing.

use tollgate_log::{AppendError, RETRY_AFTER, Ticket};
use tollgate_shared::time::Timestamp;

use super::event::Now;
use super::{Core, Purpose};

impl Core {
    pub(super) fn answered(
        &mut self,
        now: Now,
        ticket: Ticket,
        result: Result<u64, AppendError>,
        taken: Option<Timestamp>,
    ) {
        let Some(purpose) = self.appends.remove(&ticket) else {
            return;
        };
        if let Err(error) = &result {
            self.counters.append_failures += 1;
            tracing::debug!(?purpose, %error, "an append failed");
        }
        let done = result.is_ok();
        match purpose {
            Purpose::Genesis(stream, partition) => {
                let at = (stream, partition);
                self.identities.answered(at, ticket, done, now.clock);
            }
            Purpose::Tick(index) => {
                // One that the log has is on its way until it comes back.
                if let Some(partition) = self.partitions.get_mut(index as usize) {
                    match done {
                        true => partition.ticks.taken(ticket, taken),
                        false => partition.ticks.slot.failed_of(ticket, now.clock),
                    }
                }
            }
            Purpose::Pointer(_) if done => {}
            Purpose::Pointer(index) => {
                if let Some(partition) = self.partitions.get_mut(index as usize) {
                    partition.pointer.failed_of(ticket, now.clock);
                }
            }
            Purpose::Total(key) => match done {
                true => self.totals.acknowledged(&key, ticket),
                false => {
                    let not_before = now.clock.saturating_add(RETRY_AFTER);
                    self.totals.failed(&key, ticket, not_before);
                }
            },
            Purpose::Evidence(index) => self.evidence_answered(now, index, ticket, done),
            // One that is missing is one comparison less; the next is due in 10 s.
            Purpose::Testimony | Purpose::Bridge => {}
            Purpose::Chunk(push) => {
                if let Err(error) = &result {
                    self.push_failed(now, push, error);
                }
            }
            Purpose::Amendment(push) => {
                if let Err(error) = &result {
                    self.proposal_failed(push, &error.to_string());
                }
            }
            Purpose::Agent {
                peer,
                id,
                partition,
            } => self.agent_answered(peer, id, partition, result),
        }
    }

    fn evidence_answered(&mut self, now: Now, index: u32, ticket: Ticket, done: bool) {
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return;
        };
        match done {
            true => {
                self.counters.denials_recorded += 1;
                partition.recordings.acknowledged(ticket);
            }
            false => partition.recordings.failed(ticket, now.clock),
        }
    }
}
