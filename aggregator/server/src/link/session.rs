//! One connection of an agent: the agent and epoch for which it speaks, and what it may append to the log.
//!
//! ```text
//! hello    name web-1, secret s          from now on the connection speaks for (web-1, BLAKE3(s)[..16])
//! append   of web-1 and that epoch       accepted, if sequence and stamp are within bounds
//! append   of any other agent or epoch   refused, and counted: it never reaches the log
//! append   outside of its namespaces     the same, if its token is not for all
//! append   of hits of other partitions   the same: hits count only where their pairs are ruled
//! ```
//!
//! A batch under another process's epoch could move that process's clock, exceed its sequences or end its
//! holds; so knowing an epoch, which everybody can read in the feed, does not suffice to speak for it. These
//! checks are made before the append, and nowhere else: the engine knows nothing of connections.
//!
//! Knows no socket. What stays true: a connection speaks for one epoch as long as it lasts; a refused message
//! has changed nothing.

use std::sync::Arc;

use tollgate_shared::descriptors::rules_of_resource;
use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::hits::{HitBatch, Sender};
use tollgate_shared::wire::link::{ASK_RESOURCES_MAX, FromAgent, FromAggregator};
use tollgate_shared::wire::record::{Record, kind};

use super::fault::BatchFault;
use crate::core::event::Request;
use crate::security::TokenGrant;

/// The greatest sequence of a batch: an agent that sends a batch to a partition each microsecond reaches it in
/// nine years. It may skip any number, as after hours in which it sent its batches to another aggregator.
pub const SEQUENCE_MAX: u64 = 1 << 48;

/// How far a batch's send stamp may be from this process's clock. It is wide, because agents whose clock is wrong by
/// hours (a time zone) should still be limited: the engine moves their stamps, and counts that. A stamp that is
/// further off comes from a clock that was never set, the agent's or this machine's.
pub const SENT_APART_MAX: Span = Span::from_secs(24 * 3_600);

/// The most bytes of a batch of hits or holds. A partition rules a batch in one go, while others wait. Agents
/// fill a batch to 64 KiB and one entry.
pub const BATCH_BYTES_MAX: usize = 128 * 1024;

/// What to do with a message of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Pass it to the core.
    Request(Request),
    /// The same without the resources that the connection's token does not cover.
    InPart {
        /// What is left of it.
        request: Request,
        /// The first name that was left out, for the operator.
        fault: BatchFault,
    },
    /// Answer it at once: it does not go to the log.
    Refused {
        /// The answer.
        answer: FromAggregator,
        /// The reason, for the operator.
        fault: BatchFault,
    },
    /// The connection's token does not cover the agent's name.
    Stranger,
    /// It cannot be decoded, or contradicts an earlier hello, so there is no proper answer.
    Garbage,
}

/// The agent and epoch for which a connection speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Speaker {
    agent: Box<str>,
    epoch: u128,
    /// The previous epoch, if its secret was shown.
    before: Option<u128>,
}

/// One connection of an agent.
#[derive(Clone, Debug)]
pub struct Session {
    partitions: u32,
    speaker: Option<Speaker>,
    /// The grant of its admission; `None` where none is required.
    grant: Option<Arc<TokenGrant>>,
}

impl Session {
    /// A new connection to an aggregator of a log with this number of partitions.
    pub const fn new(partitions: u32) -> Self {
        Self {
            partitions,
            speaker: None,
            grant: None,
        }
    }

    /// Sets the grant against which messages are checked.
    pub fn set_grant(&mut self, grant: Option<Arc<TokenGrant>>) {
        self.grant = grant;
    }

    /// The agent's name, once the connection has stated it.
    pub fn agent(&self) -> Option<&str> {
        self.speaker.as_ref().map(|speaker| &*speaker.agent)
    }

    /// The agent's epoch, once the connection has proved it.
    pub fn epoch(&self) -> Option<u128> {
        self.speaker.as_ref().map(|speaker| speaker.epoch)
    }

    /// Decodes and checks a message that arrived at `wall` of this process's clock.
    pub fn admit(&mut self, message: &[u8], wall: Timestamp) -> Admitted {
        match FromAgent::decode(message) {
            Ok(FromAgent::Hello {
                nonce,
                agent,
                secret,
                before,
            }) if self.allows_agent(agent) => match self.greet(agent, secret, before) {
                true => Admitted::Request(Request::Hello { nonce }),
                false => Admitted::Garbage,
            },
            Ok(FromAgent::Hello { .. }) => Admitted::Stranger,
            Ok(FromAgent::Ask { nonce, resources }) if resources.len() <= ASK_RESOURCES_MAX => {
                // An agent gets no answer about resources outside its token: it is blind there, and lets calls
                // through.
                let (allowed, outside): (Vec<&str>, Vec<&str>) =
                    resources.into_iter().partition(|name| self.may_ask(name));
                let resources = allowed.into_iter().map(Into::into).collect();
                let request = Request::Ask { nonce, resources };
                match outside.first() {
                    None => Admitted::Request(request),
                    Some(name) => Admitted::InPart {
                        request,
                        fault: BatchFault::Namespace((*name).into()),
                    },
                }
            }
            Ok(FromAgent::Append {
                id,
                partition,
                record,
            }) => match self.check(partition, record, wall) {
                Ok(()) => Admitted::Request(Request::Append {
                    id,
                    partition,
                    record: record.to_vec(),
                }),
                Err(fault) => Admitted::Refused {
                    answer: FromAggregator::Refused {
                        id,
                        reason: fault.reason(),
                        text: fault.to_string().into(),
                    },
                    fault,
                },
            },
            Ok(FromAgent::Ask { .. }) | Err(_) => Admitted::Garbage,
        }
    }

