//! Records of a partition: everything that its engine reads.
//!
//! ```text
//! genesis            1    [generation, random]                                     tag
//! hits               2    see `hits`
//! holds              3    see `holds`
//! heartbeat          4    see `heartbeat`
//! tick               5    [generation, random, owner, instance (16 bytes), number] tag
//! totals             6    [resource, source partition, source offset, nil, first millisecond,
//!                          [[milliseconds later, copies, unguarded], ...]]         tag
//! limits activation  7    [version, digest (32 bytes)]                             tag
//! state digest       136  see `state_digest`                                       tag
//! ```
//!
//! A kind with its top bit set may be skipped by a build that does not know it. Any other unknown kind stops
//! the partition if the record has the tag of an aggregator, and is a dead letter if it has not.

use super::heartbeat::Heartbeat;
use super::hits::{HitBatch, read_copies};
use super::holds::HoldBatch;
use super::reader::{DecodeError, FieldFault, Reader};
use super::state_digest::StateDigest;
use super::writer::Writer;
use crate::log_position::LogId;
use crate::mac::{MAC_BYTES, MacKey};
use crate::names::NAME_BYTES_MAX;
use crate::time::Timestamp;

/// The numbers of kinds, which follow the version byte.
pub mod kind {
    /// The log's identity.
    pub const GENESIS: u8 = 1;
    /// Hits of an agent.
    pub const HITS: u8 = 2;
    /// Hold operations of an agent.
    pub const HOLDS: u8 = 3;
    /// An agent's heartbeat: it lives, and lists its holds.
    pub const HEARTBEAT: u8 = 4;
    /// Time, brought in by an aggregator.
    pub const TICK: u8 = 5;
    /// What counts against the global limit of a resource.
    pub const TOTALS: u8 = 6;
    /// A limits activation: the limits version that rules from here on.
    pub const LIMITS_ACTIVATION: u8 = 7;
    /// A build may skip unknown kinds with this bit.
    pub const SKIPPABLE: u8 = 0x80;
    /// A state digest of an aggregator, for others to compare.
    pub const STATE_DIGEST: u8 = SKIPPABLE | 8;

    /// Whether agents may append this kind.
    pub const fn is_of_agents(kind: u8) -> bool {
        matches!(kind, HITS | HOLDS | HEARTBEAT)
    }

    /// Whether only aggregators may append this kind, under a tag.
    pub const fn is_of_aggregators(kind: u8) -> bool {
        matches!(
            kind,
            GENESIS | TICK | TOTALS | LIMITS_ACTIVATION | STATE_DIGEST
        )
    }

    /// Whether a record of this kind counts only under a tag.
    pub const fn needs_tag(kind: u8) -> bool {
        is_of_aggregators(kind) || !(is_of_agents(kind) || kind & SKIPPABLE != 0)
    }
}

/// One record of a partition.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// The log's identity; the first record of a partition.
    Genesis(LogId),
    /// Hits of an agent.
    Hits(HitBatch<'a>),
    /// Hold operations of an agent.
    Holds(HoldBatch<'a>),
    /// An agent's heartbeat: it lives, and lists its holds.
    Heartbeat(Heartbeat<'a>),
    /// Time, brought in by an aggregator.
    Tick(Tick<'a>),
    /// What counts against the global limit of a resource.
    Totals(Totals<'a>),
    /// The limits version that rules from here on.
    LimitsActivation(LimitsActivation),
    /// A state digest of an aggregator, which the rules ignore.
    StateDigest(StateDigest<'a>),
    /// A kind that this build does not know.
    Unknown {
        /// Its number.
        kind: u8,
        /// Whether it may be skipped.
        skippable: bool,
    },
}

/// An aggregator's record that carries time into a partition and repeats the log's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick<'a> {
    /// The log that it was written to.
    pub log: LogId,
    /// The aggregator's name.
    pub aggregator: &'a str,
    /// Drawn at random when the aggregator started, so that it recognises its own ticks.
    pub instance: u128,
    /// Counted by the aggregator from 1.
    pub number: u64,
}

/// What one hits record of one partition adds to the global limit of a resource: copies that were
/// granted in their domains, and excess that every constraint of its domain counted.
#[derive(Clone, Debug)]
pub struct Totals<'a> {
    /// The resource.
    pub resource: &'a str,
    /// The partition whose hits record is totalled.
    pub source_partition: u32,
    /// That record's offset.
    pub source_offset: u64,
    first_ms: u64,
    counted: (u32, Reader<'a>),
}

/// Copies of one millisecond that count against a global limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// Milliseconds since the Unix epoch. The copies count at the beginning of the millisecond, which is
    /// lenient.
    pub ms: u64,
    /// How many; at least 1.
    pub copies: u32,
    /// Whether they were let through unguarded: see [`super::hits::Hit::unguarded`].
    pub unguarded: bool,
}

impl Total {
    /// Copies that were let through guarded.
    pub const fn guarded(ms: u64, copies: u32) -> Self {
        Self {
            ms,
            copies,
            unguarded: false,
        }
    }

    /// The instant at which the copies count.
    pub const fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.ms)
    }
}

/// The limits version that rules from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsActivation {
    /// The version: the offset of its record in the limits stream.
    pub version: u64,
    /// The digest of that version's text, or of its amendment's record.
    pub digest: [u8; 32],
}

