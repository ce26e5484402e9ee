//! The `state` topic of a simulated fleet: the shipped code writes and reads snapshots record by record.
//!
//! Only Kafka is replaced. When a writer dies, or the topic stops accepting, each unacknowledged record is either
//! stored or not. What stays true: a manifest in the topic has all its chunks before it.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_limits::RULES;
use tollgate_log::Chunks;
use tollgate_log::kafka::state::catalogue::{Candidate, Catalogue, Gathered, Record};
use tollgate_log::kafka::state::wire::{Manifest, StateKey};
use tollgate_log::kafka::state::writing::{self, Medium, SnapshotSource, Written};
use tollgate_shared::log_position::LogId;

use super::random::Random;

/// The writer of a snapshot: its group, and its number of partitions.
#[derive(Clone, Copy, Debug)]
pub struct By {
    pub group: usize,
    pub partitions: u32,
}

/// All partitions of the topic.
#[derive(Debug, Default)]
pub struct StateTopic {
    partitions: BTreeMap<u32, Partition>,
    /// The number of snapshots whose writing began.
    written: u64,
}

#[derive(Debug, Default)]
struct Partition {
    next: u64,
    records: Vec<Stored>,
}

#[derive(Debug)]
struct Stored {
    offset: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The point at which a writer ends, or the topic stops accepting.
#[derive(Debug)]
pub struct Cut {
    /// After this many waits: for the chunks, for the manifest, and for the tombstones of others.
    pub after: u64,
    /// Draws which of the records under way are stored.
    pub random: Random,
}

/// A writer's client.
struct Client<'a> {
    partition: &'a mut Partition,
    under_way: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    cut: Option<Cut>,
}

/// The error of a topic that accepts nothing any more.
#[derive(Debug)]
struct IsCut;

impl Partition {
    /// Compacts at once: a key has one record, and none after its tombstone.
    fn append(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> u64 {
        let offset = self.next;
        self.next += 1;
        self.records.retain(|stored| stored.key != key);
        if let Some(value) = value {
            self.records.push(Stored { offset, key, value });
        }
        offset
    }

    fn read(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|stored| Record {
            offset: stored.offset,
            key: &stored.key,
            value: Some(&stored.value),
        })
    }

    /// What a reader finds.
    fn looked_at(&self, partition: u32) -> Catalogue {
        let mut seen = Catalogue::default();
        for record in self.read() {
            seen.enter_record(partition, &record, 0, RULES)
                .expect("of this partition");
        }
        seen
    }
}

impl Medium for Client<'_> {
    type Error = IsCut;

    fn begin(&mut self) {}

    fn send(&mut self, key: &StateKey, value: Option<&[u8]>) -> Result<(), IsCut> {
        self.under_way
            .push((key.encode(), value.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn acknowledged(&mut self, count: u64) -> Result<(u64, u64), IsCut> {
        let under_way = std::mem::take(&mut self.under_way);
        match &mut self.cut {
            Some(Cut { after: 0, random }) => {
                for (key, value) in under_way {
                    // Tombstones are stored in order, and stop at the first that is not accepted: a snapshot whose
                    // chunks are dropped has lost its manifest before.
                    let is_drop = value.is_none();
                    match random.one_in(2) {
                        true => drop(self.partition.append(key, value)),
                        false if is_drop => break,
                        false => {}
                    }
                }
                return Err(IsCut);
            }
            Some(cut) => cut.after -= 1,
            None => {}
        }
        let mut last = 0;
        for (key, value) in under_way {
            last = self.partition.append(key, value);
        }
        Ok(((last + 1).saturating_sub(count), last))
    }
}

impl StateTopic {
    /// Writes a snapshot. Returns whether it is whole.
    ///
    /// With `cut`, its writer dies before some record is acknowledged, or the topic stops accepting; then old
    /// snapshots may stay, and the new one may still be whole.
    pub fn write(
        &mut self,
        by: By,
        partition: u32,
        upto: u64,
        chunks: Chunks,
        cut: Option<Cut>,
    ) -> bool {
        self.written += 1;
        let source = SnapshotSource {
            group: by.group.to_string().into(),
            // Random, and so in no order.
            writing: Random::of(self.written, "writing", 0).draw().into(),
            partitions: by.partitions,
            rules: RULES,
        };
        let written = Written {
            partition,
            upto,
            log: LogId::default(),
            name: "simulated",
        };
        let mut client = Client {
            partition: self.partitions.entry(partition).or_default(),
            under_way: Vec::new(),
            cut,
        };
        let hands_out = |take: &mut dyn FnMut(Vec<u8>)| chunks.into_iter().for_each(take);
        let Ok(whole) = writing::write(&mut client, &source, &written, hands_out) else {
            return false;
        };
        let mut seen = client.partition.looked_at(partition);
        let outlived = seen.take_over(partition, whole, 0, 0);
        // Old snapshots that are not dropped take room, and are dropped with the next one.
        let _ = writing::drop_all(&mut client, &outlived);
        true
    }

    /// The end of the newest whole snapshot of each partition.
    pub fn newest(&self) -> impl Iterator<Item = (u32, u64)> {
        self.partitions.iter().filter_map(|(partition, of)| {
            let (whole, _) = of.looked_at(*partition).candidates();
            whole.first().map(|newest| (*partition, newest.id.upto))
        })
    }

    /// The snapshots of a partition that look whole, newest first.
    pub fn candidates(&self, partition: u32) -> Vec<Candidate> {
        let of = self.partitions.get(&partition);
        of.map(|of| of.looked_at(partition).candidates().0)
            .unwrap_or_default()
    }

    fn read(&self, partition: u32) -> impl Iterator<Item = Record<'_>> {
        let of = self.partitions.get(&partition);
        of.into_iter().flat_map(Partition::read)
    }

    /// The chunks of a snapshot.
    pub fn chunks(&self, partition: u32, candidate: &Candidate) -> Result<Chunks, String> {
        let mut found = Gathered::default();
        let records = self.read(partition);
        for record in records.skip_while(|record| record.offset < candidate.manifest.first) {
            if !found.enter(candidate, &record) {
                break;
            }
        }
        found.whole(&candidate.manifest)
    }

    /// A manifest in a partition without all its chunks before it.
    pub fn manifest_alone(&self, partition: u32) -> Option<String> {
        let mut seen = BTreeSet::new();
        for record in self.read(partition) {
            let key = StateKey::decode(record.key).ok()?;
            let Some(chunk) = key.chunk else {
                let chunks = Manifest::decode(record.value.unwrap_or_default(), RULES)
                    .ok()?
                    .chunks;
                let missing = (0..chunks).find(|chunk| !seen.contains(&(key.id.clone(), *chunk)));
                match missing {
                    Some(chunk) => {
                        let upto = key.id.upto;
                        return Some(format!(
                            "partition {partition}: the manifest of the snapshot up to {upto} stands at {}, \
                             chunk {chunk} of its {chunks} does not stand before it",
                            record.offset
                        ));
                    }
                    None => continue,
                }
            };
            seen.insert((key.id, chunk));
        }
        None
    }
}
