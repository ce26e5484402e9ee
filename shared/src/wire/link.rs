//! The messages between an agent and an aggregator, whose address the agent knows.
//!
//! ```text
//! agent        hello 1    {nonce, agent, secret (32 bytes), before: secret before (32 bytes) or none}
//!              append 2   [id, partition, record]
//!              ask 3      [nonce, [resource, ...]]
//! aggregator   welcome 65 {nonce, instance (16 bytes), partitions, feeds: [feed address, ...], clock (us),
//!                          members: [{instance (16 bytes), address: for agents}, ...]}
//!              appended 66 [id, partition, offset]
//!              refused 67 [id, reason, text]
//!              snapshot 68 [nonce, part, more, instance, clock (us), [watermark, ...], control sequence, [topic, ...]]
//! topic        [resource, sequence, public limits, [[partition, remaining, statement], ...]]
//! ```
//!
//! Hello, welcome and public limits are maps of named fields, to which later releases may add ([`named`]).
//!
//! The hello shows the secret of the agent's epoch: records appended over the connection count only under that name
//! and epoch. `secret before` is the secret of the preceding process, which a heartbeat of this one may end.
//!
//! An append is answered once the log has the record as durably as the log is configured to. `clock` is the
//! aggregator's monotonic clock, that of the frames' `sent`. A snapshot is the state of the feed at the sequences
//! that it names: later frames continue it. A snapshot that is too large for a message comes in parts with the same
//! nonce, counted from 0, all but the last with `more` set; an agent that misses one asks again. A topic may extend
//! over several parts.
//!
//! Parts are made one after the other while the aggregator goes on. Watermarks and sequences in all
//! parts are those of the moment of the first part; `clock` and the remaining times of denials are the part's own. A
//! denial that was in force at the moment of the first part and is listed in no part has been lifted since; a
//! statement from after that moment has a log position above the watermark.

use super::MESSAGE_BYTES_MAX;
use super::frame::{StatementNotice, Watermark, read_list};
pub use super::greeting::MEMBERS_MAX;
use super::greeting::{Hello, Welcome, WelcomeMember};
use super::named::{self, Bytes, Id, Name};
use super::public::Public;
use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::epoch::EpochSecret;
use crate::names::NAME_BYTES_MAX;
use crate::time::Span;

/// The most bytes of a refusal's text.
const TEXT_BYTES_MAX: usize = 1024;

/// The most partitions of a log. An agent that reads a welcome keeps state for each.
pub const PARTITIONS_MAX: u32 = 1024;

/// The most resources of one ask: a quarter of a message if their names are long. An agent with more sends several
/// asks.
pub const ASK_RESOURCES_MAX: usize = 1_000;

/// A message of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAgent<'a> {
    /// Begins the connection, and asks for the feeds.
    Hello {
        /// Repeated in the answer.
        nonce: u64,
        /// The agent's name.
        agent: &'a str,
        /// Proves its epoch.
        secret: EpochSecret,
        /// Proves the epoch of the preceding process, if the agent knows one.
        before: Option<EpochSecret>,
    },
    /// Asks to append a record.
    Append {
        /// Repeated in the answer.
        id: u64,
        /// The partition to append to.
        partition: u32,
        /// The record.
        record: &'a [u8],
    },
    /// Asks for what is in force for some resources.
    Ask {
        /// Repeated in the answer.
        nonce: u64,
        /// The resources.
        resources: Vec<&'a str>,
    },
}

/// A message of an aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAggregator {
    /// Answer to a hello.
    Welcome {
        /// The nonce of the hello.
        nonce: u64,
        /// Drawn at random when the aggregator started; frames carry it.
        instance: u128,
        /// How many partitions the log has.
        partitions: u32,
        /// Addresses of its feeds, as `tcp://host:port`.
        feeds: Vec<Box<str>>,
        /// The aggregator's monotonic clock.
        clock: Span,
        /// The other aggregators of its fleet, which rule other partitions, or the same ones.
        members: Vec<Member>,
        /// The version of the limits by which agents last had something new to learn; 0: the aggregator has not read any
        /// version, or is of a release that does not state it.
        limits: u64,
    },
    /// The log has the record.
    Appended {
        /// The id of the append.
        id: u64,
        /// Its partition.
        partition: u32,
        /// Its offset.
        offset: u64,
    },
    /// The log does not have the record.
    Refused {
        /// The id of the append.
        id: u64,
        /// Why.
        reason: Refusal,
        /// A text for people.
        text: Box<str>,
    },
    /// Answer to an ask.
    Snapshot(Snapshot),
}

