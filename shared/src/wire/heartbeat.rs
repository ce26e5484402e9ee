//! A heartbeat of an agent: the agent lives, and lists its holds of the resources of one partition.
//!
//! ```text
//! [agent, epoch (16 bytes), sequence, sent (us), [resource, ...],
//!  nil | replaced epoch (16 bytes), more, last, [part, ...]]
//! part    [resource index, 0, [awaiting, ...], [asked, ...], digest]              all of it, as a digest
//!         [resource index, 1, [awaiting, ...], [asked, ...], from, upto, [listed, ...]]
//! listed  [number, domain, copies, age (us before sent), strict, nil | transfer (16 bytes)]
//! ```
//!
//! A list states, for the numbers `from` to `upto`, that the epoch holds exactly these. So a list that is
//! too long for one record can be cut anywhere, and each record is complete by itself. A resource that a
//! heartbeat does not name is not held, unless `more` is set. Knows no rules.

use super::hits::{Sender, read_age, read_resource, read_resources, write_resources};
use super::holds::{read_transfer, write_transfer};
use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::holdings::{Holdings, TransferId};
use crate::time::{Span, Timestamp};

/// The longest pause that an agent makes between two attempts to connect.
///
/// Agents and engine share it: after an outage the engine waits longer than this, before it counts an agent that does
/// not return as gone (`aggregator/engine/src/copies/silence.rs`).
pub const RECONNECT_PAUSE_MAX: Span = Span::from_secs(15);

/// A hold as a heartbeat lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The number that the epoch gave to it.
    pub number: u64,
    /// Its domain.
    pub domain: &'a str,
    /// The copies that it still has; 0 only if it was seized and the agent has not received their number
    /// yet.
    pub copies: u32,
    /// When it was taken, by the agent's stamp, uncorrected.
    pub start: Timestamp,
    /// Whether it was granted before use.
    pub strict: bool,
    /// The transfer from which it was seized.
    pub seized: Option<TransferId>,
}

/// A part to write: the sender's holds of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Index into the heartbeat's resources.
    pub resource: u32,
    /// Numbers of reserves and seizes that were sent before this heartbeat and whose verdicts the agent
    /// has not received: it does not count them as held yet. Ascending.
    pub awaiting: &'a [u64],
    /// Numbers of holds in use whose verdicts the agent wants again. Ascending.
    pub asked: &'a [u64],
    /// The holds.
    pub holds: Holds<'a>,
}

/// The holds of one resource, without those in `awaiting`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds<'a> {
    /// All of them, as a digest of eight bytes.
    Digest(Holdings),
    /// Exactly these of the numbers `from` to `upto`, ascending.
    List {
        /// The first number that the list covers.
        from: u64,
        /// The last number that it covers.
        upto: u64,
        /// The holds.
        listed: &'a [Listed<'a>],
    },
}

/// The fields of a heartbeat beside its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatHead {
    /// An earlier epoch of the same agent, which this one replaces: it is over.
    pub replaces: Option<u128>,
    /// Whether other records cover the resources that are not named. If false, those are not held.
    pub more: bool,
    /// Whether the epoch is over with this heartbeat; its copies come back.
    pub last: bool,
}

