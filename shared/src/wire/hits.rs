//! A batch of hits: the calls that an agent let through, and those that it refused, for one partition.
//!
//! ```text
//! [agent, epoch (16 bytes), sequence, sent (us), [resource, ...], [hit, ...], [refused, ...]]
//! hit      [resource index, domain, age (us before sent), copies]   one guarded call
//!          [.., min]                                                one guarded bulk call
//!          [.., calls, mark]                                        any other
//!          [.., calls, mark, min]                                   any other bulk calls
//!          [.., 1, mark, age of the estimate, estimated]            a refund
//! mark     1 if it is unguarded, plus 0 for a hit, 2 for a charge, 4 for a refund, 6 for an estimate
//! refused  [resource index, domain, calls, copies, first age, last age, cause, nil | [generation, offset, entry]]
//! ```
//!
//! Decoding reads every entry once and keeps it: decoding entries again on iteration costs more than the one
//! allocation that holds a batch's entries. Refused calls, of which there are few, are decoded again.

use super::log_position::{read_log_position, write_log_position};
use super::reader::{DecodeError, FieldFault, Reader};
use super::statement::Cause;
use super::writer::Writer;
use crate::log_position::LogPosition;
use crate::names::NAME_BYTES_MAX;
use crate::time::Timestamp;

/// The most resources one batch may name. It bounds what decoding allocates.
pub const RESOURCES_MAX: u32 = 4096;

/// The sender of a batch, and the number of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The hash of a secret that the agent drew at random when it started. Epochs have no order but that of their
    /// first appearance in the log.
    pub epoch: u128,
    /// The number of the batch among those of this epoch for this partition, counted from 1.
    pub sequence: u64,
    /// The agent's clock when it sent the batch for the first time.
    pub sent: Timestamp,
}

/// The fewest bytes of an entry: its head, an index, a domain of one byte with its length, an age, copies.
const HIT_BYTES_MIN: usize = 6;

/// Flag of an entry's mark: its calls were made while their agent had no current watermark of the partition.
const UNGUARDED: u8 = 1;

/// One entry: equal calls of one pair at one instant.
///
/// Calls are merged into one entry if pair, instant, copies, kind and guard are equal and none has a min; a refund
/// is never merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// Index into [`HitBatch::resource`].
    pub resource: u32,
    /// The domain.
    pub domain: &'a str,
    /// The agent's stamp, uncorrected.
    pub at: Timestamp,
    /// How many copies each of the calls took; at least 1.
    pub copies: u32,
    /// How many calls; at least 1, and 1 for a refund.
    pub calls: u32,
    /// The least number of copies that the caller would have accepted, if not all; at most `copies`. Copies that
    /// were let through count regardless of it: only backtests, which decide again, use it.
    pub min: Option<u32>,
    /// What the copies are.
    pub kind: HitKind,
    /// Whether, when the calls were made, their agent had for a second received no newer current watermark of the
    /// pair's partition, or had instructions to let everything through. Excess of such calls is no debt.
    pub unguarded: bool,
}

/// What the copies of an entry are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HitKind {
    /// Calls that were decided and let through.
    #[default]
    Hit,
    /// A cost that was known only afterwards, recorded without a decision.
    Charge,
    /// Calls whose cost was estimated. A settlement may follow, a charge or a refund, so quotas and buckets
    /// remember for ten minutes what they counted of it.
    Estimate,
    /// Copies refunded because a call cost less than estimated: `copies` of them, the estimate less the actual
    /// cost.
    Refund {
        /// The agent's stamp of the entry that charged the estimate, uncorrected.
        made: Timestamp,
        /// The estimate.
        estimated: u32,
        /// The actual cost.
        actual: u32,
    },
}

