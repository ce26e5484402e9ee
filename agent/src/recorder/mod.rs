//! The recorder: it takes events from the calling threads to the flusher.
//!
//! ```text
//! thread 1 ── ring ──┐
//! thread 2 ── ring ──┼──> flusher
//! thread 3 ── ring ──┘
//! ```
//!
//! Each thread has a ring for each agent, made at the thread's first call: one writer, one reader, no lock, and
//! nothing that two calling threads share. A full ring drops the newest event, and counts it. The recorder wakes
//! nobody: the flusher visits.
//!
//! Knows nothing of batches. What stays true: below its bound a ring loses nothing and keeps order; events that are
//! never drained count as dropped.

mod event;

use std::cell::RefCell;
use std::sync::PoisonError;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::ring::{Consumer, Producer, RingBuffer};
use crate::sync::{Arc, Mutex, MutexGuard, per_thread};

use event::{EventReader, EventWords, WORDS_MAX};
pub(crate) use event::{Happened, RecorderEvent};

/// Distinguishes the agents of one process.
static AGENTS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

per_thread! {
    /// This thread's rings: one for each agent that it called, seldom more than one.
    static RINGS: RefCell<Vec<Ring>> = RefCell::new(Vec::new());
}

/// The writing end of one thread's ring.
struct Ring {
    agent: u64,
    producer: Producer<u64>,
    counts: Arc<RingCounts>,
    words: EventWords,
}

/// One ring's counters. Only the ring's own thread writes them, so that a plain load and store will do. They are on
/// cache lines of their own, since two threads' counters beside each other cost both half their speed.
#[derive(Debug, Default)]
#[repr(align(128))]
struct RingCounts {
    hits: AtomicU64,
    hits_dropped: AtomicU64,
    refused: AtomicU64,
    refused_dropped: AtomicU64,
}

/// The recorder's counters, in calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecorderCounts {
    pub(crate) hits: u64,
    pub(crate) hits_dropped: u64,
    pub(crate) refused: u64,
    pub(crate) refused_dropped: u64,
}

/// The recorder of one agent.
#[derive(Debug)]
pub(crate) struct Recorder {
    agent: u64,
    ring_words: usize,
    rings_max: usize,
    registry: Mutex<Registry>,
    /// Hits for which there was no ring.
    hits_ringless: AtomicU64,
    refused_ringless: AtomicU64,
}

#[derive(Debug, Default)]
struct Registry {
    fresh: Vec<(Consumer<u64>, Arc<RingCounts>)>,
    counts: Vec<Arc<RingCounts>>,
    /// The counts of rings whose threads have ended.
    retired: RecorderCounts,
    /// Hits and refused calls that were ever drained, once draining has ended.
    ended: Option<(u64, u64)>,
}

impl Recorder {
    /// A recorder whose rings take `ring_bytes` each; threads beyond `rings_max` record nothing.
    pub(crate) fn new(ring_bytes: usize, rings_max: usize) -> Self {
        Self {
            agent: AGENTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            ring_words: (ring_bytes / 8).max(2 * WORDS_MAX),
            rings_max,
            registry: Mutex::default(),
            hits_ringless: AtomicU64::new(0),
            refused_ringless: AtomicU64::new(0),
        }
    }

    /// How many events a ring takes at least, whatever their names are.
    pub(crate) fn room(&self) -> usize {
        self.ring_words / WORDS_MAX
    }

    /// Records an event, or drops and counts it.
    #[inline]
    pub(crate) fn record(&self, event: &RecorderEvent<'_>) {
        let recorded = RINGS.try_with(|rings| {
            // Nothing here calls out while the borrow lasts, so the borrow always succeeds.
            let Ok(mut rings) = rings.try_borrow_mut() else {
                return false;
            };
            // A thread that calls two agents in turn pays one comparison more for the second.
            if let Some(ring) = rings.iter_mut().find(|ring| ring.agent == self.agent) {
                ring.record(event);
                return true;
            }
            self.record_first(&mut rings, event)
        });
        // A thread that is ending has no rings any more.
        if !matches!(recorded, Ok(true)) {
            self.count_ringless(event);
        }
    }

