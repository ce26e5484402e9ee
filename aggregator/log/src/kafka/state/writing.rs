//! The order in which a snapshot is written: its chunks, its manifest once they are acknowledged, and drops
//! of superseded snapshots.
//!
//! ```text
//! begin ─> chunk 0, chunk 1, … ─> acknowledged ─> begin ─> manifest ─> acknowledged: whole
//! ```
//!
//! Does no I/O: a [`Medium`] takes the records, be it the topic or a simulated one. What stays true: a
//! writer that dies at any point leaves a whole snapshot, or one without a manifest.

use tollgate_shared::log_position::LogId;

use super::wire::{Manifest, SnapshotId, StateKey};

/// Takes records of snapshots.
pub trait Medium {
    /// Why records were not taken.
    type Error;

    /// Stops waiting for records that were sent before.
    fn begin(&mut self);

    /// Sends a record; without a value, a record that deletes its key. From now on it may appear in the
    /// topic; records sent since [`Self::acknowledged`] may appear in any order.
    ///
    /// # Errors
    ///
    /// If it cannot be sent.
    fn send(&mut self, key: &StateKey, value: Option<&[u8]>) -> Result<(), Self::Error>;

    /// Waits until the `count` records that were sent since [`Self::begin`] are in the topic. Returns the
    /// offsets of the first and the last.
    ///
    /// # Errors
    ///
    /// If it is not known that all of them are.
    fn acknowledged(&mut self, count: u64) -> Result<(u64, u64), Self::Error>;
}

/// The writer and its build.
#[derive(Clone, Debug)]
pub struct SnapshotSource {
    /// The group that the writer belongs to.
    pub group: Box<str>,
    /// A number that no other snapshot of any writer has.
    pub writing: u128,
    /// How many partitions the log has.
    pub partitions: u32,
    /// The greatest rule set of this build.
    pub rules: u32,
}

/// The snapshot to write.
pub struct Written<'a> {
    /// The partition.
    pub partition: u32,
    /// The offset of the last record in it.
    pub upto: u64,
    /// The log that it belongs to.
    pub log: LogId,
    /// The writer's name, for people.
    pub name: &'a str,
}

/// A snapshot whose every record is in the topic.
#[derive(Debug)]
pub struct Whole {
    /// Its name.
    pub id: SnapshotId,
    /// Its manifest.
    pub manifest: Manifest,
    /// The manifest's offset.
    pub offset: u64,
}

/// Writes a snapshot. `chunks` passes the chunks to its argument one after the other.
///
/// # Errors
///
/// Those of the medium. What it took is half-written, and readers skip it.
pub fn write<M: Medium>(
    medium: &mut M,
    source: &SnapshotSource,
    written: &Written<'_>,
    chunks: impl FnOnce(&mut dyn FnMut(Vec<u8>)),
) -> Result<Whole, M::Error> {
    let id = SnapshotId {
        upto: written.upto,
        group: source.group.clone(),
        writing: source.writing,
    };
    let key = |chunk| StateKey {
        partition: written.partition,
        id: id.clone(),
        chunk,
    };
    let (mut count, mut bytes, mut digest) = (0u32, 0u64, blake3::Hasher::new());
    medium.begin();
    let mut sent = Ok(());
    chunks(&mut |chunk| {
        digest.update(&chunk);
        bytes += chunk.len() as u64;
        if sent.is_ok() {
            sent = medium.send(&key(Some(count)), Some(&chunk));
        }
        count += 1;
    });
    sent?;
    let (first, _) = medium.acknowledged(u64::from(count))?;
    let manifest = Manifest {
        log: written.log,
        partitions: source.partitions,
        rules: source.rules,
        chunks: count,
        bytes,
        digest: *digest.finalize().as_bytes(),
        first,
        name: written.name.into(),
    };
    medium.begin();
    medium.send(&key(None), Some(&manifest.encode()))?;
    let (_, offset) = medium.acknowledged(1)?;
    Ok(Whole {
        id,
        manifest,
        offset,
    })
}

/// Drops records.
///
/// # Errors
///
/// Those of the medium. A record that is not dropped takes room and does no other harm.
pub fn drop_all<M: Medium>(medium: &mut M, keys: &[StateKey]) -> Result<(), M::Error> {
    medium.begin();
    for key in keys {
        medium.send(key, None)?;
    }
    medium.acknowledged(keys.len() as u64).map(drop)
}
