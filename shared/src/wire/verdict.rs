//! Verdicts: what an aggregator announces to one agent about its holds, on the agent's own topic.
//!
//! ```text
//! message  topic of the agent (33 bytes), frame
//! frame    [version][seal 0][ [instance (16 bytes), sequence, sent (us), agent, [verdict, ...]] ]
//! verdict  [partition, position, epoch (16 bytes), resource, nil | status]
//! status   [number, copies, excess, nil | scope, nil | reason, nil | seized]
//! scope    [kind, name], as in statements
//! reason   ended 0    [by]
//!          refused 1  [nil | operation, why]
//! seized   [domain, start (us)]
//! ```
//!
//! A status is a register for each hold: the one with the greatest log position wins. `nil` instead of a status asks
//! the agent for a list. `sent` is as in the frames of resources. A frame is sent only if there is a verdict, and
//! sequences rise with gaps, so an agent detects a lost verdict by an operation that stays unanswered. Every verdict
//! has a log position of its own: it may arrive twice, or from two aggregators, and is then the same.

use std::fmt;

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
    pub position: LogPosition,
    /// The epoch that it is for; other epochs of the same name ignore it.
    pub epoch: u128,
    /// The resource.
    pub resource: Box<str>,
    /// How the hold stands. `None`: the agent has to send a list, because its digest differs from what is counted.
    pub status: Option<HoldStatus>,
}

/// How a hold stands after the record at a log position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldStatus {
    /// The hold.
    pub number: u64,
    /// Its copies that count; 0: nothing is held. [`u32::MAX`] if the resource is not limited by copies, and the
    /// agent asks: as many as it has.
    pub copies: u32,
    /// How many of them were too many when they began to count, and have not been released.
    pub excess: u32,
    /// The scope that was full: for the excess, or for copies that a reserve did not get.
    pub scope: Option<Scope>,
    /// Why an operation or a list did not change that, or why nothing is held. Without a reason and a scope, a hold of
    /// 0 copies is not known.
    pub reason: Option<HoldReason>,
    /// What a seize does not know, if the copies were seized.
    pub seized: Option<SeizedCopies>,
}

/// Why a hold stands as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// It ended without an operation of its holder, and stays ended.
    Ended(EndedBy),
    /// This operation was refused, and has changed nothing; `None`: a heartbeat listed the hold, or asked for it.
    Refused(Option<Op>, Why),
}

/// Domain and age of seized copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeizedCopies {
    /// On whose behalf they are held.
    pub domain: Box<str>,
    /// When they were first taken, in engine time; heartbeats list this.
    pub start: Timestamp,
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
            position: read_log_position(reader)?,
            epoch: u128::from_be_bytes(reader.array_of_bytes("epoch")?),
            resource: reader.text("resource", 1, NAME_BYTES_MAX)?.into(),
            status: unless_nil(reader, HoldStatus::read)?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(5);
        writer.u64(u64::from(self.partition));
        write_log_position(writer, self.position);
        writer.bytes(&self.epoch.to_be_bytes());
        writer.text(&self.resource);
        or_nil(writer, self.status.as_ref(), HoldStatus::write);
    }
}

impl HoldStatus {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("hold status", 6, "6")?;
        Ok(Self {
            number: reader.u64("hold number")?,
            copies: reader.u32("copies")?,
            excess: reader.u32("excess")?,
            scope: unless_nil(reader, |reader| {
                reader.fixed_array("full scope", 2, "2")?;
                Scope::read(reader)
            })?,
            reason: unless_nil(reader, HoldReason::read)?,
            seized: unless_nil(reader, |reader| {
                reader.fixed_array("seized", 2, "2")?;
                Ok(SeizedCopies {
                    domain: reader.text("domain", 1, NAME_BYTES_MAX)?.into(),
                    start: Timestamp::from_micros(reader.u64("start")?),
                })
            })?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(6);
        writer.u64(self.number);
        writer.u64(u64::from(self.copies));
        writer.u64(u64::from(self.excess));
        or_nil(writer, self.scope.as_ref(), |scope, writer| {
            writer.array(2);
            scope.write(writer);
        });
        or_nil(writer, self.reason.as_ref(), HoldReason::write);
        or_nil(writer, self.seized.as_ref(), |seized, writer| {
            writer.array(2);
            writer.text(&seized.domain);
            writer.u64(seized.start.as_micros());
        });
    }
}

impl HoldReason {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        let len = reader.array("reason")?;
        match (reader.u8("reason kind")?, len) {
            (0, 2) => EndedBy::read(reader).map(Self::Ended),
            (1, 3) => Ok(Self::Refused(
                unless_nil(reader, Op::read)?,
                Why::read(reader)?,
            )),
            (0 | 1, found) => Err(before.error(
                "reason",
                FieldFault::Length {
                    found: u64::from(found),
                    expected: "what its kind has",
                },
            )),
            (found, _) => Err(before.error("reason kind", FieldFault::Kind { found })),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Ended(by) => {
                writer.array(2);
                writer.u64(0);
                by.write(writer);
            }
            Self::Refused(op, why) => {
                writer.array(3);
                writer.u64(1);
                or_nil(writer, op.as_ref(), |op, writer| op.write(writer));
                why.write(writer);
            }
        }
    }
}

/// Reads what may be absent, and is then `nil`.
fn unless_nil<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    match reader.nil() {
        true => Ok(None),
        false => read(reader).map(Some),
    }
}

fn or_nil<T>(writer: &mut Writer, of: Option<&T>, write: impl FnOnce(&T, &mut Writer)) {
    match of {
        Some(of) => write(of, writer),
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

/// As in `hold 7 has 5, 2 too many by group probation`.
impl fmt::Display for HoldStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hold {} has {}", self.number, self.copies)?;
        if let Some(seized) = &self.seized {
            write!(f, " of {}", seized.domain)?;
        }
        if 0 < self.excess {
            write!(f, ", {} too many", self.excess)?;
        }
        match &self.scope {
            Some(Scope::Pair(domain)) => write!(f, " by {domain}")?,
            Some(Scope::Group(group)) => write!(f, " by group {group}")?,
            Some(Scope::Resource) => f.write_str(" by all")?,
            None => {}
        }
        match self.reason {
            Some(HoldReason::Ended(by)) => write!(f, ", ended {by}"),
            Some(HoldReason::Refused(_, why)) => write!(f, ", refused: {why}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Age => "at its greatest age",
            Self::Operator => "by an operator",
            Self::Earlier => "earlier",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