/// One entry of refused calls of one pair since the last flush. Counted, never ruled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Index into [`HitBatch::resource`].
    pub resource: u32,
    /// The domain.
    pub domain: &'a str,
    /// Calls refused.
    pub calls: u64,
    /// How many copies they asked for at most.
    pub copies: u64,
    /// The first call's instant.
    pub first: Timestamp,
    /// The last call's instant.
    pub last: Timestamp,
    /// Why.
    pub cause: Cause,
    /// The statement under which they were refused, if there was one.
    pub position: Option<LogPosition>,
}

/// A decoded batch, borrowing from its bytes.
#[derive(Clone, Debug)]
pub struct HitBatch<'a> {
    /// The sender.
    pub sender: Sender<'a>,
    resources: Box<[&'a str]>,
    hits: Box<[Hit<'a>]>,
    refused: (u32, Reader<'a>),
}

impl<'a> HitBatch<'a> {
    /// The names that entries refer to, by index.
    pub fn resources(&self) -> &[&'a str] {
        &self.resources
    }

    /// The name of the resource with this index. Entries only carry indices that exist.
    pub fn resource(&self, index: u32) -> &'a str {
        self.resources
            .get(index as usize)
            .copied()
            .unwrap_or_default()
    }

    /// The entries, in the order of the batch. An entry's number in it is the `entry` of a log position.
    pub fn hits(&self) -> &[Hit<'a>] {
        &self.hits
    }

    /// The entries of refused calls.
    pub fn refused(&self) -> impl Iterator<Item = Refused<'a>> + use<'a> {
        let (len, mut reader) = self.refused;
        let (count, sent) = (self.resources.len(), self.sender.sent);
        (0..len).map_while(move |_| read_refused(&mut reader, count, sent).ok())
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.fixed_array("hits batch", 7, "7")?;
        let sender = Sender::read(reader)?;
        let resources = read_resources(reader)?;
        let hits = read_hits(reader, resources.len(), sender.sent)?;
        let refused = (reader.array("refused")?, *reader);
        for _ in 0..refused.0 {
            read_refused(reader, resources.len(), sender.sent)?;
        }
        Ok(Self {
            sender,
            resources,
            hits,
            refused,
        })
    }
}

impl<'a> Sender<'a> {
    /// Reads the four fields at the beginning of every batch of an agent.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            agent: reader.text("agent", 1, NAME_BYTES_MAX)?,
            epoch: u128::from_be_bytes(reader.array_of_bytes("epoch")?),
            sequence: reader.u64("sequence")?,
            sent: Timestamp::from_micros(reader.u64("sent")?),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.text(self.agent);
        writer.bytes(&self.epoch.to_be_bytes());
        writer.u64(self.sequence);
        writer.u64(self.sent.as_micros());
    }
}

/// Reads the names to which a batch's entries refer by index.
pub(super) fn read_resources<'a>(reader: &mut Reader<'a>) -> Result<Box<[&'a str]>, DecodeError> {
    let before = *reader;
    let count = reader.array("resources")?;
    if RESOURCES_MAX < count {
        return Err(before.error(
            "resources",
            FieldFault::Length {
                found: u64::from(count),
                expected: "at most 4096",
            },
        ));
    }
    let mut resources = Vec::with_capacity(count as usize);
    for _ in 0..count {
        resources.push(reader.text("resource", 1, NAME_BYTES_MAX)?);
    }
    Ok(resources.into_boxed_slice())
}

pub(super) fn read_resource(reader: &mut Reader<'_>, count: usize) -> Result<u32, DecodeError> {
    let before = *reader;
    let index = reader.u32("resource index")?;
    if count <= index as usize {
        return Err(before.error(
            "resource index",
            FieldFault::Range {
                expected: "an index into the batch's resources",
            },
        ));
    }
    Ok(index)
}

impl<'a> Hit<'a> {
    /// One guarded call without a min.
    pub const fn one(resource: u32, domain: &'a str, at: Timestamp, copies: u32) -> Self {
        Self {
            resource,
            domain,
            at,
            copies,
            calls: 1,
            min: None,
            kind: HitKind::Hit,
            unguarded: false,
        }
    }

