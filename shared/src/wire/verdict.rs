//! Verdicts: what an aggregator announces to one agent about its holds, on the agent's own topic.
//!
//! ```text
//! message  topic of the agent (33 bytes), frame
//! frame    [version][seal 0][ [instance (16 bytes), sequence, sent (us), agent, [verdict, ...]] ]
//! verdict  [partition, place, epoch (16 bytes), resource, says]
//! says     counted 0   [number, excess, nil | full scope]
//!          granted 1   [number, copies, nil | full scope]
//!          seized 2    [number, domain, copies, start (us)]
//!          held 3      [number, copies], or with excess [number, copies, excess, nil | full scope]
//!          not held 4  [number]
//!          ended 5     [number, by]
//!          refused 6   [number, operation, why]
//!          beat 7      []
//! scope    [kind, name], as in statements
//! ```
//!
//! `sent` is as in the frames of resources. A frame is sent only if there is a verdict, and sequences rise
//! with gaps, so an agent detects a lost verdict by an operation that stays unanswered. Every verdict has a
//! log position of its own: it may arrive twice, or from two aggregators, and is then the same.

use super::frame::{PLAIN, begin_frame, read_list};
use super::holds::Op;
use super::log_position::{read_log_position, write_log_position};
use super::reader::{DecodeError, FieldFault, Reader};
use super::statement::Scope;
use super::writer::Writer;
use crate::log_position::LogPosition;
use crate::names::NAME_BYTES_MAX;
use crate::time::{Span, Timestamp};

/// A verdict of an aggregator on one hold of an agent's epoch, or for the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The partition that ruled.
    pub partition: u32,
    /// The log position of its cause.
    pub place: LogPosition,
    /// The epoch that it is for; other epochs of the same name ignore it.
    pub epoch: u128,
    /// The resource.
    pub resource: Box<str>,
    /// Its content.
    pub says: VerdictSays,
}

/// The content of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictSays {
    /// An optimistic hold counts; an excess of 0 means confirmed.
    Counted {
        /// The hold.
        number: u64,
        /// Copies that a reserve would not have granted. They are counted all the same.
        excess: u32,
        /// The scope that was full, if there is excess.
        by: Option<Scope>,
    },
    /// A strict reserve was ruled.
    Granted {
        /// The hold.
        number: u64,
        /// Copies that may be used from now on; 0: refused, nothing is held.
        copies: u32,
        /// The scope that kept them below the copies asked for.
        by: Option<Scope>,
    },
    /// A seize found copies: the hold has them now.
    Seized {
        /// The hold.
        number: u64,
        /// Their domain.
        domain: Box<str>,
        /// How many.
        copies: u32,
        /// When they were first taken, in engine time; heartbeats list this.
        start: Timestamp,
    },
    /// Repeated because a heartbeat asked: the hold counts, with so many copies.
    Held {
        /// The hold.
        number: u64,
        /// Its copies.
        copies: u32,
        /// How many of them were too many when they began to count, and have not been released.
        excess: u32,
        /// The scope that was full, if there is excess.
        by: Option<Scope>,
    },
    /// Because a heartbeat asked: nothing is counted under this number, and nothing that was sent before that
    /// heartbeat will be.
    NotHeld {
        /// The number.
        number: u64,
    },
    /// The hold ended without an operation of its holder, and stays ended.
    Ended {
        /// The hold.
        number: u64,
        /// What ended it.
        by: EndedBy,
    },
    /// An operation was refused; it has changed nothing.
    Refused {
        /// The hold.
        number: u64,
        /// The operation; `None`: a heartbeat listed the hold.
        op: Option<Op>,
        /// Why.
        why: Why,
    },
    /// The agent has to send a full list: its digest differs from what is counted.
    BeatWanted,
}

/// What ended a hold.
///
/// It stays ended while its agent lists it: aggregators remember the ids that were ended, the last 4,096 of
/// each epoch and resource, for as long as the epoch is known, which is until ten minutes of log time after
/// it counted as gone. A hold that is listed beyond either bound is counted again; one that had grown too old
/// ends again at the next tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndedBy {
    /// Its greatest age.
    Age,
    /// An operator.
    Operator,
    /// It was ended earlier, and a heartbeat or an operation named it again.
    Earlier,
}

