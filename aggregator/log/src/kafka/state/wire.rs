//! The records of the `state` topic: keys, chunks, manifests.
//!
//! ```text
//! key       [partition, group, writing (16 bytes), upto, nil | chunk]     nil: the manifest's
//! chunk     the bytes as the engine wrote them
//! manifest  1 {format, generation, random, partitions, rules, chunks, bytes, digest (32 bytes),
//!              first: offset of the first chunk in this topic, name}
//! no value  the key is deleted
//! ```
//!
//! Each writing has a random number of its own. So the chunks of two snapshots up to the same offset never mix,
//! whether one aggregator writes them for two logs, or again after a failure. A manifest of a later release may have
//! more fields ([`named`]). Does no I/O and knows no engine.

use serde::{Deserialize, Serialize};
use tollgate_shared::log_position::LogId;
use tollgate_shared::names::NAME_BYTES_MAX;
use tollgate_shared::wire::named::{self, Bytes};
use tollgate_shared::wire::{DecodeError, Reader, Writer};

/// The snapshot format that this build writes, and the greatest that it reads. A manifest may get more fields without
/// a new format.
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
    /// Distinguishes it from other snapshots up to the same offset.
    pub writing: u128,
}

/// The key of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateKey {
    /// The partition.
    pub partition: u32,
    /// The snapshot.
    pub id: SnapshotId,
    /// Which chunk the record is; `None` for the manifest.
    pub chunk: Option<u32>,
}

/// The record that marks a snapshot as whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The log that the snapshot belongs to.
    pub log: LogId,
    /// How many partitions that log had.
    pub partitions: u32,
    /// The greatest rule set of the build that wrote it.
    pub rules: u32,
    /// How many chunks there are.
    pub chunks: u32,
    /// How many bytes they have.
    pub bytes: u64,
    /// BLAKE3 of all chunks in order.
    pub digest: [u8; 32],
    /// The offset of its first chunk in this topic.
    pub first: u64,
    /// The writer's name, for people.
    pub name: Box<str>,
}

/// Why a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A later build wrote it.
    #[error("of a later build: {what} {found}, known up to {known}")]
    Newer {
        /// The format or the rule set.
        what: &'static str,
        /// What was found.
        found: u32,
        /// The greatest that this build knows.
        known: u32,
    },
    /// It cannot be decoded.
    #[error("{0}")]
    Broken(#[from] DecodeError),
}

impl StateKey {
    /// Encodes the key.
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

    /// Decodes a key.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not exactly one key.
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

/// The fields of a manifest.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "a manifest")]
struct ManifestFields<'a> {
    format: u32,
    generation: u32,
    random: u64,
    partitions: u32,
    rules: u32,
    chunks: u32,
    bytes: u64,
    digest: Bytes<32>,
    first: u64,
    #[serde(default)]
    name: &'a str,
}

/// The one field of a manifest that says whether this build can use its snapshot.
#[derive(Deserialize)]
struct FormatAlone {
    format: u32,
}

impl Manifest {
    /// Encodes the manifest.
    pub fn encode(&self) -> Vec<u8> {
        let fields = ManifestFields {
            format: FORMAT,
            generation: self.log.generation,
            random: self.log.random,
            partitions: self.partitions,
            rules: self.rules,
            chunks: self.chunks,
            bytes: self.bytes,
            digest: Bytes(self.digest),
            first: self.first,
            name: &self.name,
        };
        named::message(MANIFEST, &fields)
    }

    /// Decodes a manifest. `rules` is the greatest rule set that this build knows.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] if it is broken, or of a later build.
    pub fn decode(bytes: &[u8], rules: u32) -> Result<Self, Unreadable> {
        let fields: ManifestFields<'_> = match named::read_message(bytes, MANIFEST, "manifest") {
            Ok(fields) => fields,
            // A manifest of a later format may lack fields that this build requires.
            Err(fault) => {
                if let Ok(FormatAlone { format }) = named::read_message(bytes, MANIFEST, "") {
                    known("format", format, FORMAT)?;
                }
                return Err(fault.into());
            }
        };
        known("format", fields.format, FORMAT)?;
        known("rules", fields.rules, rules)?;
        Ok(Self {
            log: LogId {
                generation: fields.generation,
                random: fields.random,
            },
            partitions: fields.partitions,
            rules: fields.rules,
            chunks: fields.chunks,
            bytes: fields.bytes,
            digest: fields.digest.0,
            first: fields.first,
            name: fields.name[..fields.name.floor_char_boundary(NAME_BYTES_MAX)].into(),
        })
    }
}

/// Refuses a number that only a later build knows.
fn known(what: &'static str, found: u32, known: u32) -> Result<(), Unreadable> {
    match found <= known {
        true => Ok(()),
        false => Err(Unreadable::Newer { what, found, known }),
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

    fn bytes(hex: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn golden_manifests_are_read_and_written_for_ever() {
        let names = bytes(
            "01018aa6666f726d617401aa67656e65726174696f6e02a672616e646f6dcfffffffffffffffffaa706172746974696f6e7310a572756c657301a66368756e6b7303a56279746573cf0000010000000000a6646967657374c4200707070707070707070707070707070707070707070707070707070707070707a5666972737463a46e616d65a56167672d31",
        );
        assert_eq!(manifest().encode(), names);
        // Encoded before fields had names.
        let array = "01019a0102cfffffffffffffffff100103cf0000010000000000c420070707070707070707070707070707070707070707070707070707070707070763a56167672d31";
        for bytes in [names, bytes(array)] {
            assert_eq!(Manifest::decode(&bytes, 1), Ok(manifest()));
        }
    }

    #[test]
    fn fields_that_a_later_build_added_are_skipped() {
        #[derive(Serialize)]
        struct Later {
            compression: &'static str,
            format: u32,
            generation: u32,
            random: u64,
            partitions: u32,
            rules: u32,
            chunks: u32,
            bytes: u64,
            digest: Bytes<32>,
            first: u64,
        }
        let expected = Manifest {
            name: "".into(),
            ..manifest()
        };
        let later = Later {
            compression: "zstd",
            format: FORMAT,
            generation: expected.log.generation,
            random: expected.log.random,
            partitions: expected.partitions,
            rules: expected.rules,
            chunks: expected.chunks,
            bytes: expected.bytes,
            digest: Bytes(expected.digest),
            first: expected.first,
        };
        let later = named::message(MANIFEST, &later);
        assert_eq!(Manifest::decode(&later, 1), Ok(expected));
    }

    #[test]
    fn a_later_builds_snapshot_differs_from_a_broken_one() {
        let newer = |result| matches!(result, Err(Unreadable::Newer { .. }));
        assert!(newer(Manifest::decode(&manifest().encode(), 0)));
        #[derive(Serialize)]
        struct Later {
            format: u32,
            pieces: Vec<u32>,
        }
        let later = Later {
            format: FORMAT + 1,
            pieces: vec![1, 2],
        };
        let later = named::message(MANIFEST, &later);
        assert!(newer(Manifest::decode(&later, 1)));
        let whole = manifest().encode();
        for len in 0..whole.len() {
            let cut = Manifest::decode(&whole[..len], 1);
            assert!(matches!(cut, Err(Unreadable::Broken(_))), "{len}");
        }
        assert!(StateKey::decode(&whole).is_err(), "a manifest is no key");
    }
}