impl<'a> Record<'a> {
    /// Decodes a record. Tags are not checked here: see [`authentic`].
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one record.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_message(bytes)?;
        let kind = reader.byte("kind")?;
        if kind::is_of_aggregators(kind) {
            let end = bytes
                .len()
                .checked_sub(MAC_BYTES)
                .filter(|end| reader.position() <= *end)
                .ok_or(reader.error("tag", FieldFault::Truncated))?;
            reader = reader.up_to(end);
        }
        let record = match kind {
            kind::GENESIS => {
                reader.fixed_array("genesis", 2, "2")?;
                Self::Genesis(read_log_id(&mut reader)?)
            }
            kind::HITS => Self::Hits(HitBatch::read(&mut reader)?),
            kind::HOLDS => Self::Holds(HoldBatch::read(&mut reader)?),
            kind::HEARTBEAT => Self::Heartbeat(Heartbeat::read(&mut reader)?),
            kind::TICK => Self::Tick(Tick::read(&mut reader)?),
            kind::TOTALS => Self::Totals(Totals::read(&mut reader)?),
            kind::LIMITS_ACTIVATION => {
                reader.fixed_array("limits activation", 2, "2")?;
                Self::LimitsActivation(LimitsActivation {
                    version: reader.u64("version")?,
                    digest: reader.array_of_bytes("digest")?,
                })
            }
            kind::STATE_DIGEST => Self::StateDigest(StateDigest::read(&mut reader)?),
            kind => {
                return Ok(Self::Unknown {
                    kind,
                    skippable: kind & kind::SKIPPABLE != 0,
                });
            }
        };
        reader.end()?;
        Ok(record)
    }
}

/// Whether a record has the tag of aggregators, if it needs one. Batches of agents need none, nor do kinds
/// that may be skipped. A kind that this build does not know and must not skip needs one: otherwise anybody
/// who can write to the log without the key could stop the partition with it.
pub fn authentic(bytes: &[u8], partition: u32, key: &MacKey) -> bool {
    if !needs_tag(bytes) {
        return true;
    }
    let Some(end) = bytes.len().checked_sub(MAC_BYTES) else {
        return false;
    };
    // The comparison is not constant-time; that helps no attacker, since the log reveals no timing.
    key.tag(partition, &bytes[..end]) == bytes[end..]
}

/// Whether a record needs a tag, by its kind.
pub fn needs_tag(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|kind| kind::needs_tag(*kind))
}

pub(super) fn read_log_id(reader: &mut Reader<'_>) -> Result<LogId, DecodeError> {
    Ok(LogId {
        generation: reader.u32("generation")?,
        random: reader.u64("random")?,
    })
}

pub(super) fn write_log_id(writer: &mut Writer, log: LogId) {
    writer.u64(u64::from(log.generation));
    writer.u64(log.random);
}

impl<'a> Tick<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.fixed_array("tick", 5, "5")?;
        Ok(Self {
            log: read_log_id(reader)?,
            aggregator: reader.text("owner", 1, NAME_BYTES_MAX)?,
            instance: u128::from_be_bytes(reader.array_of_bytes("instance")?),
            number: reader.u64("number")?,
        })
    }
}

