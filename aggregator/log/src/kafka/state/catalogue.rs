//! Which snapshots of one partition the `state` topic holds, which to restore from, and which to drop.
//!
//! ```text
//! upto    group writing chunks  manifest
//! 18250   a     7f..    12      whole            restored from
//! 18000   b     02..    3       none             half-written: skipped
//! 17250   a     7f..    12      whole            the one before
//! 16000   a     55..    11      whole            dropped, unless it is the first of its hour
//! ```
//!
//! Does no I/O. What stays true: the two newest whole snapshots of a group stay; a group drops only its own
//! snapshots.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::wire::{Manifest, SnapshotId, StateKey, Unreadable};
use super::writing::Whole;

/// How many whole snapshots of each group stay: the newest, and one to fall back on.
const KEPT: usize = 2;

const HOUR_MS: u64 = 60 * 60 * 1000;

/// The snapshots of one partition.
#[derive(Debug, Default)]
pub struct Catalogue {
    snapshots: BTreeMap<SnapshotId, CatalogueEntry>,
}

/// What is known of one snapshot.
#[derive(Debug, Default)]
struct CatalogueEntry {
    chunks: BTreeSet<u32>,
    manifest: Option<SeenManifest>,
}

/// A manifest that was seen.
#[derive(Debug)]
struct SeenManifest {
    offset: u64,
    appended_ms: u64,
    manifest: Result<Manifest, Unreadable>,
}

/// A snapshot that looks whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub id: SnapshotId,
    /// Its manifest.
    pub manifest: Manifest,
    /// The offset of the manifest in the topic; the chunks come before it.
    pub offset: u64,
}

/// A record of the topic.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: u64,
    /// Its key.
    pub key: &'a [u8],
    /// Its value; `None` deletes the key.
    pub value: Option<&'a [u8]>,
}

/// A record does not belong to this partition's snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

/// The chunks of a snapshot that were read so far.
#[derive(Debug, Default)]
pub struct Gathered(BTreeMap<u32, Vec<u8>>);

impl Gathered {
    /// Enters a record. Records come in order from the manifest's `first` on. Returns whether there is more to
    /// come.
    pub fn enter(&mut self, candidate: &Candidate, record: &Record<'_>) -> bool {
        if let Ok(key) = StateKey::decode(record.key)
            && key.id == candidate.id
            && let (Some(chunk), Some(bytes)) = (key.chunk, record.value)
        {
            self.0.insert(chunk, bytes.to_vec());
        }
        record.offset < candidate.offset
    }

    /// The chunks, if they are what was written.
    ///
    /// # Errors
    ///
    /// If they are not: the reason in words.
    pub fn whole(self, manifest: &Manifest) -> Result<Vec<Vec<u8>>, String> {
        let mut digest = blake3::Hasher::new();
        for chunk in self.0.values() {
            digest.update(chunk);
        }
        if self.0.keys().copied().eq(0..manifest.chunks)
            && digest.finalize().as_bytes() == &manifest.digest
        {
            return Ok(self.0.into_values().collect());
        }
        Err(format!(
            "its {} chunks, {} expected, do not have the digest that they were written with",
            self.0.len(),
            manifest.chunks
        ))
    }
}

impl Catalogue {
    /// Enters a record of the topic; without a value, removes what has its key.
    fn enter(
        &mut self,
        key: StateKey,
        value: Option<Result<Manifest, Unreadable>>,
        offset: u64,
        appended_ms: u64,
    ) {
        let entry = self.snapshots.entry(key.id.clone()).or_default();
        match (key.chunk, value) {
            (Some(chunk), Some(_)) => drop(entry.chunks.insert(chunk)),
            (Some(chunk), None) => drop(entry.chunks.remove(&chunk)),
            (None, Some(manifest)) => {
                entry.manifest = Some(SeenManifest {
                    offset,
                    appended_ms,
                    manifest,
                });
            }
            (None, None) => entry.manifest = None,
        }
        if entry.chunks.is_empty() && entry.manifest.is_none() {
            self.snapshots.remove(&key.id);
        }
    }

    /// Enters an existing chunk.
    fn enter_chunk(&mut self, id: &SnapshotId, chunk: u32) {
        let entry = self.snapshots.entry(id.clone()).or_default();
        entry.chunks.insert(chunk);
    }

    /// Enters a record from the topic. `appended_ms` is its append time, `rules` the greatest rule set that this
    /// build knows.
    ///
    /// # Errors
    ///
    /// [`Foreign`] if it does not belong to this partition's snapshots.
    pub fn enter_record(
        &mut self,
        partition: u32,
        record: &Record<'_>,
        appended_ms: u64,
        rules: u32,
    ) -> Result<(), Foreign> {
        let key = match StateKey::decode(record.key) {
            Ok(key) if key.partition == partition => key,
            Ok(_) | Err(_) => return Err(Foreign),
        };
        match (key.chunk, record.value) {
            (Some(chunk), Some(_)) => self.enter_chunk(&key.id, chunk),
            (None, Some(value)) => {
                let manifest = Manifest::decode(value, rules);
                self.enter(key, Some(manifest), record.offset, appended_ms);
            }
            (_, None) => self.enter(key, None, record.offset, appended_ms),
        }
        Ok(())
    }

