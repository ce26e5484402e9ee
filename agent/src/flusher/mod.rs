//! The flusher: the one thread that updates the cached clock, drains the recorder, and passes on notices from the
//! hold table.
//!
//! The flusher runs as often as [`pace`] says: every 100 µs (up to 200, because sleeps take longer) after urgent calls,
//! every millisecond while many others are made. With few calls it rests between visits, and an urgent one wakes it; see
//! [`crate::clock`]. It has a thread of its own and is no task, because nothing may delay it: while it is awake, every call
//! reads the clock that it updates.
//!
//! What stays true: it never waits for the network; what the network thread does not accept waits in the packer,
//! which is bounded.

mod ending;
mod pace;
mod packer;
mod partition_queue;

use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

pub(crate) use ending::Ending;
pub(crate) use packer::Packer;

use crate::batch::calls::CallBatch;
use crate::clock::Mono;
use crate::holds::HoldNotice;
use crate::recorder::Drain;
use crate::shared::Shared;
use crate::stats::Counters;
use pace::{Pace, Pause, Visit};

/// What the flusher's thread does on each visit.
#[derive(Debug)]
pub(crate) struct Flusher {
    drain: Drain,
    packer: Packer,
    /// The instant of the last visit.
    came: Mono,
}

/// The result of one visit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flushed {
    /// Events that were drained.
    pub(crate) events: usize,
    /// How full the fullest buffer was, in thousandths.
    filled: usize,
    /// Whether nothing that is due is left.
    pub(crate) all_gone: bool,
    /// Whether nothing is left at all.
    is_empty: bool,
    /// Whether something should go, and could not.
    is_held_up: bool,
    at: Mono,
}

impl Flusher {
    pub(crate) fn new(packer: Packer) -> Self {
        Self {
            drain: Drain::default(),
            packer,
            came: Mono::ZERO,
        }
    }

    /// Updates the cached clock, drains the recorder and hands over what is due, until `hand_over` returns a batch;
    /// `last` hands over everything.
    pub(crate) fn come_by(
        &mut self,
        shared: &Shared,
        last: bool,
        hand_over: impl FnMut(CallBatch) -> Option<CallBatch>,
    ) -> Flushed {
        let (now, wall) = shared.clock.refresh();
        let packer = &mut self.packer;
        let is_killed = shared.kill_switch.load(Ordering::Relaxed);
        let since = std::mem::replace(&mut self.came, now);
        packer.guard_by(shared.liveness.guard.guards(), is_killed, since);
        let events = self
            .drain
            .drain(&shared.recorder, |event| packer.take(&event, now, wall));
        packer.set_partitions(shared.log_partitions.load(Ordering::Relaxed), now);
        let all_gone = hand_over_due(packer, hand_over, now, last);
        count_dropped(packer, shared);
        Flushed {
            events,
            filled: self.drain.filled(&shared.recorder),
            all_gone,
            is_empty: self.packer.is_empty(),
            is_held_up: self.packer.is_held_up(),
            at: now,
        }
    }

    /// Closes the recorder, gives up everything that could not be handed over, and counts it.
    pub(crate) fn give_up(mut self, shared: &Shared) {
        self.drain.end(&shared.recorder);
        self.packer.give_up();
        count_dropped(&mut self.packer, shared);
    }
}

