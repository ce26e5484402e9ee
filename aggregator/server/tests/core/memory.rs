//! A log in memory, the fates of appends to it, and seeded random numbers.

use std::collections::BTreeMap;

use tollgate_log::{Delivered, Stream};

use crate::world::PARTITIONS;

/// The fate of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The log takes it and acknowledges it.
    Taken,
    /// The log does not take it and answers so.
    Refused,
    /// The log takes it but answers that it did not: the acknowledgement was lost.
    Denied,
}

/// Decides the fate by stream and record.
pub type Fates = Box<dyn FnMut(Stream, &[u8]) -> Fate>;

/// The log's records. It outlives a core.
#[derive(Clone, Default)]
pub struct MemoryLog {
    pub streams: BTreeMap<(Stream, u32), Vec<Delivered>>,
}

impl MemoryLog {
    /// The kinds of the records of a partition, in order.
    pub fn kinds(&self, partition: u32) -> Vec<u8> {
        let records = self.streams.get(&(Stream::Hits, partition));
        records
            .into_iter()
            .flatten()
            .map(|record| record.bytes[1])
            .collect()
    }

    pub fn count(&self, kind: u8) -> usize {
        (0..PARTITIONS)
            .flat_map(|p| self.kinds(p))
            .filter(|k| *k == kind)
            .count()
    }
}

/// How far a stream has been delivered.
pub struct Following {
    pub next: usize,
    pub said_begun: bool,
    pub said_caught_up: bool,
}

/// A small random number generator: splitmix64.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
