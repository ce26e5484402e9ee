//! The `state` topic of a simulated fleet: snapshots are written and read record by record, by the shipped code.
//!
//! Kafka alone is replaced. Of what was sent and not acknowledged when a writer dies, or when the topic takes nothing,
//! each record stands or does not. What stays true: a manifest in the topic has all its chunks before it.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_limits::RULES;
use tollgate_log::Chunks;
use tollgate_log::kafka::state::catalogue::{Candidate, Catalogue, Gathered, Record};
use tollgate_log::kafka::state::wire::{Manifest, StateKey};
use tollgate_log::kafka::state::writing::{self, Medium, SnapshotSource, Written};
use tollgate_shared::place::LogId;

use super::random::Random;

/// Who writes a snapshot, and of what.
#[derive(Clone, Copy, Debug)]
pub struct By {
    pub group: usize,
    pub partitions: u32,
}

/// All partitions of the topic.
#[derive(Debug, Default)]
pub struct StateTopic {
    partitions: BTreeMap<u32, Partition>,
    /// How many snapshots were begun to be written.
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

/// Where a writer comes to its end, or the topic takes no more.
#[derive(Debug)]
pub struct Cut {
    /// After it has waited so often: for the chunks, for the manifest, and for what drops others.
    pub after: u64,
    /// Draws which of the records under way stand.
    pub random: Random,
}

/// A writer's client.
struct Client<'a> {
    partition: &'a mut Partition,
    under_way: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    cut: Option<Cut>,
}

/// Nothing is taken any more.
#[derive(Debug)]
struct IsCut;

impl Partition {
    /// Compacted at once: a key has one record, and what was dropped none.
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

    /// What a reader sees.
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
                    // What drops comes in order, and what was not taken ends it: what loses its chunks has lost
                    // its manifest.
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
    /// Writes a snapshot; whether it is whole.
    ///
    /// With `cut`, its writer dies before something of it is acknowledged, or the topic takes no more; what was to be
    /// dropped may stay, and the snapshot is whole all the same.
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
            // Of no order, as a random one.
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
        // What is not dropped takes room, and is dropped with the next.
        let _ = writing::drop_all(&mut client, &outlived);
        true
    }

    /// Where the newest whole one of each partition ends.
    pub fn newest(&self) -> impl Iterator<Item = (u32, u64)> {
        self.partitions.iter().filter_map(|(partition, of)| {
            let (whole, _) = of.looked_at(*partition).candidates();
            whole.first().map(|newest| (*partition, newest.id.upto))
        })
    }

    /// Those of a partition that look whole, newest first.
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

    /// A manifest that stands in a partition without all its chunks before it.
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
