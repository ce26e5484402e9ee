//! What agents ask: where the feed is, that a record be appended, what is in force.

use tollgate_shared::wire::Writer;
use tollgate_shared::wire::link::{FromAggregator, Refusal};

use super::event::{Effect, Now, Peer, Request};
use super::{Core, Purpose};
use tollgate_log::{AppendError, Stream};

/// Records of agents that may be on their way to the log. Beyond it they are told to come again.
const APPENDS_MAX: usize = 65_536;

impl Core {
    pub(super) fn agent_asks(&mut self, now: Now, peer: Peer, request: Request) {
        match request {
            Request::Hello { nonce } => {
                let welcome = FromAggregator::Welcome {
                    nonce,
                    instance: self.instance,
                    partitions: self.settings.partitions,
                    feeds: self.settings.feeds.clone(),
                    clock: now.clock,
                    members: self.members.clone(),
                };
                self.answer(peer, &welcome);
            }
            Request::Append {
                id,
                partition,
                record,
            } => self.append_for_agent(peer, id, partition, record),
            Request::Ask { nonce, resources } => self.snapshot_asked(now, peer, nonce, resources),
        }
    }

    fn append_for_agent(&mut self, peer: Peer, id: u64, partition: u32, record: Vec<u8>) {
        let why = if self.identities.is_awaited((Stream::Hits, partition)) {
            Some("the partition is being begun")
        } else if APPENDS_MAX <= self.appends_of_agents {
            Some("too many records are on their way to the log")
        } else {
            None
        };
        if let Some(why) = why {
            self.counters.agent_refusals += 1;
            let refused = FromAggregator::Refused {
                id,
                reason: Refusal::NotNow,
                text: why.into(),
            };
            return self.answer(peer, &refused);
        }
        self.appends_of_agents += 1;
        let purpose = Purpose::Agent {
            peer,
            id,
            partition,
        };
        self.append(Stream::Hits, partition, record, purpose);
    }

    pub(super) fn agent_answered(
        &mut self,
        peer: Peer,
        id: u64,
        partition: u32,
        result: Result<u64, AppendError>,
    ) {
        self.appends_of_agents -= 1;
        let refused = |reason, text: String| FromAggregator::Refused {
            id,
            reason,
            text: text.into(),
        };
        let answer = match result {
            Ok(offset) => {
                self.counters.agent_appends += 1;
                FromAggregator::Appended {
                    id,
                    partition,
                    offset,
                }
            }
            Err(AppendError::Never(text)) => refused(Refusal::Never, text),
            Err(AppendError::NotNow(text)) => {
                self.counters.agent_refusals += 1;
                refused(Refusal::NotNow, text)
            }
        };
        self.answer(peer, &answer);
    }

    pub(super) fn answer(&mut self, peer: Peer, answer: &FromAggregator) {
        let mut writer = Writer::new();
        answer.encode(&mut writer);
        self.effects.push(Effect::Answer {
            peer,
            message: writer.as_slice().to_vec(),
        });
    }
}
