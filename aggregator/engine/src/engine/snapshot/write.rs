//! Writes the chunks of a snapshot.
//!
//! Knows nothing of reading them. What stays true: no chunk exceeds the bound, and no item is
//! split.

use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::Cause;

use super::super::amended::Amended;
use super::{CHUNK_BYTES_MAX, ChunkSum, FORMAT, Frozen, MAGIC, kind};
use crate::pairs::FrozenTable;
use crate::varint;

/// Chunks under construction.
pub(super) struct Chunks<'s> {
    sink: &'s mut dyn FnMut(Vec<u8>),
    number: u64,
    kind: u8,
    bytes: Vec<u8>,
    /// Bytes of the chunk without any item.
    empty: usize,
    item: Vec<u8>,
    /// The sum of all finished chunks.
    sum: ChunkSum,
}

pub(super) fn write(frozen: &Frozen, sink: &mut dyn FnMut(Vec<u8>)) {
    let mut chunks = Chunks {
        sink,
        number: 0,
        kind: kind::HEAD,
        bytes: Vec::new(),
        empty: 0,
        item: Vec::new(),
        sum: ChunkSum::default(),
    };
    chunks.begin(kind::HEAD);
    chunks.item(|bytes| write_head(frozen, bytes));
    write_pairs(kind::PAIRS, &frozen.table, &mut chunks);
    write_denials(frozen, &mut chunks);
    write_agents(frozen, &mut chunks);
    write_last_totals(frozen, &mut chunks);
    super::holders::write(&frozen.holders, &mut chunks);
    write_amended(&frozen.amended, &mut chunks);
    write_pairs(kind::CANDIDATES, &frozen.candidates, &mut chunks);
    chunks.begin(kind::END);
    let sum = chunks.sum.bytes();
    chunks.item(|bytes| {
        bytes.extend_from_slice(&frozen.digest.to_le_bytes());
        bytes.extend_from_slice(&sum);
    });
    chunks.finish();
}

fn write_pairs(kind: u8, table: &FrozenTable, chunks: &mut Chunks<'_>) {
    chunks.begin(kind);
    for (identity, stored) in table.pairs() {
        chunks.item(|bytes| {
            bytes.extend_from_slice(&identity.0.to_le_bytes());
            stored.write(bytes);
        });
    }
}

fn write_denials(frozen: &Frozen, chunks: &mut Chunks<'_>) {
    chunks.begin(kind::DENIALS);
    for (identity, live) in frozen.denials.iter() {
        chunks.item(|bytes| {
            bytes.extend_from_slice(&identity.0.to_le_bytes());
            write_text(&live.resource, bytes);
            bytes.push(u8::from(live.domain.is_some()));
            if let Some(domain) = &live.domain {
                write_text(domain, bytes);
            }
            varint::write(bytes, u64::from(live.position.generation));
            varint::write(bytes, live.position.offset);
            varint::write(bytes, u64::from(live.position.entry));
            varint::write(bytes, live.denial.end.as_micros());
            varint::write(bytes, cause_number(live.denial.cause));
            varint::write(bytes, live.denial.version);
            varint::write(bytes, live.denial.limit);
            varint::write(bytes, live.denial.window.as_micros());
            varint::write(bytes, live.denial.most);
        });
    }
}

fn write_agents(frozen: &Frozen, chunks: &mut Chunks<'_>) {
    chunks.begin(kind::AGENTS);
    for (process, epoch) in &frozen.epochs {
        chunks.item(|bytes| {
            bytes.extend_from_slice(&process.0.to_le_bytes());
            bytes.push(1);
            bytes.extend_from_slice(&epoch.name.0.to_le_bytes());
            varint::write(bytes, epoch.highest);
            bytes.extend_from_slice(&epoch.below.to_le_bytes());
            write_optional(epoch.last.map(Timestamp::as_micros), bytes);
            varint::write(bytes, epoch.minute);
            varint::write(bytes, epoch.in_turn);
            varint::write(bytes, epoch.least_us as u64);
            write_optional(epoch.least_before_us.map(|us| us as u64), bytes);
        });
    }
    for (process, log) in &frozen.given_up {
        chunks.item(|bytes| {
            bytes.extend_from_slice(&process.0.to_le_bytes());
            bytes.push(0);
            write_optional(log.map(Timestamp::as_micros), bytes);
        });
    }
}

fn write_last_totals(frozen: &Frozen, chunks: &mut Chunks<'_>) {
    chunks.begin(kind::LAST_TOTALS);
    for (resource, offset) in &frozen.due {
        chunks.item(|bytes| {
            write_text(resource, bytes);
            bytes.push(0);
            varint::write(bytes, *offset);
        });
    }
    for (resource, partition, offset) in &frozen.applied {
        chunks.item(|bytes| {
            write_text(resource, bytes);
            bytes.push(1);
            varint::write(bytes, u64::from(*partition));
            varint::write(bytes, *offset);
        });
    }
}