/// The message that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// A hello.
    Hello,
    /// The append with this id, whether or not the log has the record.
    Append(u64),
    /// An ask: the answer is one part of a snapshot.
    Ask,
}

impl Answered {
    /// Reads only as much of an aggregator's message as necessary; `None` if it is not an answer.
    pub fn of(answer: &[u8]) -> Option<Self> {
        let mut reader = Reader::of_message(answer).ok()?;
        match reader.byte("kind").ok()? {
            65 => Some(Self::Hello),
            66 | 67 => {
                reader.fixed_array("answer", 3, "3").ok()?;
                reader.u64("id").ok().map(Self::Append)
            }
            68 => Some(Self::Ask),
            _ => None,
        }
    }
}

/// Another aggregator of a fleet, and its address for agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Drawn at random when it started.
    pub instance: u128,
    /// Its address for agents, as `host:port`.
    pub address: Box<str>,
}

/// Why an append was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It can never be appended: malformed, of a kind that agents may not write, or to an unknown partition.
    Never,
    /// Not now: the log cannot be reached or has no room. The agent should try again later.
    NotNow,
}

/// What is in force for some resources at a point of the feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The nonce of the ask.
    pub nonce: u64,
    /// The number of this part, from 0.
    pub part: u32,
    /// Whether another part follows.
    pub more: bool,
    /// The publisher to which the sequences belong.
    pub instance: u128,
    /// Its monotonic clock when this part was made.
    pub clock: Span,
    /// Watermarks of its partitions when the first part was made.
    pub watermarks: Vec<Watermark>,
    /// The last sequence of the control topic at that moment.
    pub control_sequence: u64,
    /// The topics of the resources asked for.
    pub topics: Vec<TopicSnapshot>,
}

/// What is in force for one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicSnapshot {
    /// The resource.
    pub resource: Box<str>,
    /// The last sequence of its topic when the first part was made.
    pub sequence: u64,
    /// Its public limits.
    pub public: Public,
    /// Every denial in force.
    pub statements: Vec<StatementNotice>,
}

impl<'a> FromAgent<'a> {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_message(bytes)?;
        let before = reader;
        let message = match reader.byte("kind")? {
            1 => {
                let hello: Hello<'a> = named::read(&mut reader, "hello")?;
                Self::Hello {
                    nonce: hello.nonce,
                    agent: hello.agent.0,
                    secret: EpochSecret::new(hello.secret.0),
                    before: hello.before.map(|Bytes(before)| EpochSecret::new(before)),
                }
            }
            2 => {
                reader.fixed_array("append", 3, "3")?;
                Self::Append {
                    id: reader.u64("id")?,
                    partition: reader.u32("partition")?,
                    record: reader.bytes("record", MESSAGE_BYTES_MAX)?,
                }
            }
            3 => {
                reader.fixed_array("ask", 2, "2")?;
                let nonce = reader.u64("nonce")?;
                let resources = read_list(&mut reader, "resources", |r| {
                    r.text("resource", 1, NAME_BYTES_MAX)
                })?;
                Self::Ask { nonce, resources }
            }
            found => return Err(before.error("kind", FieldFault::Kind { found })),
        };
        reader.end()?;
        Ok(message)
    }

    /// Writes one.
    pub fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Hello {
                nonce,
                agent,
                secret,
                before,
            } => {
                writer.begin(1);
                let hello = Hello {
                    nonce: *nonce,
                    agent: Name(agent),
                    secret: Bytes(*secret.bytes()),
                    before: before.map(|before| Bytes(*before.bytes())),
                };
                named::write(writer, &hello);
            }
            Self::Append {
                id,
                partition,
                record,
            } => {
                writer.begin(2);
                writer.array(3);
                writer.u64(*id);
                writer.u64(u64::from(*partition));
                writer.bytes(record);
            }
            Self::Ask { nonce, resources } => {
                writer.begin(3);
                writer.array(2);
                writer.u64(*nonce);
                writer.array(resources.len());
                for resource in resources {
                    writer.text(resource);
                }
            }
        }
    }
}