    /// Enters a snapshot that this process wrote; returns the keys of superseded snapshots, which are to be
    /// dropped.
    pub fn take_over(
        &mut self,
        partition: u32,
        whole: Whole,
        appended_ms: u64,
        keep_hourly: u64,
    ) -> Vec<StateKey> {
        let Whole {
            id,
            manifest,
            offset,
        } = whole;
        for chunk in 0..manifest.chunks {
            self.enter_chunk(&id, chunk);
        }
        let key = StateKey {
            partition,
            id: id.clone(),
            chunk: None,
        };
        self.enter(key, Some(Ok(manifest)), offset, appended_ms);
        self.take_outlived(partition, &id, keep_hourly)
    }

    /// The snapshots that look whole, newest first; and the skipped ones, each with the reason.
    pub fn candidates(&self) -> (Vec<Candidate>, Vec<(SnapshotId, String)>) {
        let (mut whole, mut passed_over) = (Vec::new(), Vec::new());
        for (id, entry) in self.newest_first() {
            match entry.check() {
                Ok((offset, manifest)) => whole.push(Candidate {
                    id: id.clone(),
                    manifest: manifest.clone(),
                    offset,
                }),
                Err(why) => passed_over.push((id.clone(), why)),
            }
        }
        (whole, passed_over)
    }

    /// All snapshots. Of two with the same reach the one written later comes first: the other may be of a topic
    /// that was deleted.
    fn newest_first(&self) -> Vec<(&SnapshotId, &CatalogueEntry)> {
        let mut all: Vec<_> = self.snapshots.iter().collect();
        all.sort_by_key(|(id, entry)| Reverse((id.upto, entry.offset())));
        all
    }

    /// The keys to drop now that `newest` of this group is whole: manifests first, so that no manifest outlives its
    /// chunks.
    fn take_outlived(
        &mut self,
        partition: u32,
        newest: &SnapshotId,
        keep_hourly: u64,
    ) -> Vec<StateKey> {
        let group = &newest.group;
        let mut of_group = self.newest_first();
        of_group.retain(|(id, _)| id.group == *group && id.upto <= newest.upto);
        let (mut kept, mut seen_whole) = (BTreeSet::new(), 0);
        let mut hours: BTreeMap<u64, &SnapshotId> = BTreeMap::new();
        for (id, entry) in of_group.iter().copied() {
            if entry.check().is_err() {
                // A member of the group may be writing it at the moment, unless two whole ones are newer.
                if seen_whole < KEPT {
                    kept.insert(id.clone());
                }
                continue;
            }
            seen_whole += 1;
            if seen_whole <= KEPT {
                kept.insert(id.clone());
            }
            if let Some(stated) = &entry.manifest {
                // From new to old, so that the first of each hour remains.
                hours.insert(stated.appended_ms / HOUR_MS, id);
            }
        }
        let hourly = usize::try_from(keep_hourly).unwrap_or(usize::MAX);
        kept.extend(hours.into_values().rev().take(hourly).cloned());
        let outlived: Vec<SnapshotId> = of_group
            .iter()
            .map(|(id, _)| (*id).clone())
            .filter(|id| !kept.contains(id))
            .collect();
        let mut keys = Vec::new();
        for id in outlived {
            let Some(entry) = self.snapshots.remove(&id) else {
                continue;
            };
            let key = |chunk| StateKey {
                partition,
                id: id.clone(),
                chunk,
            };
            keys.extend(entry.manifest.iter().map(|_| key(None)));
            keys.extend(entry.chunks.iter().map(|chunk| key(Some(*chunk))));
        }
        keys
    }
}

impl CatalogueEntry {
    /// The offset of its manifest, if there is one.
    fn offset(&self) -> Option<u64> {
        self.manifest.as_ref().map(|stated| stated.offset)
    }