    /// Copies of all calls together.
    pub const fn total(&self) -> u64 {
        self.copies as u64 * self.calls as u64
    }

    /// Whether it refunds copies instead of using them.
    pub const fn is_refund(&self) -> bool {
        matches!(self.kind, HitKind::Refund { .. })
    }

    /// The entry's mark.
    fn mark(&self) -> u8 {
        let kind = match self.kind {
            HitKind::Hit => 0,
            HitKind::Charge => 2,
            HitKind::Estimate => 6,
            HitKind::Refund { .. } => 4,
        };
        kind | if self.unguarded { UNGUARDED } else { 0 }
    }

    /// Number of elements of the entry's array.
    fn fields(&self) -> usize {
        match (self.kind, self.min) {
            (HitKind::Refund { .. }, _) => 8,
            (_, min) if self.calls == 1 && self.mark() == 0 => 4 + usize::from(min.is_some()),
            (_, min) => 6 + usize::from(min.is_some()),
        }
    }
}

fn read_hits<'a>(
    reader: &mut Reader<'a>,
    resources: usize,
    sent: Timestamp,
) -> Result<Box<[Hit<'a>]>, DecodeError> {
    let len = reader.array("hits")? as usize;
    // Memory grows with the bytes present, not with the announced number.
    let room = len.min(reader.remaining() / HIT_BYTES_MIN);
    let mut hits = Vec::with_capacity(room);
    for _ in 0..len {
        hits.push(read_hit(reader, resources, sent)?);
    }
    Ok(hits.into_boxed_slice())
}

fn read_hit<'a>(
    reader: &mut Reader<'a>,
    resources: usize,
    sent: Timestamp,
) -> Result<Hit<'a>, DecodeError> {
    let before = *reader;
    let len = reader.array("hit")?;
    if !(4..=8).contains(&len) {
        return Err(before.error(
            "hit",
            FieldFault::Length {
                found: u64::from(len),
                expected: "4 to 8",
            },
        ));
    }
    let resource = read_resource(reader, resources)?;
    let domain = reader.domain()?;
    let at = read_age(reader, sent)?;
    let mut hit = Hit::one(resource, domain, at, read_copies(reader)?);
    if 6 <= len {
        hit.calls = read_calls(reader)?;
        let before = *reader;
        let mark = reader.u8("mark")?;
        hit.unguarded = mark & UNGUARDED != 0;
        hit.kind = match (mark & !UNGUARDED, len, hit.calls) {
            (0, 6 | 7, _) => HitKind::Hit,
            (2, 6, _) => HitKind::Charge,
            (6, 6, _) => HitKind::Estimate,
            (4, 8, 1) => read_refund(reader, sent, hit.copies)?,
            _ => return Err(before.error("mark", FieldFault::Kind { found: mark })),
        };
    }
    if len == 5 || len == 7 {
        hit.min = Some(read_min(reader, hit.copies)?);
    }
    Ok(hit)
}

fn read_calls(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let before = *reader;
    match reader.u32("calls")? {
        0 => Err(before.error(
            "calls",
            FieldFault::Range {
                expected: "at least 1",
            },
        )),
        calls => Ok(calls),
    }
}

/// Reads the estimate to which a refund belongs.
fn read_refund(
    reader: &mut Reader<'_>,
    sent: Timestamp,
    copies: u32,
) -> Result<HitKind, DecodeError> {
    let made = read_age(reader, sent)?;
    let before = *reader;
    let estimated = reader.u32("estimated")?;
    if estimated < copies {
        return Err(before.error(
            "estimated",
            FieldFault::Range {
                expected: "at least the copies that are taken back",
            },
        ));
    }
    Ok(HitKind::Refund {
        made,
        estimated,
        actual: estimated - copies,
    })
}