impl FromAggregator {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one message.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_message(bytes)?;
        let before = reader;
        let message = match reader.byte("kind")? {
            65 => Self::read_welcome(&mut reader)?,
            66 => {
                reader.fixed_array("appended", 3, "3")?;
                Self::Appended {
                    id: reader.u64("id")?,
                    partition: reader.u32("partition")?,
                    offset: reader.u64("offset")?,
                }
            }
            67 => {
                reader.fixed_array("refused", 3, "3")?;
                let id = reader.u64("id")?;
                let before = reader;
                let reason = match reader.u8("reason")? {
                    0 => Refusal::Never,
                    1 => Refusal::NotNow,
                    found => return Err(before.error("reason", FieldFault::Kind { found })),
                };
                Self::Refused {
                    id,
                    reason,
                    text: reader.text("text", 0, TEXT_BYTES_MAX)?.into(),
                }
            }
            68 => Self::Snapshot(Snapshot::read(&mut reader)?),
            found => return Err(before.error("kind", FieldFault::Kind { found })),
        };
        reader.end()?;
        Ok(message)
    }

    fn read_welcome(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        let welcome: Welcome<'_> = named::read(reader, "welcome")?;
        if PARTITIONS_MAX < welcome.partitions {
            let expected = "0 to 1024";
            return Err(before.error("partitions", FieldFault::Range { expected }));
        }
        let members = welcome.members.iter().map(|member| Member {
            instance: member.instance.0,
            address: member.address.0.into(),
        });
        Ok(Self::Welcome {
            nonce: welcome.nonce,
            instance: welcome.instance.0,
            partitions: welcome.partitions,
            feeds: welcome
                .feeds
                .iter()
                .map(|Name(feed)| (*feed).into())
                .collect(),
            clock: welcome.clock,
            members: members.collect(),
            limits: welcome.limits,
        })
    }

    /// Writes one. A refusal's text is cut at its bound.
    pub fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Welcome {
                nonce,
                instance,
                partitions,
                feeds,
                clock,
                members,
                limits,
            } => {
                writer.begin(65);
                let members = members.iter().map(|member| WelcomeMember {
                    instance: Id(member.instance),
                    address: Name(&member.address),
                });
                let welcome = Welcome {
                    nonce: *nonce,
                    instance: Id(*instance),
                    partitions: *partitions,
                    feeds: feeds.iter().map(|feed| Name(feed)).collect(),
                    clock: *clock,
                    members: members.collect(),
                    limits: *limits,
                };
                named::write(writer, &welcome);
            }
            Self::Appended {
                id,
                partition,
                offset,
            } => {
                writer.begin(66);
                writer.array(3);
                writer.u64(*id);
                writer.u64(u64::from(*partition));
                writer.u64(*offset);
            }
            Self::Refused { id, reason, text } => {
                writer.begin(67);
                writer.array(3);
                writer.u64(*id);
                writer.u64(match reason {
                    Refusal::Never => 0,
                    Refusal::NotNow => 1,
                });
                writer.text(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
            }
            Self::Snapshot(snapshot) => snapshot.write(writer),
        }
    }
}

impl Snapshot {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("snapshot", 8, "8")?;
        Ok(Self {
            nonce: reader.u64("nonce")?,
            part: reader.u32("part")?,
            more: reader.bool("more")?,
            instance: u128::from_be_bytes(reader.array_of_bytes("instance")?),
            clock: Span::from_micros(reader.u64("clock")?),
            watermarks: read_list(reader, "watermarks", Watermark::read)?,
            control_sequence: reader.u64("control sequence")?,
            topics: read_list(reader, "topics", TopicSnapshot::read)?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.begin(68);
        writer.array(8);
        writer.u64(self.nonce);
        writer.u64(u64::from(self.part));
        writer.bool(self.more);
        writer.bytes(&self.instance.to_be_bytes());
        writer.u64(self.clock.as_micros());
        writer.array(self.watermarks.len());
        for watermark in &self.watermarks {
            watermark.write(writer);
        }
        writer.u64(self.control_sequence);
        writer.array(self.topics.len());
        for topic in &self.topics {
            topic.write(writer);
        }
    }
}

impl TopicSnapshot {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("topic", 4, "4")?;
        Ok(Self {
            resource: reader.text("resource", 1, NAME_BYTES_MAX)?.into(),
            sequence: reader.u64("sequence")?,
            public: Public::read(reader)?,
            statements: read_list(reader, "statements", StatementNotice::read)?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(4);
        writer.text(&self.resource);
        writer.u64(self.sequence);
        self.public.write(writer);
        writer.array(self.statements.len());
        for statement in &self.statements {
            statement.write(writer);
        }
    }
}