/// Runs until asked to end, and then counts everything that could not be handed over as dropped. Only after that the
/// batches' channel is closed, so that its closing shows that everything is counted.
pub(crate) fn run(
    shared: &Shared,
    packer: Packer,
    (batches, notice_sender): &(mpsc::Sender<CallBatch>, mpsc::Sender<Vec<HoldNotice>>),
    ending: &Ending,
) {
    let clock = &shared.clock;
    clock.keep_by_this_thread();
    let mut flusher = Flusher::new(packer);
    let mut notices = Vec::new();
    let mut pace = Pace::new(clock.cached(), shared.urgency.relaxed().to_std());
    loop {
        shared.urgency.visits();
        flusher.packer.set_busy(pace.is_busy());
        // Read before the drain, so that the drain below includes everything recorded before the request to end.
        let last = ending.is_flushing();
        // While notices wait to be accepted, further ones wait in the hold table, where the bound on holds limits
        // them.
        let mut all_sent = send_notices(&mut notices, notice_sender);
        let mut notice_count = 0;
        if all_sent {
            shared.hold_table.sweep(&mut notices);
            notice_count = notices.len();
            all_sent = send_notices(&mut notices, notice_sender);
        }
        let flushed = flusher.come_by(shared, last, |batch| match batches.try_send(batch) {
            Ok(()) => None,
            Err(TrySendError::Full(batch) | TrySendError::Closed(batch)) => Some(batch),
        });
        let all_gone = flushed.all_gone && all_sent;
        if ending.is_now() || (last && all_gone) {
            break;
        }
        let is_awake = clock.is_awake();
        let visit = Visit {
            at: flushed.at,
            events: flushed.events,
            filled: flushed.filled,
            notice_count,
            near_called: shared.view.near_called(),
            urgent: flusher.packer.urgent(),
            waits_shortly: flusher.packer.waits_shortly(),
            is_empty: flushed.is_empty && all_sent,
            is_held_up: flushed.is_held_up || !all_sent,
            is_awake,
            is_asleep: clock.is_asleep(),
        };
        pause(pace.after(&visit), shared, is_awake);
    }
    clock.wake();
    flusher.give_up(shared);
}

/// Pauses after a visit, on which the clock was awake or not.
fn pause(pause: Pause, shared: &Shared, is_awake: bool) {
    let clock = &shared.clock;
    match pause {
        Pause::For(pause) => {
            clock.wake();
            std::thread::sleep(pause);
        }
        Pause::Doze(pause) => {
            clock.doze(is_awake);
            std::thread::park_timeout(pause);
        }
        Pause::FallAsleep(pause) => {
            clock.fall_asleep(is_awake);
            std::thread::park_timeout(pause);
        }
        Pause::Sleep(pause) => std::thread::park_timeout(pause),
    }
}

/// Hands over what is due. Returns whether nothing that is due is left.
fn hand_over_due(
    packer: &mut Packer,
    mut hand_over: impl FnMut(CallBatch) -> Option<CallBatch>,
    now: Mono,
    last: bool,
) -> bool {
    while let Some(batch) = packer.next(now, last) {
        if let Some(batch) = hand_over(batch) {
            packer.take_back(batch);
            return false;
        }
    }
    packer.knows_where_to()
}

/// Passes on notices of the hold table. Returns whether none is left.
fn send_notices(
    notices: &mut Vec<HoldNotice>,
    notice_sender: &mpsc::Sender<Vec<HoldNotice>>,
) -> bool {
    if notices.is_empty() {
        return true;
    }
    match notice_sender.try_send(std::mem::take(notices)) {
        Ok(()) => true,
        Err(TrySendError::Full(back)) => {
            *notices = back;
            false
        }
        // Nobody receives them any more.
        Err(TrySendError::Closed(_)) => true,
    }
}

