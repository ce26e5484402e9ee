//! The order in which a snapshot is written: its chunks, its manifest when they stand, and drops of what it
//! outlives.
//!
//! ```text
//! begin ─> chunk 0, chunk 1, … ─> acknowledged ─> begin ─> manifest ─> acknowledged: whole
//! ```
//!
//! Knows no Kafka: a [`Medium`] takes the records, the topic or a simulated one. What stays true: who dies
//! anywhere in this leaves a whole snapshot, or one that has no manifest.

use tollgate_shared::place::LogId;

use super::wire::{Manifest, SnapshotId, StateKey};

/// What takes records of snapshots.
pub trait Medium {
    /// Why records were not taken.
    type Error;

    /// What was sent before is not waited for any more.
    fn begin(&mut self);

    /// Sends a record; without a value, one that drops what has its key. It may come to stand in the topic
    /// from now on, and those that were sent since [`Self::acknowledged`] in any order.
    ///
    /// # Errors
    ///
    /// Where it cannot be sent.
    fn send(&mut self, key: &StateKey, value: Option<&[u8]>) -> Result<(), Self::Error>;

    /// Waits until the `count` records that were sent since [`Self::begin`] stand in the topic; the offsets
    /// of the first and the last.
    ///
    /// # Errors
    ///
    /// Where it is not known of all of them that they do.
    fn acknowledged(&mut self, count: u64) -> Result<(u64, u64), Self::Error>;
}

/// Who writes, and which time it is.
#[derive(Clone, Debug)]
pub struct SnapshotSource {
    /// The group that the writer belongs to.
    pub group: Box<str>,
    /// Another number for each snapshot that is written, by whomever.
    pub writing: u128,
    /// How many partitions the log has.
    pub partitions: u32,
    /// The greatest rule set of this build.
    pub rules: u32,
}

/// What is written.
pub struct Written<'a> {
    /// The partition.
    pub partition: u32,
    /// The offset of the last record in it.
    pub upto: u64,
    /// The log that it is of.
    pub log: LogId,
    /// The writer's name, for people.
    pub name: &'a str,
}

/// A snapshot of which every record stands in the topic.
#[derive(Debug)]
pub struct Whole {
    /// Its name.
    pub id: SnapshotId,
    /// Its manifest.
    pub manifest: Manifest,
    /// Where that stands.
    pub offset: u64,
}

/// Writes a snapshot, whose chunks `chunks` hands out one after the other.
///
/// # Errors
///
/// The medium's. What it took is half-written: readers pass over it.
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
/// The medium's. What is not dropped takes room, and no more.
pub fn drop_all<M: Medium>(medium: &mut M, keys: &[StateKey]) -> Result<(), M::Error> {
    medium.begin();
    for key in keys {
        medium.send(key, None)?;
    }
    medium.acknowledged(keys.len() as u64).map(drop)
}
