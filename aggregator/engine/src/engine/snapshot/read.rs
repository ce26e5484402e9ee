//! Reads the chunks of a snapshot.
//!
//! Knows nothing of writing them. What stays true: whatever the bytes, this ends in an engine or in a
//! fault, and allocates no more than a small multiple of the bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Cause, Denial};

use super::super::Engine;
use super::super::amended::{Ban, PairAmendments};
use super::super::denials::LiveDenial;
use super::super::epochs::Epoch;
use super::super::versions::{Steps, VersionStep, Versions};
use super::holders::CopiesReader;
use super::{ChunkSum, FORMAT, MAGIC, SnapshotFault, kind};
use crate::pairs::{Identities, Identity, Opened, Table, slot_of};
use crate::varint;

/// A cursor over one chunk.
pub(super) struct Cursor<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) at: usize,
    pub(super) chunk: usize,
}

pub(super) fn read<B: AsRef<[u8]>>(
    mut engine: Engine,
    chunks: impl IntoIterator<Item = B>,
    versions: &dyn Versions,
) -> Result<Engine, SnapshotFault> {
    let (mut count, mut last) = (0, 0);
    let (mut sum, mut expected) = (ChunkSum::default(), None);
    let mut copies = CopiesReader::default();
    for (chunk, bytes) in chunks.into_iter().enumerate() {
        let mut cursor = Cursor {
            bytes: bytes.as_ref(),
            at: 0,
            chunk,
        };
        let kind = cursor.begin()?;
        let follows = kind == last || kind == last + 1;
        // There is exactly one chunk of the first and of the last kind.
        let alone = kind != kind::HEAD && kind != kind::END;
        if expected.is_some() || !follows || (kind == last && !alone) {
            return Err(SnapshotFault::Order { chunk });
        }
        (count, last) = (chunk + 1, kind);
        match kind {
            kind::HEAD => cursor.head(&mut engine, versions)?,
            kind::PAIRS => cursor.pairs(engine.steps.newest().ordinal, &mut engine.table)?,
            kind::DENIALS => cursor.denials(&mut engine)?,
            kind::AGENTS => cursor.agents(&mut engine)?,
            kind::LAST_TOTALS => cursor.last_totals(&mut engine)?,
            kind::COPIES => copies.read(&mut cursor, &mut engine)?,
            kind::HOLDERS => copies.done(&cursor)?.read(&mut cursor, &mut engine)?,
            kind::AMENDED => cursor.amended(&mut engine)?,
            kind::CANDIDATES => {
                cursor.pairs(engine.steps.newest().ordinal, &mut engine.candidates)?;
            }
            kind::END => {
                expected = Some(u128::from_le_bytes(cursor.array("digest")?));
                if cursor.array("sum")? != sum.bytes() {
                    return Err(SnapshotFault::Sum);
                }
            }
            _ => return Err(SnapshotFault::Order { chunk }),
        }
        if cursor.at != cursor.bytes.len() {
            return Err(cursor.broken("end"));
        }
        sum.add(cursor.bytes);
    }
    let Some(expected) = expected else {
        return Err(SnapshotFault::CutOff { chunks: count });
    };
    let found = engine.digest();
    match found == expected {
        true => Ok(engine),
        false => Err(SnapshotFault::Digest { found, expected }),
    }
}

