//! One connection of an agent: for whom it speaks, and what it may have appended to the log.
//!
//! ```text
//! hello    name web-1, secret s          from now on the connection speaks for (web-1, BLAKE3(s)[..16])
//! append   of web-1 and that epoch       goes on, with sequence and stamp in bounds
//! append   of anybody else               refused, and counted: the log never sees it
//! append   outside of its namespaces     the same, where its token is not for all
//! ```
//!
//! A batch under another process's epoch could move that process's clock, outrun its sequences or end its
//! holds; so an epoch alone, which all can read in the feed, lets nobody speak for it. Whatever is checked
//! here is checked before the append, and nowhere else: the engine knows nothing of connections.
//!
//! Knows no socket. What stays true: a connection speaks for one epoch as long as it lasts; what is refused
//! has changed nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::link::{ASK_RESOURCES_MAX, FromAgent, FromAggregator};
use tollgate_shared::wire::record::{Record, kind};

use super::fault::BatchFault;
use crate::core::event::Request;
use crate::security::TokenGrant;

/// The greatest first sequence of a partition on a connection: an agent that sends a batch to a partition
/// each microsecond counts to it in nine years.
pub const SEQUENCE_MAX: u64 = 1 << 48;

/// How far a sequence may be above the highest that the connection carried to a partition. Agents number
/// their batches without gaps and have at most 127 under way; but they may send by another aggregator for
/// an hour, two hundred batches a second to each partition, before they come back to this one.
pub const SEQUENCE_JUMP_MAX: u64 = 1 << 20;

/// How far a batch's send stamp may be from this process's clock. Wide, because a clock that is wrong by
/// hours (a time zone) is no reason not to limit anybody: the engine moves the stamps of such an agent, and
/// counts it. A stamp that is further off is of a clock that was never set, the agent's or this machine's.
pub const SENT_APART_MAX: Span = Span::from_secs(24 * 3_600);

/// What becomes of a message of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It goes on to the core.
    Request(Request),
    /// It is answered at once: the log is not to have it.
    Refused {
        /// The answer.
        answer: FromAggregator,
        /// Why, for the operator.
        fault: BatchFault,
    },
    /// Its name is not one that the connection's token is for.
    Stranger,
    /// It cannot be read, or says two things of one connection, so nobody knows what to answer.
    Garbage,
}

/// For whom a connection speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Speaker {
    agent: Box<str>,
    epoch: u128,
    /// The epoch that came before, if its secret was shown.
    before: Option<u128>,
}

/// One connection of an agent.
#[derive(Clone, Debug)]
pub struct Session {
    partitions: u32,
    speaker: Option<Speaker>,
    /// What it was let in on; `None` where nobody is asked.
    grant: Option<Arc<TokenGrant>>,
    /// The highest sequence that went on, by partition.
    highest: BTreeMap<u32, u64>,
}

impl Session {
    /// A connection that was just made, to an aggregator of a log with so many partitions.
    pub const fn new(partitions: u32) -> Self {
        Self {
            partitions,
            speaker: None,
            grant: None,
            highest: BTreeMap::new(),
        }
    }

    /// From now on what is said is checked against this grant.
    pub fn set_grant(&mut self, grant: Option<Arc<TokenGrant>>) {
        self.grant = grant;
    }

    /// The name under which the connection speaks, once it has shown for whom it does.
    pub fn agent(&self) -> Option<&str> {
        self.speaker.as_ref().map(|speaker| &*speaker.agent)
    }

    /// The epoch for which the connection speaks, once it has shown it.
    pub fn epoch(&self) -> Option<u128> {
        self.speaker.as_ref().map(|speaker| speaker.epoch)
    }

    /// Decodes and checks a message that came at `wall` of this process's clock.
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
                // Of what its token is not for, an agent hears nothing: it is blind there, and lets calls through.
                let allowed = resources.into_iter().filter(|name| self.allows(name));
                let resources = allowed.map(Into::into).collect();
                Admitted::Request(Request::Ask { nonce, resources })
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

    fn check_resources(&self, resources: &[&str]) -> Result<(), BatchFault> {
        match resources.iter().find(|one| !self.allows(one)) {
            Some(one) => Err(BatchFault::Namespace((*one).into())),
            None => Ok(()),
        }
    }

    /// Takes note of a hello; false if the connection speaks for somebody else already.
    fn greet(&mut self, agent: &str, secret: EpochSecret, before: Option<EpochSecret>) -> bool {
        let speaker = Speaker {
            agent: agent.into(),
            epoch: secret.epoch(),
            before: before.map(|before| before.epoch()),
        };
        *self.speaker.get_or_insert_with(|| speaker.clone()) == speaker
    }

