//! Batches of hits as an agent's courier writes them: some 500 entries, oldest first, none merged.
//!
//! ```text
//! offered   a number of hits per second of log time, by Zipf's law
//! followed  what agents let through that follow denials at once: of each pair what its limit allows
//!           in each second, as in the log of a working fleet
//! ```
//!
//! Written before any measurement. What stays true: append times rise, and no stamp is later than its
//! append.

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Refused, Sender, write_hits};

use super::names::NameBuffer;
use super::zipf::Draws;

/// Entries of a batch.
pub const ENTRIES: usize = 500;

/// The resource that all hits are on.
pub const RESOURCE: &str = "api.search";

/// The log begins at this instant: any value but the epoch will do.
pub const BEGIN_US: u64 = 1_700_000_000_000_000;

/// The time from a batch's last hit to its append.
const TRANSIT_US: u64 = 1_000;

/// A record of the log and its append time.
#[derive(Clone, Debug)]
pub struct Appended {
    /// The record.
    pub bytes: Vec<u8>,
    /// Its append time.
    pub at: Timestamp,
    /// How many entries it has.
    pub entries: u32,
}

/// One agent that writes batches into one partition.
#[derive(Debug, Default)]
pub struct Courier {
    sequence: u64,
    names: NameBuffer,
    writer: Writer,
}

impl Courier {
    /// The next batch: a hit of `copies` on each of these pairs, evenly over the time from `from_us` to
    /// `upto_us`, after which the batch is sent.
    pub fn batch(&mut self, pairs: &[u32], copies: u32, from_us: u64, upto_us: u64) -> Appended {
        self.sequence += 1;
        self.names.fill(pairs);
        let sent = Timestamp::from_micros(upto_us);
        let sender = Sender {
            agent: "bench-agent",
            epoch: 7,
            sequence: self.sequence,
            sent,
        };
        let (names, len) = (&self.names, pairs.len().max(1) as u64);
        let hits = (0..pairs.len()).map(|index| {
            Hit::one(
                0,
                names.at(index),
                Timestamp::from_micros(from_us + (upto_us - from_us) * index as u64 / len),
                copies,
            )
        });
        let refused = std::iter::empty::<Refused<'_>>();
        write_hits(&mut self.writer, &sender, &[RESOURCE], hits, refused);
        Appended {
            bytes: self.writer.as_slice().to_vec(),
            at: Timestamp::from_micros(upto_us + TRANSIT_US),
            entries: pairs.len() as u32,
        }
    }
}

/// Hits offered at a steady rate, and which of them reach the log.
#[derive(Debug)]
pub struct Offered {
    draws: Draws,
    hits_per_second: u64,
    /// How many hits of a pair pass per second of log time; `None`: all that are offered.
    follows: Option<u16>,
    /// By pair, the second of its last hit and the number of hits in that second.
    let_through: Vec<(u32, u16)>,
    now_ns: u64,
}

impl Offered {
    /// Offers hits on `pairs` pairs from `from_us` on.
    pub fn new(
        pairs: u32,
        seed: u64,
        hits_per_second: u64,
        follows: Option<u16>,
        from_us: u64,
    ) -> Self {
        let known = if follows.is_some() { pairs as usize } else { 0 };
        Self {
            draws: Draws::new(pairs, seed),
            hits_per_second,
            follows,
            let_through: vec![(0, 0); known],
            now_ns: from_us * 1_000,
        }
    }

    /// The pairs of the next batch, and the times of their first and last hit.
    pub fn next_batch(&mut self) -> (Vec<u32>, u64, u64) {
        let from_us = self.now_ns / 1_000;
        let every_ns = 1_000_000_000 / self.hits_per_second.max(1);
        let mut pairs = Vec::with_capacity(ENTRIES);
        while pairs.len() < ENTRIES {
            self.now_ns += every_ns;
            let pair = self.draws.pair();
            if self.lets_through(pair) {
                pairs.push(pair);
            }
        }
        (pairs, from_us, self.now_ns / 1_000)
    }

    fn lets_through(&mut self, pair: u32) -> bool {
        let Some(limit) = self.follows else {
            return true;
        };
        let second = (self.now_ns / 1_000_000_000) as u32;
        let seen = &mut self.let_through[pair as usize];
        if seen.0 != second {
            *seen = (second, 0);
        }
        let has_room = seen.1 < limit;
        seen.1 += u16::from(has_room);
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use tollgate_shared::wire::record::Record;

    #[test]
    fn a_batch_reads_back_equal() {
        let mut courier = Courier::default();
        let batch = courier.batch(&[3, 5], 2, 1_000_000, 1_000_100);
        let Ok(Record::Hits(read)) = Record::decode(&batch.bytes) else {
            panic!("a hits record");
        };
        let hits: Vec<(String, u64, u32)> = read
            .hits()
            .iter()
            .map(|hit| (hit.domain.to_owned(), hit.at.as_micros(), hit.copies))
            .collect();
        let expected = [("user:000000003", 1_000_000), ("user:000000005", 1_000_050)];
        assert_eq!(
            hits,
            expected.map(|(domain, at)| (domain.to_owned(), at, 2))
        );
        assert_eq!(batch.at.as_micros(), 1_001_100);
    }

    #[test]
    fn followed_denials_let_through_the_limit_each_second() {
        let mut offered = Offered::new(3, 1, 1_000, Some(100), BEGIN_US);
        let mut counts: HashMap<u32, u32> = HashMap::new();
        loop {
            let (pairs, _, upto) = offered.next_batch();
            if BEGIN_US + 3_000_000 <= upto {
                break;
            }
            for pair in pairs {
                *counts.entry(pair).or_default() += 1;
            }
        }
        assert!(counts.values().all(|count| *count <= 300), "{counts:?}");
        assert!(counts.values().any(|count| 199 < *count), "{counts:?}");
    }
}