    /// The manifest and its offset, if the snapshot looks whole.
    fn check(&self) -> Result<(u64, &Manifest), String> {
        let Some(stated) = &self.manifest else {
            return Err(format!(
                "half-written: {} chunks and no manifest",
                self.chunks.len()
            ));
        };
        let manifest = stated.manifest.as_ref().map_err(ToString::to_string)?;
        if self.chunks.iter().copied().eq(0..manifest.chunks) {
            return Ok((stated.offset, manifest));
        }
        Err(format!(
            "{} of its {} chunks are there",
            self.chunks.len(),
            manifest.chunks
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::log_position::LogId;

    fn id(upto: u64, group: &str) -> SnapshotId {
        SnapshotId {
            upto,
            group: group.into(),
            writing: 1,
        }
    }

    fn manifest(chunks: u32) -> Manifest {
        Manifest {
            log: LogId {
                generation: 1,
                random: 2,
            },
            partitions: 4,
            rules: 1,
            chunks,
            bytes: 10,
            digest: [0; 32],
            first: 0,
            name: "agg-1".into(),
        }
    }

    fn enter(catalogue: &mut Catalogue, id: &SnapshotId, chunks: u32, hour: Option<u64>) {
        for chunk in 0..chunks {
            catalogue.enter_chunk(id, chunk);
        }
        if let Some(hour) = hour {
            let key = StateKey {
                partition: 0,
                id: id.clone(),
                chunk: None,
            };
            let stated = Some(Ok(manifest(2)));
            catalogue.enter(key, stated, id.upto * 10, hour * HOUR_MS);
        }
    }

    fn uptos(catalogue: &Catalogue) -> Vec<u64> {
        let (whole, _) = catalogue.candidates();
        whole.iter().map(|candidate| candidate.id.upto).collect()
    }

    #[test]
    fn the_newest_whole_snapshot_comes_first() {
        let mut catalogue = Catalogue::default();
        enter(&mut catalogue, &id(10, "a"), 2, Some(0));
        enter(&mut catalogue, &id(20, "b"), 2, Some(0));
        enter(&mut catalogue, &id(30, "a"), 1, Some(0));
        enter(&mut catalogue, &id(40, "a"), 2, None);
        assert_eq!(uptos(&catalogue), [20, 10]);
        let (_, passed_over) = catalogue.candidates();
        let why: Vec<&str> = passed_over.iter().map(|(_, why)| why.as_str()).collect();
        assert_eq!(
            why,
            [
                "half-written: 2 chunks and no manifest",
                "1 of its 2 chunks are there"
            ]
        );
    }

    #[test]
    fn of_two_snapshots_at_one_offset_the_later_written_is_first() {
        let mut catalogue = Catalogue::default();
        for (writing, offset) in [(1, 40), (7, 20), (3, 60)] {
            let id = SnapshotId {
                writing,
                ..id(10, "a")
            };
            enter(&mut catalogue, &id, 2, None);
            let key = StateKey {
                partition: 0,
                id,
                chunk: None,
            };
            catalogue.enter(key, Some(Ok(manifest(2))), offset, 0);
        }
        let (whole, _) = catalogue.candidates();
        let found: Vec<_> = whole
            .iter()
            .map(|one| (one.id.writing, one.offset))
            .collect();
        assert_eq!(found, [(3, 60), (1, 40), (7, 20)]);
    }

    #[test]
    fn two_own_snapshots_stay_and_manifests_are_dropped_first() {
        let mut catalogue = Catalogue::default();
        enter(&mut catalogue, &id(5, "a"), 1, None);
        for upto in [10, 20, 30] {
            enter(&mut catalogue, &id(upto, "a"), 2, Some(0));
        }
        enter(&mut catalogue, &id(15, "b"), 2, Some(0));
        enter(&mut catalogue, &id(25, "a"), 1, None);
        let keys = catalogue.take_outlived(0, &id(30, "a"), 0);
        let dropped: Vec<_> = keys.iter().map(|key| (key.id.upto, key.chunk)).collect();
        assert_eq!(
            dropped,
            [(10, None), (10, Some(0)), (10, Some(1)), (5, Some(0))]
        );
        assert_eq!(uptos(&catalogue), [30, 20, 15]);
        assert!(catalogue.take_outlived(0, &id(30, "a"), 0).is_empty());
    }

    #[test]
    fn of_two_equal_snapshots_the_earlier_one_is_dropped() {
        for (earlier, later) in [(1, 9), (9, 1)] {
            let named = |writing| SnapshotId {
                writing,
                ..id(10, "a")
            };
            let mut catalogue = Catalogue::default();
            for (writing, offset) in [(earlier, 20), (later, 40)] {
                enter(&mut catalogue, &named(writing), 2, None);
                let key = StateKey {
                    partition: 0,
                    id: named(writing),
                    chunk: None,
                };
                catalogue.enter(key, Some(Ok(manifest(2))), offset, 0);
            }
            enter(&mut catalogue, &id(20, "a"), 2, Some(0));
            catalogue.take_outlived(0, &id(20, "a"), 0);
            let (whole, _) = catalogue.candidates();
            let left: Vec<_> = whole.iter().map(|one| one.id.clone()).collect();
            assert_eq!(left, [id(20, "a"), named(later)]);
        }
    }

    #[test]
    fn the_first_snapshot_of_each_recent_hour_stays() {
        let mut catalogue = Catalogue::default();
        for (upto, hour) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 2)] {
            enter(&mut catalogue, &id(upto, "a"), 2, Some(hour));
        }
        catalogue.take_outlived(0, &id(7, "a"), 2);
        assert_eq!(uptos(&catalogue), [7, 6, 4, 2]);
    }

    #[test]
    fn removed_snapshots_are_forgotten() {
        let mut catalogue = Catalogue::default();
        enter(&mut catalogue, &id(10, "a"), 1, None);
        let key = StateKey {
            partition: 0,
            id: id(10, "a"),
            chunk: Some(0),
        };
        catalogue.enter(key, None, 0, 0);
        assert!(catalogue.snapshots.is_empty());
    }
}
