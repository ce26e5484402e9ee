//! What agents ask: where the feed is, that a record be appended, what is in force.

use tollgate_shared::wire::link::{FromAggregator, Refusal};

use super::Core;
use super::environment::{Environment, Purpose};
use super::event::{Now, Peer, Request};
use super::identities::Identities;
use tollgate_log::{AppendError, Stream};

/// Records of agents that may be on their way to the log. Beyond it they are told to come again.
const APPENDS_MAX: usize = 65_536;

/// Records of agents that are on their way to the log.
#[derive(Debug, Default)]
pub(super) struct AgentAppends(usize);

impl Core {
    pub(super) fn agent_asks(&mut self, now: Now, peer: Peer, request: Request) {
        match request {
            Request::Hello { nonce } => {
                let welcome = FromAggregator::Welcome {
                    nonce,
                    instance: self.env.instance,
                    partitions: self.env.settings.partitions,
                    feeds: self.env.settings.feeds.clone(),
                    clock: now.clock,
                    members: self.membership.members.clone(),
                };
                self.env.answer(peer, &welcome);
            }
            Request::Append {
                id,
                partition,
                record,
            } => {
                let (whose, env) = ((peer, id, partition), &mut self.env);
                let appends = &mut self.agent_appends;
                appends.append(whose, record, &self.identities, env);
            }
            Request::Ask { nonce, resources } => {
                let ready = self.ready(now.clock);
                // What was ruled in this turn is told first, so that the sequences that the snapshot names
                // continue with frames of later turns.
                self.feed.publish_pending(now, &ready, &mut self.env);
                let point = self.feed.announcer.point(&ready, &resources);
                let env = &mut self.env;
                self.givings.asked(peer, nonce, resources, point, env);
            }
        }
    }
}

impl AgentAppends {
    /// Appends a record for an agent, or tells it to come again.
    fn append(
        &mut self,
        (peer, id, partition): (Peer, u64, u32),
        record: Vec<u8>,
        identities: &Identities,
        env: &mut Environment,
    ) {
        let why = if identities.is_awaited((Stream::Hits, partition)) {
            Some("the partition is being begun")
        } else if APPENDS_MAX <= self.0 {
            Some("too many records are on their way to the log")
        } else {
            None
        };
        if let Some(why) = why {
            env.out.tally.counters.agent_refusals += 1;
            let refused = FromAggregator::Refused {
                id,
                reason: Refusal::NotNow,
                text: why.into(),
            };
            return env.answer(peer, &refused);
        }
        self.0 += 1;
        let purpose = Purpose::Agent {
            peer,
            id,
            partition,
        };
        env.append(Stream::Hits, partition, record, purpose);
    }

    /// The log has answered: so is the agent.
    pub(super) fn answered(
        &mut self,
        (peer, id, partition): (Peer, u64, u32),
        result: Result<u64, AppendError>,
        env: &mut Environment,
    ) {
        self.0 -= 1;
        let counters = &mut env.out.tally.counters;
        let refused = |reason, text: String| FromAggregator::Refused {
            id,
            reason,
            text: text.into(),
        };
        let answer = match result {
            Ok(offset) => {
                counters.agent_appends += 1;
                FromAggregator::Appended {
                    id,
                    partition,
                    offset,
                }
            }
            Err(AppendError::Never(text)) => refused(Refusal::Never, text),
            Err(AppendError::NotNow(text)) => {
                counters.agent_refusals += 1;
                refused(Refusal::NotNow, text)
            }
        };
        env.answer(peer, &answer);
    }
}