impl<'a> Totals<'a> {
    /// The copies, by millisecond and guard.
    pub fn counted(&self) -> impl Iterator<Item = Total> + use<'a> {
        let (len, mut reader) = self.counted;
        let first_ms = self.first_ms;
        (0..len).map_while(move |_| read_total(&mut reader, first_ms).ok())
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.fixed_array("totals", 6, "6")?;
        let resource = reader.text("resource", 1, NAME_BYTES_MAX)?;
        let source_partition = reader.u32("source partition")?;
        let source_offset = reader.u64("source offset")?;
        // Earlier builds wrote the offset of the record totalled before this one.
        if !reader.nil() {
            reader.u64("previous offset")?;
        }
        let first_ms = reader.u64("first millisecond")?;
        let counted = (reader.array("totals by millisecond")?, *reader);
        for _ in 0..counted.0 {
            read_total(reader, first_ms)?;
        }
        Ok(Self {
            resource,
            source_partition,
            source_offset,
            first_ms,
            counted,
        })
    }
}

fn read_total(reader: &mut Reader<'_>, first_ms: u64) -> Result<Total, DecodeError> {
    reader.fixed_array("total", 3, "3")?;
    let later = reader.u64("milliseconds later")?;
    Ok(Total {
        ms: first_ms.saturating_add(later),
        copies: read_copies(reader)?,
        unguarded: reader.bool("unguarded")?,
    })
}

/// Writes records that only aggregators may write, each with its tag.
#[derive(Debug)]
pub struct RecordPen<'k> {
    key: &'k MacKey,
    partition: u32,
    writer: Writer,
}

impl<'k> RecordPen<'k> {
    /// A writer for one partition.
    pub fn new(key: &'k MacKey, partition: u32) -> Self {
        Self {
            key,
            partition,
            writer: Writer::new(),
        }
    }

    /// The record that gives a log its identity.
    pub fn genesis(mut self, log: LogId) -> Vec<u8> {
        self.writer.begin(kind::GENESIS);
        self.writer.array(2);
        write_log_id(&mut self.writer, log);
        self.signed()
    }

    /// A tick.
    pub fn tick(mut self, tick: &Tick<'_>) -> Vec<u8> {
        self.writer.begin(kind::TICK);
        self.writer.array(5);
        write_log_id(&mut self.writer, tick.log);
        self.writer.text(tick.aggregator);
        self.writer.bytes(&tick.instance.to_be_bytes());
        self.writer.u64(tick.number);
        self.signed()
    }

    /// A limits activation.
    pub fn limits_activation(mut self, activation: &LimitsActivation) -> Vec<u8> {
        self.writer.begin(kind::LIMITS_ACTIVATION);
        self.writer.array(2);
        self.writer.u64(activation.version);
        self.writer.bytes(&activation.digest);
        self.signed()
    }

    /// A state digest.
    pub fn state_digest(mut self, state_digest: &StateDigest<'_>) -> Vec<u8> {
        self.writer.begin(kind::STATE_DIGEST);
        state_digest.write(&mut self.writer);
        self.signed()
    }

    /// Totals; `counted` must be ordered by millisecond.
    pub fn totals(mut self, resource: &str, source: (u32, u64), counted: &[Total]) -> Vec<u8> {
        let first_ms = counted.first().map_or(0, |total| total.ms);
        self.writer.begin(kind::TOTALS);
        self.writer.array(6);
        self.writer.text(resource);
        self.writer.u64(u64::from(source.0));
        self.writer.u64(source.1);
        self.writer.nil();
        self.writer.u64(first_ms);
        self.writer.array(counted.len());
        for total in counted {
            self.writer.array(3);
            self.writer.u64(total.ms.saturating_sub(first_ms));
            self.writer.u64(u64::from(total.copies));
            self.writer.bool(total.unguarded);
        }
        self.signed()
    }

    fn signed(self) -> Vec<u8> {
        let tag = self.key.tag(self.partition, self.writer.as_slice());
        let mut record = self.writer.as_slice().to_vec();
        record.extend_from_slice(&tag);
        record
    }
}