fn count_dropped(packer: &mut Packer, shared: &Shared) {
    let dropped = packer.take_dropped();
    Counters::add(&shared.counters.hits_unpacked, dropped.hits);
    Counters::add(&shared.counters.refused_unpacked, dropped.refused);
    Counters::add(&shared.counters.hits_unguarded, packer.take_unguarded());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_shared::names::partition_of_pair;
    use tollgate_shared::time::{Span, Timestamp};

    use super::*;
    use crate::builder::AgentBuilder;
    use crate::clock::{Clock, Mono};
    use crate::rate::Rate;

    const PARTITIONS: u32 = 16;

    struct Bench {
        shared: Arc<Shared>,
        flusher: Flusher,
        rate: Rate,
    }

    impl Bench {
        /// An agent that knows of a limit, and has had no denial or notice of any pair.
        fn new(limit: u64) -> Self {
            let builder = AgentBuilder::default().denials_max(64);
            let clock = Clock::by_hand(Timestamp::from_millis(5_000));
            let (shared, rate) = Rate::limited(&builder, clock, limit);
            shared.log_partitions.store(PARTITIONS, Ordering::Relaxed);
            let mut bench = Self {
                flusher: Flusher::new(builder.packer(&shared)),
                shared,
                rate,
            };
            assert_eq!(bench.come_by(), []);
            bench
        }

        /// What is handed over after another millisecond: partitions and calls.
        fn come_by(&mut self) -> Vec<(u32, u64)> {
            self.shared.clock.advance(Span::from_millis(1));
            let mut batches = Vec::new();
            self.flusher.come_by(&self.shared, false, |batch| {
                batches.push((batch.partition, batch.hits));
                None
            });
            batches
        }
    }

    #[test]
    fn calls_that_are_not_urgent_wait_60_ms_and_travel_together() {
        let mut bench = Bench::new(1_000);
        // Nine calls of a domain each, one each seven milliseconds. They wait from the visit before the first.
        for n in 0..59 {
            if n % 7 == 0 {
                let _ = bench.rate.hit(&format!("t{n}"));
            }
            assert_eq!(bench.come_by(), [], "after {n} ms");
        }
        let gone = bench.come_by();
        assert_eq!(gone.iter().map(|(_, calls)| calls).sum::<u64>(), 9);
        assert!(!(0..60).any(|_| !bench.come_by().is_empty()));
    }

    #[test]
    fn a_call_of_a_pair_with_a_notice_is_sent_at_once() {
        let mut bench = Bench::new(1_000);
        let fingerprint = { bench.shared.resources.find("r") }.map(|one| one.fingerprint("acme"));
        let recent = bench.shared.view.recent();
        recent.note(fingerprint.expect("it"), Mono::MAX);
        let _ = bench.rate.hit("globex");
        let _ = bench.rate.hit("acme");
        let acme = partition_of_pair("r", "acme", PARTITIONS);
        assert_eq!(bench.come_by(), [(acme, 1)]);
    }

    #[test]
    fn a_burst_is_sent_within_a_millisecond_from_its_first_call() {
        let mut bench = Bench::new(1_000);
        let acme = partition_of_pair("r", "acme", PARTITIONS);
        for _ in 0..10 {
            for _ in 0..30 {
                let _ = bench.rate.hit("acme");
            }
            assert_eq!(bench.come_by(), [(acme, 30)]);
        }
    }

    #[test]
    fn an_urgent_call_wakes_the_flusher_and_leaves_while_others_wait() {
        let second = std::time::Duration::from_secs(1);
        let builder = AgentBuilder::default().flush_relaxed(second);
        let (shared, rate) = Rate::limited(&builder, Clock::of_the_machine(), 1_000);
        shared.log_partitions.store(PARTITIONS, Ordering::Relaxed);
        let (batches, mut received) = mpsc::channel(64);
        let (notices, _kept) = mpsc::channel(1);
        let ending = Arc::new(Ending::default());
        let (running, ends) = (Arc::clone(&shared), Arc::clone(&ending));
        let packer = builder.packer(&shared);
        let flusher = std::thread::spawn(move || run(&running, packer, &(batches, notices), &ends));
        let begun = std::time::Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        let mut next = || {
            let received = async { tokio::time::timeout(60 * second, received.recv()).await };
            let batch = runtime.block_on(received).expect("it comes");
            batch.map(|batch| (batch.partition, batch.hits))
        };
        let of = |domain: &str| partition_of_pair("r", domain, PARTITIONS);
        let (one, other) = ("acme", "globex");
        assert_ne!(of(one), of(other));
        while shared.clock.is_awake() {
            assert!(begun.elapsed() < 60 * second, "it never rests");
            std::thread::sleep(second / 1_000);
        }
        let _ = rate.hit(other);
        assert!(!shared.clock.is_awake(), "it may wait");
        let _ = rate.hit_n(one, 25);
        assert_eq!(next(), Some((of(one), 1)));
        assert_eq!(next(), Some((of(other), 1)), "after a second");
        ending.ask_to_end();
        shared.clock.wake_timekeeper();
        flusher.join().expect("it ends");
    }
}
