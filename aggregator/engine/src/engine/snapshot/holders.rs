//! Copies and their holders in a snapshot.
//!
//! ```text
//! copies    0 resource, bytes of its copies      1 a piece of them, ...
//!           2 denied scope: kind, name, position, version, limit
//! holders   0 ticks   1 alive: name, epoch, ticks, grace   2 gone: name, epoch, ticks   3 over: the same
//! ```
//!
//! A resource's copies are a snapshot of their own, cut into pieces, because the snapshot of many
//! holds is larger than a chunk. Knows nothing of its content. What stays true: whatever the bytes,
//! reading ends in what was written or in a fault, and allocates no more than the bytes given.

use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::NAME_BYTES_MAX;

use super::super::Engine;
use super::super::holders::{AgentProcess, Held, Holders, copy_limits};
use super::super::scopes::StatedScope;
use super::read::Cursor;
use super::write::{Chunks, write_text};
use super::{SnapshotFault, kind};
use crate::copies::silence::{LastHeartbeat, Silence};
use crate::copies::{Copies, CopiesScope};
use crate::varint;

/// Bytes of a piece: several fit in a chunk.
const PIECE_BYTES: usize = 64 * 1024;

mod tag {
    pub const RESOURCE: u8 = 0;
    pub const PIECE: u8 = 1;
    pub const DENIED: u8 = 2;

    pub const TICKS: u8 = 0;
    pub const HEARTBEATS: u8 = 1;
    pub const GONE: u8 = 2;
    pub const OVER: u8 = 3;
}

pub(super) fn write(holders: &Holders, chunks: &mut Chunks<'_>) {
    chunks.begin(kind::COPIES);
    for held in holders.all() {
        let copies = held.copies.snapshot();
        chunks.item(|bytes| {
            bytes.push(tag::RESOURCE);
            write_text(&held.name, bytes);
            varint::write(bytes, copies.len() as u64);
        });
        for piece in copies.chunks(PIECE_BYTES) {
            chunks.item(|bytes| {
                bytes.push(tag::PIECE);
                varint::write(bytes, piece.len() as u64);
                bytes.extend_from_slice(piece);
            });
        }
        for (scope, stated) in held.denied.iter() {
            chunks.item(|bytes| write_denied(scope, stated, bytes));
        }
    }
    chunks.begin(kind::HOLDERS);
    let silence = &holders.silence;
    chunks.item(|bytes| {
        bytes.push(tag::TICKS);
        varint::write(bytes, silence.ticks());
    });
    let mut one = |tag, process: &AgentProcess, numbers: &[u64]| {
        chunks.item(|bytes| {
            bytes.push(tag);
            write_text(&process.name, bytes);
            bytes.extend_from_slice(&process.epoch.to_le_bytes());
            numbers.iter().for_each(|of| varint::write(bytes, *of));
        });
    };
    for (process, heard) in silence.present() {
        one(tag::HEARTBEATS, process, &[heard.at, heard.grace]);
    }
    for (process, ticks) in silence.gone() {
        one(tag::GONE, process, &[ticks]);
    }
    for (process, ticks) in holders.over() {
        one(tag::OVER, process, &[ticks]);
    }
}

fn write_denied(scope: CopiesScope<'_>, stated: StatedScope, bytes: &mut Vec<u8>) {
    let (kind, name) = match scope {
        CopiesScope::Domain(name) => (0, name),
        CopiesScope::Group(name) => (1, name),
        CopiesScope::Resource => (2, ""),
    };
    bytes.push(tag::DENIED);
    bytes.push(kind);
    write_text(name, bytes);
    varint::write(bytes, u64::from(stated.position.generation));
    varint::write(bytes, stated.position.offset);
    varint::write(bytes, u64::from(stated.position.entry));
    varint::write(bytes, stated.version);
    varint::write(bytes, stated.limit);
}

/// Reads the chunks of copies; one resource may extend over several.
#[derive(Default)]
pub(super) struct CopiesReader {
    /// A resource whose copies are incomplete: its name, its number of bytes, and the bytes so far.
    pending: Option<(Arc<str>, usize, Vec<u8>)>,
    /// The last resource that is complete.
    last: Option<Arc<str>>,
}

/// Reads the chunks of holders.
pub(super) struct HoldersReader;