/// A decoded heartbeat, borrowing from its bytes.
#[derive(Clone, Debug)]
pub struct Heartbeat<'a> {
    /// The sender. Its sequences are counted together with those of hits and hold operations.
    pub sender: Sender<'a>,
    /// The fields beside its parts.
    pub head: HeartbeatHead,
    resources: Box<[&'a str]>,
    parts: (u32, Reader<'a>),
}

/// One part of a decoded heartbeat.
#[derive(Clone, Debug)]
pub struct PartRead<'a> {
    /// Index into [`Heartbeat::resource`].
    pub resource: u32,
    /// The holds.
    pub holds: HoldsRead<'a>,
    awaiting: (u32, Reader<'a>),
    asked: (u32, Reader<'a>),
    sent: Timestamp,
}

/// The holds of one resource, as decoded.
#[derive(Clone, Debug)]
pub enum HoldsRead<'a> {
    /// All of them, as a digest of eight bytes.
    Digest(Holdings),
    /// Exactly those of [`PartRead::listed`], of the numbers `from` to `upto`.
    List {
        /// The first number that the list covers.
        from: u64,
        /// The last number that it covers.
        upto: u64,
        /// How many there are.
        len: u32,
        /// Where they begin.
        at: Reader<'a>,
    },
}

impl<'a> Heartbeat<'a> {
    /// The names that parts refer to, by index.
    pub fn resources(&self) -> &[&'a str] {
        &self.resources
    }

    /// The name of the resource with this index. Parts only carry indices that exist.
    pub fn resource(&self, index: u32) -> &'a str {
        let name = self.resources.get(index as usize);
        name.copied().unwrap_or_default()
    }

    /// Number of parts.
    pub fn parts_len(&self) -> u32 {
        self.parts.0
    }

    /// The parts, in the order of the heartbeat.
    pub fn parts(&self) -> impl Iterator<Item = PartRead<'a>> + use<'a> {
        let (len, mut reader) = self.parts;
        let (count, sent) = (self.resources.len(), self.sender.sent);
        (0..len).map_while(move |_| PartRead::read(&mut reader, count, sent).ok())
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.fixed_array("heartbeat", 9, "9")?;
        let sender = Sender::read(reader)?;
        let resources = read_resources(reader)?;
        let replaces = if reader.nil() {
            None
        } else {
            Some(u128::from_be_bytes(
                reader.array_of_bytes("replaced epoch")?,
            ))
        };
        let head = HeartbeatHead {
            replaces,
            more: reader.bool("more")?,
            last: reader.bool("last")?,
        };
        let parts = (reader.array("parts")?, *reader);
        for _ in 0..parts.0 {
            PartRead::read(reader, resources.len(), sender.sent)?;
        }
        Ok(Self {
            sender,
            head,
            resources,
            parts,
        })
    }
}

impl<'a> PartRead<'a> {
    /// Numbers whose verdicts the agent awaits, ascending.
    pub fn awaiting(&self) -> impl Iterator<Item = u64> + use<'a> {
        numbers(self.awaiting)
    }

    /// Numbers whose verdicts the agent wants again, ascending.
    pub fn asked(&self) -> impl Iterator<Item = u64> + use<'a> {
        numbers(self.asked)
    }

    /// The listed holds, ascending; empty for a digest.
    pub fn listed(&self) -> impl Iterator<Item = Listed<'a>> + use<'a> {
        let list = match self.holds {
            HoldsRead::Digest(_) => None,
            HoldsRead::List { len, at, .. } => Some((len, at)),
        };
        let sent = self.sent;
        list.into_iter().flat_map(move |(len, mut reader)| {
            (0..len).map_while(move |_| Listed::read(&mut reader, sent).ok())
        })
    }

    fn read(
        reader: &mut Reader<'a>,
        resources: usize,
        sent: Timestamp,
    ) -> Result<Self, DecodeError> {
        let before = *reader;
        let len = reader.array("part")?;
        let resource = read_resource(reader, resources)?;
        let listed = reader.u8("kind of part")?;
        match (listed, len) {
            (0, 5) | (1, 7) => {}
            (0 | 1, found) => {
                return Err(before.error(
                    "part",
                    FieldFault::Length {
                        found: u64::from(found),
                        expected: "5 with a digest, 7 with a list",
                    },
                ));
            }
            (found, _) => return Err(before.error("kind of part", FieldFault::Kind { found })),
        }
        let awaiting = read_numbers(reader, "awaiting")?;
        let asked = read_numbers(reader, "asked")?;
        let holds = match listed {
            0 => HoldsRead::Digest(Holdings::from_bits(reader.u64("digest")?)),
            _ => read_list(reader, sent)?,
        };
        Ok(Self {
            resource,
            holds,
            awaiting,
            asked,
            sent,
        })
    }
}