fn write_amended(amended: &Amended, chunks: &mut Chunks<'_>) {
    chunks.begin(kind::AMENDED);
    for (identity, of_pair) in amended.pairs() {
        chunks.item(|bytes| {
            bytes.push(0);
            bytes.extend_from_slice(&identity.0.to_le_bytes());
            write_optional(of_pair.ban.map(|ban| ban.until.as_micros()), bytes);
            varint::write(bytes, of_pair.ban.map_or(0, |ban| ban.version));
            write_optional(of_pair.pardon.map(Timestamp::as_micros), bytes);
        });
    }
    for (domain, ban) in amended.domains() {
        chunks.item(|bytes| {
            bytes.push(1);
            write_text(domain, bytes);
            varint::write(bytes, ban.until.as_micros());
            varint::write(bytes, ban.version);
        });
    }
    for (network, resource, ban) in amended.networks() {
        chunks.item(|bytes| {
            bytes.push(2);
            write_text(network, bytes);
            bytes.push(u8::from(resource.is_some()));
            if let Some(resource) = resource {
                write_text(resource, bytes);
            }
            varint::write(bytes, ban.until.as_micros());
            varint::write(bytes, ban.version);
        });
    }
}

fn write_head(frozen: &Frozen, bytes: &mut Vec<u8>) {
    varint::write(bytes, u64::from(frozen.partition));
    varint::write(bytes, u64::from(frozen.partitions));
    bytes.push(u8::from(frozen.log.is_some()));
    if let Some(log) = frozen.log {
        write_log(log, bytes);
    }
    write_log(frozen.key, bytes);
    bytes.push(u8::from(frozen.began));
    bytes.push(u8::from(frozen.lacks_records));
    write_optional(frozen.applied_upto, bytes);
    write_optional(frozen.log_time.map(Timestamp::as_micros), bytes);
    for slot in frozen.room_made {
        varint::write(bytes, slot);
    }
    varint::write(bytes, frozen.steps.len() as u64);
    for (version, ordinal, at) in &frozen.steps {
        varint::write(bytes, *version);
        varint::write(bytes, u64::from(*ordinal));
        varint::write(bytes, at.as_micros());
    }
    varint::write(bytes, frozen.version);
    bytes.push(u8::from(frozen.mark.is_some()));
    if let Some(mark) = frozen.mark {
        bytes.extend_from_slice(&mark.to_le_bytes());
    }
}

fn write_log(log: LogId, bytes: &mut Vec<u8>) {
    varint::write(bytes, u64::from(log.generation));
    bytes.extend_from_slice(&log.random.to_le_bytes());
}

fn write_optional(value: Option<u64>, bytes: &mut Vec<u8>) {
    bytes.push(u8::from(value.is_some()));
    if let Some(value) = value {
        varint::write(bytes, value);
    }
}

pub(super) fn write_text(text: &str, bytes: &mut Vec<u8>) {
    varint::write(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// The number of a cause that an engine states; 0 for other causes.
pub(super) fn cause_number(cause: Cause) -> u64 {
    match cause {
        Cause::Hard => 1,
        Cause::Global => 2,
        Cause::Inaccessible => 3,
        Cause::Unconfigured => 4,
        Cause::Banned => 7,
        Cause::Bucket => 8,
        Cause::Window(window) => 512 + u64::from(window),
        Cause::Quota(quota) => 768 + u64::from(quota),
        Cause::Tier(tier) => 256 + u64::from(tier),
        _ => 0,
    }
}

impl Chunks<'_> {
    /// Begins the chunks of a kind. There is at least one of each kind, so that a missing one is
    /// detected.
    pub(super) fn begin(&mut self, kind: u8) {
        if !self.bytes.is_empty() {
            self.finish();
        }
        self.kind = kind;
        self.bytes.extend_from_slice(&MAGIC);
        self.bytes.extend_from_slice(&[FORMAT, kind]);
        varint::write(&mut self.bytes, self.number);
        self.empty = self.bytes.len();
        self.number += 1;
    }

    pub(super) fn item(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.item.clear();
        write(&mut self.item);
        let full = CHUNK_BYTES_MAX < self.bytes.len() + self.item.len();
        if full && self.empty < self.bytes.len() {
            self.begin(self.kind);
        }
        self.bytes.extend_from_slice(&self.item);
    }

    fn finish(&mut self) {
        self.sum.add(&self.bytes);
        (self.sink)(std::mem::take(&mut self.bytes));
    }
}