impl CopiesReader {
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        engine: &mut Engine,
    ) -> Result<(), SnapshotFault> {
        while cursor.at < cursor.bytes.len() {
            match cursor.byte("kind of copies")? {
                tag::RESOURCE if self.pending.is_none() => {
                    let name: Arc<str> = cursor.text("resource")?.into();
                    if self.last.as_ref().is_some_and(|last| name <= *last) {
                        return Err(cursor.broken("resource"));
                    }
                    let len = cursor.number("bytes of copies")?;
                    let len = usize::try_from(len).map_err(|_| cursor.broken("bytes of copies"))?;
                    self.pending = Some((name, len, Vec::new()));
                }
                tag::PIECE => self.piece(cursor, engine)?,
                tag::DENIED if self.pending.is_none() => self.denied(cursor, engine)?,
                _ => return Err(cursor.broken("kind of copies")),
            }
        }
        Ok(())
    }

    /// All chunks were read: checks that no resource is cut off.
    pub(super) fn done(&self, cursor: &Cursor<'_>) -> Result<HoldersReader, SnapshotFault> {
        match self.pending {
            Some(_) => Err(cursor.broken("copies before")),
            None => Ok(HoldersReader),
        }
    }

    fn piece(&mut self, cursor: &mut Cursor<'_>, engine: &mut Engine) -> Result<(), SnapshotFault> {
        let len = usize::try_from(cursor.number("piece")?).unwrap_or(usize::MAX);
        let end = cursor.at.saturating_add(len);
        let broken = cursor.broken("piece");
        let piece = cursor.bytes.get(cursor.at..end).ok_or(broken)?;
        cursor.at = end;
        let (name, whole, mut bytes) = self.pending.take().ok_or(broken)?;
        bytes.extend_from_slice(piece);
        if bytes.len() < whole {
            self.pending = Some((name, whole, bytes));
            return Ok(());
        }
        let limits = engine.steps.newest().limits.clone();
        let limits_of = copy_limits(&name, &limits);
        let copies = Copies::restore(&bytes, limits_of, engine.name_key()).map_err(|_| broken)?;
        let held = Held::new(name.clone(), copies, &limits);
        if !engine.holders.put(held) {
            return Err(broken);
        }
        self.last = Some(name);
        Ok(())
    }

    fn denied(
        &mut self,
        cursor: &mut Cursor<'_>,
        engine: &mut Engine,
    ) -> Result<(), SnapshotFault> {
        let kind = cursor.byte("kind of scope")?;
        let name = cursor.text("scope")?;
        let scope = match kind {
            0 => CopiesScope::Domain(name),
            1 => CopiesScope::Group(name),
            2 => CopiesScope::Resource,
            _ => return Err(cursor.broken("kind of scope")),
        };
        let stated = StatedScope {
            position: LogPosition {
                generation: cursor.small("generation")?,
                offset: cursor.number("offset")?,
                entry: cursor.small("entry")?,
            },
            version: cursor.number("version")?,
            limit: cursor.number("limit")?,
        };
        let broken = cursor.broken("scope");
        let resource = self.last.as_ref().ok_or(broken)?;
        let index = engine.holders.find(resource).map_err(|_| broken)?;
        let (held, _) = engine.holders.at(index).ok_or(broken)?;
        held.denied.put(scope, Some(stated));
        Ok(())
    }
}

impl HoldersReader {
    pub(super) fn read(
        self,
        cursor: &mut Cursor<'_>,
        engine: &mut Engine,
    ) -> Result<(), SnapshotFault> {
        let silence = &engine.holders.silence;
        let mut ticks = silence.ticks();
        let mut present: Vec<_> = { silence.present() }
            .map(|(process, heard)| (process.clone(), heard))
            .collect();
        let mut gone: Vec<_> = { silence.gone() }
            .map(|(process, ticks)| (process.clone(), ticks))
            .collect();
        while cursor.at < cursor.bytes.len() {
            let tag = cursor.byte("kind of holder")?;
            if tag == tag::TICKS {
                ticks = cursor.number("ticks")?;
                continue;
            }
            let name = cursor.text("agent")?;
            if NAME_BYTES_MAX < name.len() {
                return Err(cursor.broken("agent"));
            }
            let process = AgentProcess {
                name: name.into(),
                epoch: u128::from_le_bytes(cursor.array("epoch")?),
            };
            let since = cursor.number("ticks of an agent")?;
            match tag {
                tag::HEARTBEATS => {
                    let grace = cursor.number("grace of an agent")?;
                    present.push((process, LastHeartbeat { at: since, grace }));
                }
                tag::GONE => gone.push((process, since)),
                tag::OVER => engine.holders.put_over(process, since),
                _ => return Err(cursor.broken("kind of holder")),
            }
        }
        engine.holders.silence = Silence::restore(ticks, present, gone);
        Ok(())
    }
}