/// A number of copies, at least 1.
pub(super) fn read_copies(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let before = *reader;
    match reader.u32("copies")? {
        0 => Err(before.error(
            "copies",
            FieldFault::Range {
                expected: "at least 1",
            },
        )),
        copies => Ok(copies),
    }
}

/// The least number of copies wanted: 1 to `copies`.
pub(super) fn read_min(reader: &mut Reader<'_>, copies: u32) -> Result<u32, DecodeError> {
    let before = *reader;
    let min = reader.u32("min")?;
    if min == 0 || copies < min {
        return Err(before.error(
            "min",
            FieldFault::Range {
                expected: "1 to copies",
            },
        ));
    }
    Ok(min)
}

pub(super) fn read_age(reader: &mut Reader<'_>, sent: Timestamp) -> Result<Timestamp, DecodeError> {
    let age = reader.i64("age")?;
    Ok(sent.saturating_offset(age.saturating_neg()))
}

fn read_refused<'a>(
    reader: &mut Reader<'a>,
    resources: usize,
    sent: Timestamp,
) -> Result<Refused<'a>, DecodeError> {
    reader.fixed_array("refused", 8, "8")?;
    Ok(Refused {
        resource: read_resource(reader, resources)?,
        domain: reader.domain()?,
        calls: reader.u64("calls")?,
        copies: reader.u64("copies")?,
        first: read_age(reader, sent)?,
        last: read_age(reader, sent)?,
        cause: Cause::read(reader)?,
        position: if reader.nil() {
            None
        } else {
            Some(read_log_position(reader)?)
        },
    })
}

/// Writes a batch. Entries come from iterators of known length, so that a courier need not collect them; the
/// reader, not this function, would detect a wrong length.
pub fn write_hits<'a>(
    writer: &mut Writer,
    sender: &Sender<'_>,
    resources: &[&str],
    hits: impl ExactSizeIterator<Item = Hit<'a>>,
    refused: impl ExactSizeIterator<Item = Refused<'a>>,
) {
    writer.begin(super::record::kind::HITS);
    writer.array(7);
    sender.write(writer);
    write_resources(writer, resources);
    writer.array(hits.len());
    for hit in hits {
        write_hit(writer, &hit, sender.sent);
    }
    writer.array(refused.len());
    for entry in refused {
        write_refused(writer, &entry, sender.sent);
    }
}

pub(super) fn write_resources(writer: &mut Writer, resources: &[&str]) {
    writer.array(resources.len());
    for resource in resources {
        writer.text(resource);
    }
}

fn write_hit(writer: &mut Writer, hit: &Hit<'_>, sent: Timestamp) {
    let fields = hit.fields();
    writer.array(fields);
    writer.u64(u64::from(hit.resource));
    writer.text(hit.domain);
    writer.i64(sent.signed_micros_since(hit.at));
    writer.u64(u64::from(hit.copies));
    if 6 <= fields {
        writer.u64(u64::from(hit.calls));
        writer.u64(u64::from(hit.mark()));
    }
    match (hit.kind, hit.min) {
        (
            HitKind::Refund {
                made, estimated, ..
            },
            _,
        ) => {
            writer.i64(sent.signed_micros_since(made));
            writer.u64(u64::from(estimated));
        }
        (_, Some(min)) => writer.u64(u64::from(min)),
        (_, None) => {}
    }
}

fn write_refused(writer: &mut Writer, entry: &Refused<'_>, sent: Timestamp) {
    writer.array(8);
    writer.u64(u64::from(entry.resource));
    writer.text(entry.domain);
    writer.u64(entry.calls);
    writer.u64(entry.copies);
    writer.i64(sent.signed_micros_since(entry.first));
    writer.i64(sent.signed_micros_since(entry.last));
    entry.cause.write(writer);
    match entry.position {
        Some(position) => write_log_position(writer, position),
        None => writer.nil(),
    }
}
