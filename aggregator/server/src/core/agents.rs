//! Requests of agents: for the feed's address, to append a record, for a snapshot.

use std::collections::{BTreeMap, VecDeque};

use tollgate_shared::time::Span;
use tollgate_shared::wire::link::{FromAggregator, Refusal};

use super::Core;
use super::environment::{Environment, Purpose};
use super::event::{Now, Peer, Request};
use super::identities::Identities;
use super::partition::Partition;
use tollgate_log::{AppendError, Stream};

/// Records of agents that may be on their way to the log. Beyond it agents are refused, and try again later.
const APPENDS_MAX: usize = 65_536;

/// For so many records that are not ruled yet a partition keeps memory: at everyday rates it has some at every turn.
const UNRULED_KEPT: usize = 64;

/// How long a record that the log has may wait to be ruled before its agent is answered all the same.
const RULED_WITHIN: Span = Span::from_secs(1);

/// Records of agents that are on their way to the log, and records that the log has and that are not ruled yet.
///
/// Where this process rules the partition, an agent is answered once its record is ruled. An agent bounds what it
/// has under way, so an agent that sends more than can be ruled waits itself, and all other agents do not.
#[derive(Debug, Default)]
pub(super) struct AgentAppends {
    /// The number of records of both kinds.
    count: usize,
    /// Records in the log that are not ruled yet, by partition, in the order of the log.
    unruled: BTreeMap<u32, VecDeque<Unruled>>,
}

/// A record that the log has.
#[derive(Debug)]
struct Unruled {
    offset: u64,
    peer: Peer,
    id: u64,
    /// The agent is answered then at the latest.
    until: Span,
}

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
                    limits: self.limits.news_for_agents,
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
                // Statements of this turn are published first, so that the sequences that the snapshot names
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
    /// Appends a record for an agent, or refuses it for now.
    fn append(
        &mut self,
        (peer, id, partition): (Peer, u64, u32),
        record: Vec<u8>,
        identities: &Identities,
        env: &mut Environment,
    ) {
        let why = if identities.is_awaited((Stream::Hits, partition)) {
            Some("the partition is starting")
        } else if APPENDS_MAX <= self.count {
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
        self.count += 1;
        let purpose = Purpose::Agent {
            peer,
            id,
            partition,
        };
        env.append(Stream::Hits, partition, record, purpose);
    }

    /// The log has answered. The agent is answered once the record is ruled, or at once if the append failed.
    pub(super) fn answered(
        &mut self,
        now: Now,
        (peer, id, partition): (Peer, u64, u32),
        result: Result<u64, AppendError>,
        env: &mut Environment,
    ) {
        let counters = &mut env.out.tally.counters;
        let (reason, text) = match result {
            Ok(offset) => {
                counters.agent_appends += 1;
                let until = now.clock.saturating_add(RULED_WITHIN);
                let unruled = self.unruled.entry(partition).or_default();
                return unruled.push_back(Unruled {
                    offset,
                    peer,
                    id,
                    until,
                });
            }
            Err(AppendError::Never(text)) => (Refusal::Never, text),
            Err(AppendError::NotNow(text)) => {
                counters.agent_refusals += 1;
                (Refusal::NotNow, text)
            }
        };
        self.count -= 1;
        let text = text.into();
        env.answer(peer, &FromAggregator::Refused { id, reason, text });
    }

    /// Answers agents whose records are ruled, have waited for long enough, or are not ruled here any more.
    pub(super) fn turn(&mut self, now: Now, partitions: &[Partition], env: &mut Environment) {
        for (partition, unruled) in &mut self.unruled {
            if unruled.is_empty() {
                continue;
            }
            let rules = partitions.get(*partition as usize);
            let rules = rules.filter(|partition| partition.is_ready());
            let waits = |one: &Unruled| {
                rules.is_some_and(|of| of.position.next <= one.offset) && now.clock < one.until
            };
            let done = unruled.iter().take_while(|one| !waits(one)).count();
            for one in unruled.drain(..done) {
                self.count -= 1;
                let (id, partition, offset) = (one.id, *partition, one.offset);
                let appended = FromAggregator::Appended {
                    id,
                    partition,
                    offset,
                };
                env.answer(one.peer, &appended);
            }
            if unruled.is_empty() {
                unruled.shrink_to(UNRULED_KEPT);
            }
        }
    }
}