    fn check(&mut self, partition: u32, record: &[u8], wall: Timestamp) -> Result<(), BatchFault> {
        if self.partitions <= partition {
            return Err(BatchFault::Partition {
                found: partition,
                partitions: self.partitions,
            });
        }
        // The kind stands behind the version byte; a record too short for it does not decode.
        if let Some(&found) = record.get(1)
            && !kind::is_agents(found)
        {
            return Err(BatchFault::Kind(found));
        }
        let (sender, replaces) = match Record::decode(record)? {
            Record::Hits(batch) => {
                self.check_resources(batch.resources())?;
                (batch.sender, None)
            }
            Record::Holds(batch) => {
                self.check_resources(batch.resources())?;
                (batch.sender, None)
            }
            Record::Beat(beat) => {
                self.check_resources(beat.resources())?;
                (beat.sender, beat.head.replaces)
            }
            // Kinds of agents are these three.
            _ => return Err(BatchFault::Kind(record.get(1).copied().unwrap_or_default())),
        };
        self.check_speaker(&sender, replaces)?;
        check_stamp(sender.sent, wall)?;
        self.check_sequence(partition, sender.sequence)
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

    fn check_sequence(&mut self, partition: u32, sequence: u64) -> Result<(), BatchFault> {
        let highest = self.highest.get(&partition).copied();
        let expected = match highest {
            Some(highest) => highest.saturating_add(SEQUENCE_JUMP_MAX).min(SEQUENCE_MAX),
            None => SEQUENCE_MAX,
        };
        if sequence == 0 || expected < sequence {
            return Err(BatchFault::Sequence {
                found: sequence,
                expected,
            });
        }
        self.highest
            .insert(partition, highest.map_or(sequence, |one| one.max(sequence)));
        Ok(())
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
mod tests {
    use super::*;
    use tollgate_shared::mac::MacKey;
    use tollgate_shared::place::LogId;
    use tollgate_shared::wire::Writer;
    use tollgate_shared::wire::beat::{BeatHead, write_beat};
    use tollgate_shared::wire::hits::{Hit, write_hits};
    use tollgate_shared::wire::holds::write_holds;
    use tollgate_shared::wire::record::OwnersPen;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const SECRET: EpochSecret = EpochSecret::new([7; 32]);
    const BEFORE: EpochSecret = EpochSecret::new([6; 32]);

    fn own() -> Sender<'static> {
        Sender {
            agent: "web-1",
            epoch: SECRET.epoch(),
            sequence: 1,
            sent: NOW,
        }
    }

    fn hits(sender: &Sender<'_>) -> Vec<u8> {
        let hit = Hit::one(0, "acme", sender.sent, 1);
        let mut writer = Writer::new();
        write_hits(
            &mut writer,
            sender,
            &["r"],
            [hit].into_iter(),
            [].into_iter(),
        );
        writer.as_slice().to_vec()
    }

    fn beat(sender: &Sender<'_>, head: BeatHead) -> Vec<u8> {
        let mut writer = Writer::new();
        write_beat(&mut writer, sender, &[], head, &[]);
        writer.as_slice().to_vec()
    }

    /// Each kind of record that an agent may write.
    fn batches(sender: &Sender<'_>) -> [Vec<u8>; 4] {
        let mut holds = Writer::new();
        write_holds(&mut holds, sender, &["r"], [].into_iter());
        let last = BeatHead {
            last: true,
            ..BeatHead::default()
        };
        [
            hits(sender),
            holds.as_slice().to_vec(),
            beat(sender, BeatHead::default()),
            beat(sender, last),
        ]
    }

    fn say(session: &mut Session, message: &FromAgent<'_>) -> Admitted {
        let mut writer = Writer::new();
        message.encode(&mut writer);
        session.admit(writer.as_slice(), NOW)
    }

    fn hello(session: &mut Session, agent: &str, secret: EpochSecret) -> Admitted {
        let before = Some(BEFORE);
        let hello = FromAgent::Hello {
            nonce: 3,
            agent,
            secret,
            before,
        };
        say(session, &hello)
    }

    fn greeted() -> Session {
        let mut session = Session::new(4);
        let welcome = Admitted::Request(Request::Hello { nonce: 3 });
        assert_eq!(hello(&mut session, "web-1", SECRET), welcome);
        session
    }

    /// Appends a record; the fault, if it was refused.
    fn append(session: &mut Session, partition: u32, record: &[u8]) -> Option<BatchFault> {
        let id = 7;
        let append = FromAgent::Append {
            id,
            partition,
            record,
        };
        match say(session, &append) {
            Admitted::Request(Request::Append { id: 7, .. }) => None,
            Admitted::Refused { answer, fault } => {
                let text = fault.to_string().into();
                let reason = fault.reason();
                assert_eq!(answer, FromAggregator::Refused { id, reason, text });
                Some(fault)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_agent_may_write_batches_and_nothing_else() {
        let mut session = greeted();
        let kind = |found| Some(BatchFault::Kind(found));
        for batch in batches(&own()) {
            assert_eq!(append(&mut session, 3, &batch), None);
        }
        let partition = BatchFault::Partition {
            found: 4,
            partitions: 4,
        };
        assert_eq!(append(&mut session, 4, &hits(&own())), Some(partition));
        let genesis = OwnersPen::new(&MacKey::UNPROTECTED, 0).genesis(LogId::default());
        assert_eq!(append(&mut session, 0, &genesis), kind(1));
        // A skippable kind of a later build is still not an agent's.
        assert_eq!(append(&mut session, 0, &[1, 0x85]), kind(0x85));
        assert_eq!(append(&mut session, 0, &[1, 99]), kind(99));
    }

    #[test]
    fn garbage_is_refused_with_the_place_of_the_fault() {
        let mut session = greeted();
        let mut cut = hits(&own());
        cut.truncate(cut.len() - 1);
        for record in [&cut[..], &[]] {
            let fault = append(&mut session, 0, record).expect("refused");
            assert!(fault.to_string().starts_with("byte "), "{fault}");
        }
        for message in [&b"\x01\x63nothing"[..], &[]] {
            assert_eq!(session.admit(message, NOW), Admitted::Garbage);
        }
    }

    #[test]
    fn nothing_is_appended_before_a_hello() {
        let mut session = Session::new(4);
        for batch in batches(&own()) {
            assert_eq!(append(&mut session, 0, &batch), Some(BatchFault::NoHello));
        }
        assert_eq!((session.agent(), session.epoch()), (None, None));
    }

    #[test]
    fn whoever_knows_an_epoch_alone_does_not_speak_for_it() {
        let mut session = greeted();
        let others = [
            Sender {
                agent: "web-2",
                ..own()
            },
            Sender { epoch: 2, ..own() },
        ];
        for batch in others.iter().flat_map(batches) {
            let fault = append(&mut session, 0, &batch);
            assert!(
                matches!(fault, Some(BatchFault::NotItsOwn { .. })),
                "{fault:?}"
            );
        }
        assert_eq!(session.highest, BTreeMap::new(), "nothing was changed");
    }

    #[test]
    fn a_connection_speaks_for_one_epoch_as_long_as_it_lasts() {
        let mut session = greeted();
        assert_eq!(
            hello(&mut session, "web-1", SECRET),
            Admitted::Request(Request::Hello { nonce: 3 })
        );
        assert_eq!(hello(&mut session, "web-2", SECRET), Admitted::Garbage);
        assert_eq!(hello(&mut session, "web-1", BEFORE), Admitted::Garbage);
        assert_eq!(session.agent(), Some("web-1"));
        assert_eq!(append(&mut session, 0, &hits(&own())), None);
    }

    #[test]
    fn an_epoch_is_ended_by_a_successor_that_shows_its_secret() {
        let mut session = greeted();
        let replacing = |epoch| {
            let head = BeatHead {
                replaces: Some(epoch),
                ..BeatHead::default()
            };
            beat(&own(), head)
        };
        assert_eq!(append(&mut session, 0, &replacing(BEFORE.epoch())), None);
        let fault = Some(BatchFault::Replaces(1));
        assert_eq!(append(&mut session, 0, &replacing(1)), fault);
    }

    #[test]
    fn sequences_that_nobody_came_to_are_refused() {
        let mut session = greeted();
        let mut send = |partition, sequence| {
            let batch = hits(&Sender { sequence, ..own() });
            append(&mut session, partition, &batch)
        };
        for sequence in [0, SEQUENCE_MAX + 1, 1 << 62, u64::MAX] {
            let refused = send(0, sequence);
            assert!(
                matches!(refused, Some(BatchFault::Sequence { .. })),
                "{refused:?}"
            );
        }
        assert_eq!(send(0, 1_000), None);
        assert_eq!(send(0, 900), None, "sent again");
        assert_eq!(send(0, 1_000 + SEQUENCE_JUMP_MAX), None);
        let expected = 1_000 + 2 * SEQUENCE_JUMP_MAX;
        let found = expected + 1;
        let fault = BatchFault::Sequence { found, expected };
        assert_eq!(send(0, found), Some(fault));
        assert_eq!(send(1, SEQUENCE_MAX), None, "each partition has its own");
    }

    #[test]
    fn a_stamp_of_a_clock_that_was_never_set_is_refused() {
        let mut session = greeted();
        let mut send = |sent| append(&mut session, 0, &hits(&Sender { sent, ..own() }));
        let day = SENT_APART_MAX.as_micros() as i64;
        for within in [-day, -3_600_000_000, 0, 3_600_000_000, day] {
            assert_eq!(send(NOW.saturating_offset(within)), None);
        }
        let fault = send(NOW.saturating_offset(day + 1)).expect("refused");
        assert!(fault.to_string().contains("ahead of"), "{fault}");
        let fault = send(NOW.saturating_offset(-day - 1)).expect("refused");
        assert!(fault.to_string().contains("behind"), "{fault}");
        for sent in [Timestamp::ZERO, Timestamp::MAX] {
            assert!(matches!(send(sent), Some(BatchFault::Sent { .. })));
        }
    }
}