fn read_list<'a>(reader: &mut Reader<'a>, sent: Timestamp) -> Result<HoldsRead<'a>, DecodeError> {
    let before = *reader;
    let (from, upto) = (reader.u64("from")?, reader.u64("upto")?);
    let out_of_order = FieldFault::Range {
        expected: "rising numbers",
    };
    if upto < from {
        return Err(before.error("upto", out_of_order));
    }
    let len = reader.array("listed")?;
    let at = *reader;
    let mut least = Some(from);
    for _ in 0..len {
        let before = *reader;
        let number = Listed::read(reader, sent)?.number;
        if least.is_none_or(|least| number < least) || upto < number {
            return Err(before.error("hold number", out_of_order));
        }
        least = number.checked_add(1);
    }
    Ok(HoldsRead::List {
        from,
        upto,
        len,
        at,
    })
}

fn read_numbers<'a>(
    reader: &mut Reader<'a>,
    field: &'static str,
) -> Result<(u32, Reader<'a>), DecodeError> {
    let len = reader.array(field)?;
    let at = *reader;
    let mut last = None;
    for _ in 0..len {
        let before = *reader;
        let number = reader.u64(field)?;
        if last.is_some_and(|last| number <= last) {
            return Err(before.error(
                field,
                FieldFault::Range {
                    expected: "rising numbers",
                },
            ));
        }
        last = Some(number);
    }
    Ok((len, at))
}

fn numbers<'a>((len, mut reader): (u32, Reader<'a>)) -> impl Iterator<Item = u64> + use<'a> {
    (0..len).map_while(move |_| reader.u64("hold number").ok())
}

impl<'a> Listed<'a> {
    fn read(reader: &mut Reader<'a>, sent: Timestamp) -> Result<Self, DecodeError> {
        reader.fixed_array("listed", 6, "6")?;
        let number = reader.u64("hold number")?;
        let domain = reader.domain()?;
        let before = *reader;
        let copies = reader.u32("copies")?;
        let start = read_age(reader, sent)?;
        let strict = reader.bool("strict")?;
        let seized = if reader.nil() {
            None
        } else {
            Some(read_transfer(reader)?)
        };
        if copies == 0 && seized.is_none() {
            return Err(before.error(
                "copies",
                FieldFault::Range {
                    expected: "at least 1 of what was not seized",
                },
            ));
        }
        Ok(Self {
            number,
            domain,
            copies,
            start,
            strict,
            seized,
        })
    }

    fn write(&self, writer: &mut Writer, sent: Timestamp) {
        writer.array(6);
        writer.u64(self.number);
        writer.text(self.domain);
        writer.u64(u64::from(self.copies));
        writer.i64(sent.signed_micros_since(self.start));
        writer.bool(self.strict);
        match self.seized {
            Some(transfer) => write_transfer(writer, transfer),
            None => writer.nil(),
        }
    }
}

/// Writes a heartbeat. The reader detects numbers that do not rise, or are outside a list's range.
pub fn write_heartbeat(
    writer: &mut Writer,
    sender: &Sender<'_>,
    resources: &[&str],
    head: HeartbeatHead,
    parts: &[Part<'_>],
) {
    writer.begin(super::record::kind::HEARTBEAT);
    writer.array(9);
    sender.write(writer);
    write_resources(writer, resources);
    match head.replaces {
        Some(epoch) => writer.bytes(&epoch.to_be_bytes()),
        None => writer.nil(),
    }
    writer.bool(head.more);
    writer.bool(head.last);
    writer.array(parts.len());
    for part in parts {
        write_part(writer, part, sender.sent);
    }
}

fn write_part(writer: &mut Writer, part: &Part<'_>, sent: Timestamp) {
    let (kind, fields) = match part.holds {
        Holds::Digest(_) => (0, 5),
        Holds::List { .. } => (1, 7),
    };
    writer.array(fields);
    writer.u64(u64::from(part.resource));
    writer.u64(kind);
    write_numbers(writer, part.awaiting);
    write_numbers(writer, part.asked);
    match part.holds {
        Holds::Digest(holdings) => writer.u64(holdings.bits()),
        Holds::List { from, upto, listed } => {
            writer.u64(from);
            writer.u64(upto);
            writer.array(listed.len());
            for entry in listed {
                entry.write(writer, sent);
            }
        }
    }
}

fn write_numbers(writer: &mut Writer, numbers: &[u64]) {
    writer.array(numbers.len());
    for number in numbers {
        writer.u64(*number);
    }
}