/// Why an operation on a hold was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Why {
    /// The hold is not counted: it was never taken, was released, is lost, or belongs to another agent.
    UnknownHold,
    /// The hold has fewer copies.
    TooManyCopies,
    /// Nothing is staged under the id: nothing ever was, or the copies were seized already, or let go at
    /// their end, at the greatest age, or by an operator.
    UnknownTransfer,
    /// Something is staged under the id already.
    TransferExists,
    /// The number is in use.
    HoldExists,
    /// The epoch is over.
    EpochOver,
    /// As many holds are kept as allowed; this one is not counted.
    AtCapacity,
    /// The resource is not limited by copies, and its namespace does not allow that.
    Unconfigured,
    /// The resource belongs to another partition.
    Misrouted,
}

/// One frame of an agent's topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictFrame {
    /// Drawn at random when the publisher started.
    pub instance: u128,
    /// Rising within the topic, with gaps: one count serves all agents of a publisher.
    pub sequence: u64,
    /// The publisher's monotonic clock when the frame was sent.
    pub sent: Span,
    /// The agent's name.
    pub agent: Box<str>,
    /// The verdicts.
    pub verdicts: Vec<Verdict>,
}

impl VerdictFrame {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one frame.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = begin_frame(bytes, "verdicts frame", (5, "5"))?;
        let frame = Self {
            instance: u128::from_be_bytes(reader.array_of_bytes("instance")?),
            sequence: reader.u64("sequence")?,
            sent: Span::from_micros(reader.u64("sent")?),
            agent: reader.text("agent", 1, NAME_BYTES_MAX)?.into(),
            verdicts: read_list(&mut reader, "verdicts", Verdict::read)?,
        };
        reader.end()?;
        Ok(frame)
    }

    /// Writes one.
    pub fn encode(&self, writer: &mut Writer) {
        writer.begin(PLAIN);
        writer.array(5);
        writer.bytes(&self.instance.to_be_bytes());
        writer.u64(self.sequence);
        writer.u64(self.sent.as_micros());
        writer.text(&self.agent);
        writer.array(self.verdicts.len());
        for verdict in &self.verdicts {
            verdict.write(writer);
        }
    }
}

impl Verdict {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("verdict", 5, "5")?;
        Ok(Self {
            partition: reader.u32("partition")?,
            place: read_log_position(reader)?,
            epoch: u128::from_be_bytes(reader.array_of_bytes("epoch")?),
            resource: reader.text("resource", 1, NAME_BYTES_MAX)?.into(),
            says: VerdictSays::read(reader)?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(5);
        writer.u64(u64::from(self.partition));
        write_log_position(writer, self.place);
        writer.bytes(&self.epoch.to_be_bytes());
        writer.text(&self.resource);
        self.says.write(writer);
    }
}

impl VerdictSays {
    /// The hold that it is about, if there is one.
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::Counted { number, .. }
            | Self::Granted { number, .. }
            | Self::Seized { number, .. }
            | Self::Held { number, .. }
            | Self::NotHeld { number }
            | Self::Ended { number, .. }
            | Self::Refused { number, .. } => Some(*number),
            Self::BeatWanted => None,
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        let len = reader.array("says")?;
        let kind = reader.u8("says kind")?;
        let mut number = || reader.u64("hold number");
        match (kind, len) {
            (0, 4) => Ok(Self::Counted {
                number: number()?,
                excess: reader.u32("excess")?,
                by: read_scope(reader)?,
            }),
            (1, 4) => Ok(Self::Granted {
                number: number()?,
                copies: reader.u32("copies")?,
                by: read_scope(reader)?,
            }),
            (2, 5) => Ok(Self::Seized {
                number: number()?,
                domain: reader.text("domain", 1, NAME_BYTES_MAX)?.into(),
                copies: reader.u32("copies")?,
                start: Timestamp::from_micros(reader.u64("start")?),
            }),
            (3, 3) => Ok(Self::Held {
                number: number()?,
                copies: reader.u32("copies")?,
                excess: 0,
                by: None,
            }),
            (3, 5) => {
                let (number, copies) = (number()?, reader.u32("copies")?);
                let excess = reader.u32("excess")?;
                // Without excess no scope was full, whatever the bytes state.
                let by = read_scope(reader)?.filter(|_| 0 < excess);
                Ok(Self::Held {
                    number,
                    copies,
                    excess,
                    by,
                })
            }
            (4, 2) => Ok(Self::NotHeld { number: number()? }),
            (5, 3) => Ok(Self::Ended {
                number: number()?,
                by: EndedBy::read(reader)?,
            }),
            (6, 4) => Ok(Self::Refused {
                number: number()?,
                op: if reader.nil() {
                    None
                } else {
                    Some(Op::read(reader)?)
                },
                why: Why::read(reader)?,
            }),
            (7, 1) => Ok(Self::BeatWanted),
            (0..=7, found) => Err(before.error(
                "says",
                FieldFault::Length {
                    found: u64::from(found),
                    expected: "what its kind has",
                },
            )),
            (found, _) => Err(before.error("says kind", FieldFault::Kind { found })),
        }
    }