impl Cursor<'_> {
    fn begin(&mut self) -> Result<u8, SnapshotFault> {
        let chunk = self.chunk;
        let not_a_chunk = SnapshotFault::NotAChunk { chunk };
        if self.array("magic").map_err(|_| not_a_chunk)? != MAGIC {
            return Err(not_a_chunk);
        }
        match self.byte("format")? {
            FORMAT => {}
            found => return Err(SnapshotFault::Format { chunk, found }),
        }
        let kind = self.byte("kind")?;
        if self.number("number")? != chunk as u64 {
            return Err(SnapshotFault::Order { chunk });
        }
        Ok(kind)
    }

    fn head(&mut self, engine: &mut Engine, versions: &dyn Versions) -> Result<(), SnapshotFault> {
        let (partition, partitions) = (engine.partition, engine.partitions);
        let (found, found_of) = (self.small("partition")?, self.small("partitions")?);
        if (found, found_of) != (partition, partitions) {
            return Err(SnapshotFault::Partition {
                found,
                found_of,
                partition,
                partitions,
            });
        }
        engine.log = match self.flag("log")? {
            true => Some(self.log()?),
            false => None,
        };
        engine.identities = Identities::new(self.log()?);
        engine.began = self.flag("began")?;
        engine.lacks_records = self.flag("lacks records")?;
        engine.applied_upto = self.optional("applied up to")?;
        engine.log_time = self.optional("log time")?.map(Timestamp::from_micros);
        if let Some(log) = engine.log_time {
            engine.table.advance(slot_of(log));
            engine.candidates.advance(slot_of(log));
        }
        for table in [&mut engine.table, &mut engine.candidates] {
            table.restore_room_made(self.number("slot in which room was made")?);
        }
        let mut steps: VecDeque<VersionStep> = VecDeque::new();
        for _ in 0..self.number("versions")? {
            let step = VersionStep {
                version: self.number("version")?,
                ordinal: self.small("ordinal")?,
                at: Timestamp::from_micros(self.number("version's instant")?),
                limits: Arc::default(),
            };
            let follows = |last: &VersionStep| last.ordinal.checked_add(1) == Some(step.ordinal);
            if !steps.back().is_none_or(follows) {
                return Err(self.broken("ordinal"));
            }
            let limits = match step.ordinal {
                0 => Arc::default(),
                _ => versions
                    .limits(step.version)
                    .ok_or(SnapshotFault::MissingVersion {
                        version: step.version,
                    })?,
            };
            steps.push_back(VersionStep { limits, ..step });
        }
        let Some(newest) = steps.back().cloned() else {
            return Err(self.broken("versions"));
        };
        let upto = self.number("newest version")?;
        engine.steps = Steps::of(steps, newest, upto);
        engine.mark = match self.flag("mark")? {
            true => Some(u128::from_le_bytes(self.array("mark")?)),
            false => None,
        };
        Ok(())
    }

    fn pairs(&mut self, newest: u32, table: &mut Table) -> Result<(), SnapshotFault> {
        while self.at < self.bytes.len() {
            let identity = self.identity()?;
            let opened = table.open(identity);
            let working = table.working();
            let read = working.read(self.bytes, &mut self.at);
            if read.is_none() || newest < working.ordinal || opened == Opened::Known {
                return Err(self.broken("pair"));
            }
            if !table.close() {
                return Err(self.broken("pair"));
            }
        }
        Ok(())
    }

    fn denials(&mut self, engine: &mut Engine) -> Result<(), SnapshotFault> {
        while self.at < self.bytes.len() {
            let identity = self.identity()?;
            let resource = self.text("resource")?.into();
            let domain = match self.flag("domain")? {
                true => Some(self.text("domain")?.into()),
                false => None,
            };
            let position = LogPosition {
                generation: self.small("generation")?,
                offset: self.number("offset")?,
                entry: self.small("entry")?,
            };
            let denial = Denial {
                end: Timestamp::from_micros(self.number("end")?),
                cause: self.cause()?,
                version: self.number("version")?,
                limit: self.number("limit")?,
                window: Span::from_micros(self.number("window")?),
                most: self.number("most")?,
            };
            let live = LiveDenial {
                resource,
                domain,
                position,
                denial,
            };
            engine.denials.put(identity, live);
        }
        Ok(())
    }

    fn agents(&mut self, engine: &mut Engine) -> Result<(), SnapshotFault> {
        while self.at < self.bytes.len() {
            let process = self.identity()?;
            if !self.flag("remembered epoch")? {
                let log = self.optional("given up")?.map(Timestamp::from_micros);
                engine.epochs.put_given_up(process, log);
                continue;
            }
            let epoch = Epoch {
                name: self.identity()?,
                highest: self.number("highest sequence")?,
                below: u128::from_le_bytes(self.array("sequences below")?),
                last: self.optional("last batch")?.map(Timestamp::from_micros),
                minute: self.number("minute")?,
                in_turn: self.number("sequence in turn")?,
                least_us: self.number("least delay")? as i64,
                least_before_us: self.optional("least delay before")?.map(|us| us as i64),
            };
            engine.epochs.put(process, epoch);
        }
        Ok(())
    }

    fn amended(&mut self, engine: &mut Engine) -> Result<(), SnapshotFault> {
        while self.at < self.bytes.len() {
            match self.byte("whom")? {
                0 => {}
                1 => {
                    let domain = self.text("domain")?;
                    let ban = self.ban()?;
                    engine.amended.set_domain(domain, Some(ban));
                    continue;
                }
                2 => {
                    let network = self.text("network")?;
                    let resource = match self.flag("resource of a ban")? {
                        true => Some(self.text("resource")?),
                        false => None,
                    };
                    let ban = self.ban()?;
                    engine.amended.set_network(resource, network, Some(ban));
                    continue;
                }
                _ => return Err(self.broken("whom")),
            }
            let identity = self.identity()?;
            let until = self.optional("ban's end")?.map(Timestamp::from_micros);
            let version = self.number("ban's version")?;
            let pardon = self.optional("pardon's end")?.map(Timestamp::from_micros);
            let ban = until.map(|until| Ban { until, version });
            engine
                .amended
                .set_pair(identity, PairAmendments { ban, pardon });
        }
        Ok(())
    }

    fn ban(&mut self) -> Result<Ban, SnapshotFault> {
        Ok(Ban {
            until: Timestamp::from_micros(self.number("ban's end")?),
            version: self.number("ban's version")?,
        })
    }

    fn last_totals(&mut self, engine: &mut Engine) -> Result<(), SnapshotFault> {
        while self.at < self.bytes.len() {
            let resource = self.text("resource")?;
            let identities = engine.identities;
            if self.flag("whether it was applied")? {
                let source = (
                    self.small("source partition")?,
                    self.number("source offset")?,
                );
                if !engine.last_totals.apply(&identities, resource, source) {
                    return Err(self.broken("last total"));
                }
            } else {
                let offset = self.number("source offset")?;
                let last = &mut engine.last_totals;
                if last.total(&identities, resource, offset).is_some() {
                    return Err(self.broken("last total"));
                }
            }
        }
        Ok(())
    }
}