    #[cold]
    fn count_ringless(&self, event: &RecorderEvent<'_>) {
        let counter = match event.happened {
            Happened::Refused { .. } => &self.refused_ringless,
            _ => &self.hits_ringless,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the first event of this thread for this agent, in a new ring.
    #[cold]
    fn record_first(&self, rings: &mut Vec<Ring>, event: &RecorderEvent<'_>) -> bool {
        // Remove rings of agents that are gone.
        rings.retain(|ring| !ring.producer.is_abandoned());
        let Some(mut ring) = self.new_ring() else {
            return false;
        };
        ring.record(event);
        rings.push(ring);
        true
    }

    fn new_ring(&self) -> Option<Ring> {
        let mut registry = self.registry();
        if registry.ended.is_some() || self.rings_max <= registry.counts.len() {
            return None;
        }
        let (producer, consumer) = RingBuffer::new(self.ring_words);
        let counts = Arc::new(RingCounts::default());
        registry.fresh.push((consumer, Arc::clone(&counts)));
        registry.counts.push(Arc::clone(&counts));
        Some(Ring {
            agent: self.agent,
            producer,
            counts,
            words: EventWords::new(),
        })
    }

    /// The counts so far.
    pub(crate) fn recorded(&self) -> RecorderCounts {
        let registry = self.registry();
        let mut sum = registry.retired;
        registry.counts.iter().for_each(|counts| sum.add(counts));
        sum.hits_dropped += self.hits_ringless.load(Ordering::Relaxed);
        sum.refused_dropped += self.refused_ringless.load(Ordering::Relaxed);
        if let Some((hits, refused)) = registry.ended {
            // Events written after the last drain stay in their ring for ever. A check for the end would cost every
            // call something; the difference costs calls nothing.
            let left = sum.hits.saturating_sub(hits);
            (sum.hits, sum.hits_dropped) = (sum.hits - left, sum.hits_dropped + left);
            let left = sum.refused.saturating_sub(refused);
            (sum.refused, sum.refused_dropped) = (sum.refused - left, sum.refused_dropped + left);
        }
        sum
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    #[inline]
    fn record(&mut self, event: &RecorderEvent<'_>) {
        self.words.write(event);
        let words = self.words.as_slice();
        // Word by word: an event has few words, and a copy of a length that the compiler does not know takes longer.
        let room = self.producer.write_chunk_uninit(words.len());
        let taken =
            room.is_ok_and(|room| room.fill_from_iter(words.iter().copied()) == words.len());
        let counter = match (event.happened, taken) {
            (Happened::Refused { .. }, true) => &self.counts.refused,
            (Happened::Refused { .. }, false) => &self.counts.refused_dropped,
            (_, true) => &self.counts.hits,
            (_, false) => &self.counts.hits_dropped,
        };
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl RecorderCounts {
    fn add(&mut self, counts: &RingCounts) {
        self.hits += counts.hits.load(Ordering::Relaxed);
        self.hits_dropped += counts.hits_dropped.load(Ordering::Relaxed);
        self.refused += counts.refused.load(Ordering::Relaxed);
        self.refused_dropped += counts.refused_dropped.load(Ordering::Relaxed);
    }
}

/// The reading end of all rings of an agent.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    rings: Vec<(Consumer<u64>, Arc<RingCounts>)>,
    words: Vec<u64>,
    room: Vec<u8>,
    /// The greatest number of words in a ring at the last drain.
    words_most: usize,
    hits: u64,
    refused: u64,
}

impl Drain {
    /// Passes on everything that was recorded so far. Returns how many events there were.
    pub(crate) fn drain(
        &mut self,
        recorder: &Recorder,
        mut take: impl FnMut(RecorderEvent<'_>),
    ) -> usize {
        self.rings.append(&mut recorder.registry().fresh);
        let mut events = 0;
        let mut ended = false;
        self.words_most = 0;
        for (ring, _) in &mut self.rings {
            // Read before the ring is drained: what a thread wrote before it ended is read below.
            ended |= ring.is_abandoned();
            let Ok(chunk) = ring.read_chunk(ring.slots()) else {
                continue;
            };
            let (first, second) = chunk.as_slices();
            self.words.clear();
            self.words.extend_from_slice(first);
            self.words.extend_from_slice(second);
            chunk.commit_all();
            self.words_most = self.words_most.max(self.words.len());
            let mut reader = EventReader::new(&self.words);
            while let Some(event) = reader.next(&mut self.room) {
                match event.happened {
                    Happened::Refused { .. } => self.refused += 1,
                    _ => self.hits += 1,
                }
                take(event);
                events += 1;
            }
        }
        if ended {
            self.retire(recorder);
        }
        events
    }

    /// How full the fullest ring was at the last drain, in thousandths.
    pub(crate) fn filled(&self, recorder: &Recorder) -> usize {
        1_000 * self.words_most / recorder.ring_words
    }

    /// Ends draining: events that were not drained count as dropped from here on.
    pub(crate) fn end(self, recorder: &Recorder) {
        recorder.registry().ended = Some((self.hits, self.refused));
    }

    fn retire(&mut self, recorder: &Recorder) {
        let mut registry = recorder.registry();
        self.rings.retain(|(ring, counts)| {
            let keep = !ring.is_abandoned() || !ring.is_empty();
            if !keep {
                registry.counts.retain(|other| !Arc::ptr_eq(other, counts));
                registry.retired.add(counts);
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceId;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::statement::Cause;

    fn hit(domain: &str, at: u64) -> RecorderEvent<'_> {
        RecorderEvent {
            resource: ResourceId(0),
            domain,
            at: Timestamp::from_micros(at),
            happened: Happened::Hit {
                copies: 1,
                min: None,
                unguarded: false,
            },
        }
    }

    fn drained(drain: &mut Drain, recorder: &Recorder) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        drain.drain(recorder, |event| {
            all.push((event.domain.to_owned(), event.at.as_micros()))
        });
        all
    }

    #[test]
    fn below_its_bound_a_ring_loses_nothing_and_keeps_order() {
        let recorder = Recorder::new(4_096, 4);
        let mut drain = Drain::default();
        let mut all = Vec::new();
        // Many times around the ring, with names of every length.
        for n in 0..5_000u64 {
            let domain = "d".repeat(n as usize % 40);
            recorder.record(&hit(&domain, n));
            if n % 7 == 0 {
                all.append(&mut drained(&mut drain, &recorder));
            }
        }
        all.append(&mut drained(&mut drain, &recorder));
        let expected: Vec<_> = (0..5_000u64)
            .map(|n| ("d".repeat(n as usize % 40), n))
            .collect();
        assert_eq!(all, expected);
        assert_eq!(
            recorder.recorded(),
            RecorderCounts {
                hits: 5_000,
                ..RecorderCounts::default()
            }
        );
    }

    #[test]
    fn a_full_ring_drops_the_newest_and_counts_them() {
        let recorder = Recorder::new(4_096, 4);
        for n in 0..10_000 {
            recorder.record(&hit("a", n));
        }
        let kept = drained(&mut Drain::default(), &recorder);
        let counted = recorder.recorded();
        assert_eq!(counted.hits, kept.len() as u64);
        assert_eq!(counted.hits + counted.hits_dropped, 10_000);
        assert!(
            kept.iter().map(|(_, at)| *at).eq(0..kept.len() as u64),
            "the oldest are kept"
        );
        assert!(100 < kept.len());
    }

    #[test]
    fn threads_that_end_lose_no_call_and_free_their_room() {
        let recorder = Arc::new(Recorder::new(4_096, 2));
        let mut drain = Drain::default();
        for round in 0..5u64 {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let recorder = Arc::clone(&recorder);
                    std::thread::spawn(move || recorder.record(&hit("a", round)))
                })
                .collect();
            threads
                .into_iter()
                .for_each(|thread| thread.join().expect("recorded"));
            assert_eq!(
                drained(&mut drain, &recorder),
                vec![("a".to_owned(), round); 2]
            );
        }
        assert_eq!(recorder.recorded().hits, 10);
        assert!(drain.rings.is_empty());
    }

    #[test]
    fn beyond_the_last_ring_calls_are_counted_as_dropped() {
        let recorder = Recorder::new(4_096, 0);
        recorder.record(&hit("a", 1));
        let refused = Happened::Refused {
            copies: 1,
            cause: Cause::Hard,
            position: None,
        };
        recorder.record(&RecorderEvent {
            happened: refused,
            ..hit("a", 1)
        });
        let expected = RecorderCounts {
            hits_dropped: 1,
            refused_dropped: 1,
            ..RecorderCounts::default()
        };
        assert_eq!(recorder.recorded(), expected);
    }

    #[test]
    fn calls_that_are_never_flushed_count_as_dropped() {
        let recorder = Recorder::new(4_096, 4);
        let mut drain = Drain::default();
        recorder.record(&hit("a", 1));
        assert_eq!(drained(&mut drain, &recorder).len(), 1);
        recorder.record(&hit("a", 2));
        drain.end(&recorder);
        recorder.record(&hit("a", 3));
        let expected = RecorderCounts {
            hits: 1,
            hits_dropped: 2,
            ..RecorderCounts::default()
        };
        assert_eq!(recorder.recorded(), expected);
        // A thread that calls only now gets no ring.
        std::thread::scope(|scope| {
            scope.spawn(|| recorder.record(&hit("a", 4)));
        });
        assert_eq!(recorder.recorded().hits_dropped, 3);
        assert_eq!(recorder.registry().counts.len(), 1);
    }

    #[test]
    fn two_agents_on_one_thread_have_a_ring_each() {
        let (one, other) = (Recorder::new(4_096, 4), Recorder::new(4_096, 4));
        for n in 0..3 {
            one.record(&hit("a", n));
            other.record(&hit("b", n));
        }
        assert_eq!(drained(&mut Drain::default(), &one).len(), 3);
        assert_eq!(drained(&mut Drain::default(), &other).len(), 3);
    }
}