    fn write(&self, writer: &mut Writer) {
        let mut begin = |fields: usize, kind: u64, number: Option<u64>| {
            writer.array(fields);
            writer.u64(kind);
            if let Some(number) = number {
                writer.u64(number);
            }
        };
        match self {
            Self::Counted { number, excess, by } => {
                begin(4, 0, Some(*number));
                writer.u64(u64::from(*excess));
                write_scope(writer, by.as_ref());
            }
            Self::Granted { number, copies, by } => {
                begin(4, 1, Some(*number));
                writer.u64(u64::from(*copies));
                write_scope(writer, by.as_ref());
            }
            Self::Seized {
                number,
                domain,
                copies,
                start,
            } => {
                begin(5, 2, Some(*number));
                writer.text(domain);
                writer.u64(u64::from(*copies));
                writer.u64(start.as_micros());
            }
            Self::Held {
                number,
                copies,
                excess: 0,
                ..
            } => {
                begin(3, 3, Some(*number));
                writer.u64(u64::from(*copies));
            }
            Self::Held {
                number,
                copies,
                excess,
                by,
            } => {
                begin(5, 3, Some(*number));
                writer.u64(u64::from(*copies));
                writer.u64(u64::from(*excess));
                write_scope(writer, by.as_ref());
            }
            Self::NotHeld { number } => begin(2, 4, Some(*number)),
            Self::Ended { number, by } => {
                begin(3, 5, Some(*number));
                by.write(writer);
            }
            Self::Refused { number, op, why } => {
                begin(4, 6, Some(*number));
                match op {
                    Some(op) => op.write(writer),
                    None => writer.nil(),
                }
                why.write(writer);
            }
            Self::BeatWanted => begin(1, 7, None),
        }
    }
}

fn read_scope(reader: &mut Reader<'_>) -> Result<Option<Scope>, DecodeError> {
    if reader.nil() {
        return Ok(None);
    }
    reader.fixed_array("full scope", 2, "2")?;
    Scope::read(reader).map(Some)
}

fn write_scope(writer: &mut Writer, scope: Option<&Scope>) {
    match scope {
        Some(scope) => {
            writer.array(2);
            scope.write(writer);
        }
        None => writer.nil(),
    }
}

impl EndedBy {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        Ok(match reader.u8("ended by")? {
            0 => Self::Age,
            1 => Self::Operator,
            2 => Self::Earlier,
            found => return Err(before.error("ended by", FieldFault::Kind { found })),
        })
    }

    fn write(self, writer: &mut Writer) {
        writer.u64(match self {
            Self::Age => 0,
            Self::Operator => 1,
            Self::Earlier => 2,
        });
    }
}

/// Every reason with its number in messages.
const WHYS: [(Why, u8); 9] = [
    (Why::UnknownHold, 0),
    (Why::TooManyCopies, 1),
    (Why::UnknownTransfer, 2),
    (Why::TransferExists, 3),
    (Why::HoldExists, 4),
    (Why::EpochOver, 5),
    (Why::AtCapacity, 6),
    (Why::Unconfigured, 7),
    (Why::Misrouted, 8),
];

impl Why {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        let found = reader.u8("why")?;
        let known = WHYS.iter().find(|(_, number)| *number == found);
        known
            .map(|(why, _)| *why)
            .ok_or(before.error("why", FieldFault::Kind { found }))
    }

    fn write(self, writer: &mut Writer) {
        let known = WHYS.iter().find(|(why, _)| *why == self);
        writer.u64(known.map_or(0, |(_, number)| u64::from(*number)));
    }
}

impl std::fmt::Display for EndedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Age => "at its greatest age",
            Self::Operator => "by an operator",
            Self::Earlier => "earlier",
        })
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnknownHold => "unknown hold",
            Self::TooManyCopies => "more copies than it has",
            Self::UnknownTransfer => "unknown transfer",
            Self::TransferExists => "a transfer of this id is staged already",
            Self::HoldExists => "a hold of this number exists already",
            Self::EpochOver => "the agent's epoch is over",
            Self::AtCapacity => "the maximum number of holds is reached",
            Self::Unconfigured => "the resource is not configured",
            Self::Misrouted => "the resource belongs to another partition",
        })
    }
}
