//! The records of the `state` topic: keys, chunks, manifests.
//!
//! ```text
//! key       [partition, group, writing (16 bytes), upto, nil | chunk]     nil: the manifest's
//! chunk     the bytes as the engine wrote them
//! manifest  1 [format, generation, random, partitions, rules, chunks, bytes, digest (32 bytes),
//!              first chunk's offset in this topic, name]
//! no value  it is gone
//! ```
//!
//! Each writing has a number of its own, so that who writes the snapshot of an offset a second time, be it the
//! same aggregator of another log or after a failure, never mixes its chunks with those of the first. Knows no
//! Kafka and no engine.

use tollgate_shared::names::NAME_BYTES_MAX;
use tollgate_shared::place::LogId;
use tollgate_shared::wire::{DecodeError, Reader, Writer};

/// The format of manifests that this build writes, and the greatest that it reads.
pub const FORMAT: u32 = 1;

/// The number of a manifest's kind.
const MANIFEST: u8 = 1;

/// The number of a key's kind.
const KEY: u8 = 2;

/// Names one snapshot of a partition. Ordered by how far it reaches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId {
    /// The offset of the last record in it.
    pub upto: u64,
    /// The group that its writer belonged to.
    pub group: Box<str>,
    /// Tells it from what else was written up to there.
    pub writing: u128,
}

/// The key of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateKey {
    /// The partition.
    pub partition: u32,
    /// The snapshot.
    pub id: SnapshotId,
    /// Which chunk it is; none: the manifest.
    pub chunk: Option<u32>,
}

/// What says that a snapshot is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The log that it is of.
    pub log: LogId,
    /// How many partitions that had.
    pub partitions: u32,
    /// The greatest rule set of the build that wrote it.
    pub rules: u32,
    /// How many chunks there are.
    pub chunks: u32,
    /// How many bytes they have.
    pub bytes: u64,
    /// BLAKE3 of all chunks in order.
    pub digest: [u8; 32],
    /// Where its first chunk stands in this topic.
    pub first: u64,
    /// Who wrote it, for people.
    pub name: Box<str>,
}

/// Why a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A later build wrote it.
    #[error("of a later build: {what} {found}, known up to {known}")]
    Newer {
        /// Format or rules.
        what: &'static str,
        /// What was found.
        found: u32,
        /// The greatest that this build knows.
        known: u32,
    },
    /// It is broken.
    #[error("{0}")]
    Broken(#[from] DecodeError),
}

impl StateKey {
    /// As it stands in the topic.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.begin(KEY);
        writer.array(5);
        writer.u64(u64::from(self.partition));
        writer.text(&self.id.group);
        writer.bytes(&self.id.writing.to_be_bytes());
        writer.u64(self.id.upto);
        match self.chunk {
            Some(chunk) => writer.u64(u64::from(chunk)),
            None => writer.nil(),
        }
        writer.as_slice().to_vec()
    }

    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_message(bytes)?;
        expect_kind(&mut reader, KEY)?;
        reader.fixed_array("key", 5, "5")?;
        let partition = reader.u32("partition")?;
        let group = reader.text("group", 1, NAME_BYTES_MAX)?.into();
        let writing = u128::from_be_bytes(reader.array_of_bytes("writing")?);
        let upto = reader.u64("upto")?;
        let chunk = if reader.nil() {
            None
        } else {
            Some(reader.u32("chunk")?)
        };
        reader.end()?;
        Ok(Self {
            partition,
            id: SnapshotId {
                upto,
                group,
                writing,
            },
            chunk,
        })
    }
}

impl Manifest {
    /// As it stands in the topic.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.begin(MANIFEST);
        writer.array(10);
        writer.u64(u64::from(FORMAT));
        writer.u64(u64::from(self.log.generation));
        writer.u64(self.log.random);
        writer.u64(u64::from(self.partitions));
        writer.u64(u64::from(self.rules));
        writer.u64(u64::from(self.chunks));
        writer.u64(self.bytes);
        writer.bytes(&self.digest);
        writer.u64(self.first);
        writer.text(&self.name);
        writer.as_slice().to_vec()
    }

    /// Decodes one that a build wrote which knew no greater rule set than `rules`.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] where it is broken, or of a later build.
    pub fn decode(bytes: &[u8], rules: u32) -> Result<Self, Unreadable> {
        let mut reader = Reader::of_message(bytes)?;
        expect_kind(&mut reader, MANIFEST)?;
        // A later format may have more fields, so that its number is looked at before their count.
        let fields = reader.array("manifest")?;
        let found = reader.u32("format")?;
        if FORMAT < found {
            return Err(Unreadable::Newer {
                what: "format",
                found,
                known: FORMAT,
            });
        }
        if fields != 10 {
            let expected = "10 fields";
            let fault = tollgate_shared::wire::FieldFault::Range { expected };
            return Err(reader.error("manifest", fault).into());
        }
        let manifest = Self {
            log: LogId {
                generation: reader.u32("generation")?,
                random: reader.u64("random")?,
            },
            partitions: reader.u32("partitions")?,
            rules: reader.u32("rules")?,
            chunks: reader.u32("chunks")?,
            bytes: reader.u64("bytes")?,
            digest: reader.array_of_bytes("digest")?,
            first: reader.u64("first")?,
            name: reader.text("name", 0, NAME_BYTES_MAX)?.into(),
        };
        reader.end()?;
        if rules < manifest.rules {
            return Err(Unreadable::Newer {
                what: "rules",
                found: manifest.rules,
                known: rules,
            });
        }
        Ok(manifest)
    }
}

fn expect_kind(reader: &mut Reader<'_>, expected: u8) -> Result<(), DecodeError> {
    let before = *reader;
    let found = reader.byte("kind")?;
    if found == expected {
        Ok(())
    } else {
        Err(before.error("kind", tollgate_shared::wire::FieldFault::Kind { found }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            log: LogId {
                generation: 2,
                random: u64::MAX,
            },
            partitions: 16,
            rules: 1,
            chunks: 3,
            bytes: 1 << 40,
            digest: [7; 32],
            first: 99,
            name: "agg-1".into(),
        }
    }

    #[test]
    fn keys_and_manifests_are_read_as_they_were_written() {
        for chunk in [None, Some(0), Some(70_000)] {
            let key = StateKey {
                partition: 3,
                id: SnapshotId {
                    upto: 18_250,
                    group: "a".into(),
                    writing: u128::MAX - 1,
                },
                chunk,
            };
            assert_eq!(StateKey::decode(&key.encode()), Ok(key));
        }
        assert_eq!(Manifest::decode(&manifest().encode(), 1), Ok(manifest()));
    }

    #[test]
    fn what_a_later_build_wrote_is_told_from_what_is_broken() {
        let newer = |result| matches!(result, Err(Unreadable::Newer { .. }));
        assert!(newer(Manifest::decode(&manifest().encode(), 0)));
        let mut writer = Writer::new();
        writer.begin(MANIFEST);
        writer.array(11);
        (2..13).for_each(|field| writer.u64(field));
        assert!(newer(Manifest::decode(writer.as_slice(), 1)));
        let whole = manifest().encode();
        for len in 0..whole.len() {
            let cut = Manifest::decode(&whole[..len], 1);
            assert!(matches!(cut, Err(Unreadable::Broken(_))), "{len}");
        }
        assert!(StateKey::decode(&whole).is_err(), "a manifest is no key");
    }
}