impl<'b> Cursor<'b> {
    pub(super) fn broken(&self, field: &'static str) -> SnapshotFault {
        SnapshotFault::Broken {
            chunk: self.chunk,
            at: self.at,
            field,
        }
    }

    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, SnapshotFault> {
        let [byte] = self.array(field)?;
        Ok(byte)
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, SnapshotFault> {
        match self.byte(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.broken(field)),
        }
    }

    pub(super) fn number(&mut self, field: &'static str) -> Result<u64, SnapshotFault> {
        varint::read(self.bytes, &mut self.at).ok_or(self.broken(field))
    }

    pub(super) fn small(&mut self, field: &'static str) -> Result<u32, SnapshotFault> {
        u32::try_from(self.number(field)?).map_err(|_| self.broken(field))
    }

    fn optional(&mut self, field: &'static str) -> Result<Option<u64>, SnapshotFault> {
        match self.flag(field)? {
            true => self.number(field).map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], SnapshotFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let array = *rest.first_chunk().ok_or(self.broken(field))?;
        self.at += N;
        Ok(array)
    }

    fn identity(&mut self) -> Result<Identity, SnapshotFault> {
        self.array("identity")
            .map(|bytes| Identity(u128::from_le_bytes(bytes)))
    }

    pub(super) fn text(&mut self, field: &'static str) -> Result<&'b str, SnapshotFault> {
        let len = usize::try_from(self.number(field)?).unwrap_or(usize::MAX);
        let end = self.at.saturating_add(len);
        let bytes = self.bytes.get(self.at..end).ok_or(self.broken(field))?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.broken(field))?;
        self.at = end;
        Ok(text)
    }

    fn log(&mut self) -> Result<LogId, SnapshotFault> {
        Ok(LogId {
            generation: self.small("generation")?,
            random: u64::from_le_bytes(self.array("random")?),
        })
    }

    fn cause(&mut self) -> Result<Cause, SnapshotFault> {
        Ok(match self.number("cause")? {
            1 => Cause::Hard,
            2 => Cause::Global,
            3 => Cause::Inaccessible,
            4 => Cause::Unconfigured,
            7 => Cause::Banned,
            8 => Cause::Bucket,
            number @ 512..=767 => Cause::Window((number - 512) as u8),
            number @ 768..=1023 => Cause::Quota((number - 768) as u8),
            number @ 256..=511 => Cause::Tier((number - 256) as u8),
            _ => return Err(self.broken("cause")),
        })
    }
}