    fn allows_agent(&self, agent: &str) -> bool {
        self.grant
            .as_ref()
            .is_none_or(|grant| grant.allows_agent(agent))
    }

    fn allows(&self, resource: &str) -> bool {
        let grant = self.grant.as_ref();
        grant.is_none_or(|grant| grant.allows_resource(resource))
    }

    /// Whether a connection may ask for a resource. Rules of descriptors count as of the namespace of their own domain.
    fn may_ask(&self, name: &str) -> bool {
        self.allows(rules_of_resource(name).unwrap_or(name))
    }

    fn check_resources(&self, resources: &[&str]) -> Result<(), BatchFault> {
        match resources.iter().find(|one| !self.allows(one)) {
            Some(one) => Err(BatchFault::Namespace((*one).into())),
            None => Ok(()),
        }
    }

    /// Handles a hello; returns false if the connection speaks for another agent or epoch already.
    fn greet(&mut self, agent: &str, secret: EpochSecret, before: Option<EpochSecret>) -> bool {
        let speaker = Speaker {
            agent: agent.into(),
            epoch: secret.epoch(),
            before: before.map(|before| before.epoch()),
        };
        *self.speaker.get_or_insert_with(|| speaker.clone()) == speaker
    }

    fn check(&self, partition: u32, record: &[u8], wall: Timestamp) -> Result<(), BatchFault> {
        if self.partitions <= partition {
            return Err(BatchFault::Partition {
                found: partition,
                partitions: self.partitions,
            });
        }
        // The kind follows the version byte; a record that is too short for it does not decode.
        if let Some(&found) = record.get(1)
            && !kind::is_of_agents(found)
        {
            return Err(BatchFault::Kind(found));
        }
        check_size(record)?;
        let (sender, replaces) = match Record::decode(record)? {
            Record::Hits(batch) => {
                self.check_resources(batch.resources())?;
                self.check_partition(partition, &batch)?;
                (batch.sender, None)
            }
            Record::Holds(batch) => {
                self.check_resources(batch.resources())?;
                (batch.sender, None)
            }
            Record::Heartbeat(heartbeat) => {
                self.check_resources(heartbeat.resources())?;
                (heartbeat.sender, heartbeat.head.replaces)
            }
            // Agents write only these three kinds.
            _ => return Err(BatchFault::Kind(record.get(1).copied().unwrap_or_default())),
        };
        self.check_speaker(&sender, replaces)?;
        check_stamp(sender.sent, wall)?;
        check_sequence(sender.sequence)
    }

    /// Checks that this partition rules the pair of each hit: in any other a hit would take room in the log and not
    /// be ruled. Refused calls are only counted, in any partition.
    fn check_partition(&self, found: u32, batch: &HitBatch<'_>) -> Result<(), BatchFault> {
        for hit in batch.hits() {
            let resource = batch.resource(hit.resource);
            let expected = partition_of_pair(resource, hit.domain, self.partitions);
            if expected != found {
                return Err(BatchFault::Misrouted {
                    resource: resource.into(),
                    domain: hit.domain.into(),
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }

    fn check_speaker(&self, sender: &Sender<'_>, replaces: Option<u128>) -> Result<(), BatchFault> {
        let speaker = self.speaker.as_ref().ok_or(BatchFault::NoHello)?;
        if (sender.agent, sender.epoch) != (&*speaker.agent, speaker.epoch) {
            return Err(BatchFault::NotItsOwn {
                agent: sender.agent.into(),
                epoch: sender.epoch,
                expected: format!("{:?}, epoch {:032x}", speaker.agent, speaker.epoch).into(),
            });
        }
        match replaces {
            Some(epoch) if speaker.before != Some(epoch) => Err(BatchFault::Replaces(epoch)),
            _ => Ok(()),
        }
    }
}

fn check_sequence(found: u64) -> Result<(), BatchFault> {
    match found {
        1..=SEQUENCE_MAX => Ok(()),
        _ => Err(BatchFault::Sequence(found)),
    }
}

/// Checks the size before decoding, which is the greatest cost of a refused record.
fn check_size(record: &[u8]) -> Result<(), BatchFault> {
    let is_heartbeat = record.get(1) == Some(&kind::HEARTBEAT);
    let found = record.len();
    match is_heartbeat || found <= BATCH_BYTES_MAX {
        true => Ok(()),
        false => Err(BatchFault::Size { found }),
    }
}

fn check_stamp(sent: Timestamp, wall: Timestamp) -> Result<(), BatchFault> {
    let ahead = wall < sent;
    let apart = match ahead {
        true => sent.since(wall),
        false => wall.since(sent),
    };
    match apart <= SENT_APART_MAX {
        true => Ok(()),
        false => Err(BatchFault::Sent { apart, ahead }),
    }
}

#[cfg(test)]
mod tests;
