//! The models: a few threads that use one part, and a property that holds in every order.

use loom::sync::Arc;
use loom::thread;
use tollgate_shared::time::Timestamp;

use crate::doubts::{Doubt, Doubts};
use crate::ending::Ending;
use crate::filter::Filter;
use crate::recorder::{Drain, Happened, Recorder, RecorderEvent};
use crate::resource::ResourceId;
use crate::stretch::Stretch;

/// The preemptions that are tried if LOOM_MAX_PREEMPTIONS is not set. Two show what two threads do to each other
/// between any two steps; with three the recorder's models take minutes.
const PREEMPTIONS: usize = 2;

fn every_order(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.check(model);
}

/// A denial in the filter is never called surely not denied, while others in its word are added and removed, and the
/// filter is rebuilt.
pub fn an_entry_of_the_filter_stays_found() {
    // All in one word, with shared counters.
    const IN: u64 = 0x0;
    const COMES: u64 = 0x1;
    const GOES: u64 = 0x40;
    every_order(|| {
        let filter = Arc::new(Filter::new(1));
        filter.add(IN);
        filter.add(GOES);
        let reader = {
            let filter = Arc::clone(&filter);
            thread::spawn(move || (0..2).all(|_| filter.maybe(IN)))
        };
        filter.add(COMES);
        filter.remove(GOES);
        filter.rebuild([IN, COMES].into_iter());
        assert!(reader.join().expect("it ends"), "a denial was passed over");
        assert!(filter.maybe(IN) && filter.maybe(COMES));
    });
}

/// In a time without watermarks no call counts as guarded.
pub fn no_call_is_guarded_in_a_gap() {
    every_order(|| {
        let stretch = Arc::new(Stretch::default());
        stretch.extend(10, 20);
        let reader = {
            let stretch = Arc::clone(&stretch);
            thread::spawn(move || (stretch.covers(25), stretch.covers(9)))
        };
        // Renewed in time, then again after a gap.
        stretch.extend(15, 22);
        stretch.extend(30, 40);
        assert_eq!(reader.join().expect("it ends"), (false, false));
        assert!(stretch.covers(30) && !stretch.covers(25) && !stretch.covers(40));
    });
}

/// Doubts are added while others are taken, some of which are not due: none is lost.
pub fn no_doubt_about_a_verdict_is_lost() {
    every_order(|| {
        let doubts = Arc::new(Doubts::default());
        let marks = Arc::new([Doubt::default(), Doubt::default()]);
        doubts.mark(&marks[1]);
        let caller = {
            let (doubts, marks) = (Arc::clone(&doubts), Arc::clone(&marks));
            thread::spawn(move || doubts.mark(&marks[0]))
        };
        let mut taken = take(&doubts, &marks, |one| one == 0);
        taken.extend(take(&doubts, &marks, |_| true));
        caller.join().expect("it ends");
        taken.extend(take(&doubts, &marks, |_| true));
        assert!(taken.contains(&0) && taken.contains(&1), "taken: {taken:?}");
    });
}

/// Two threads record and end while the flusher drains: everything is drained, in each thread's order.
pub fn records_of_ending_threads_are_drained() {
    every_order(|| {
        let recorder = Arc::new(Recorder::new(0, 4));
        let threads: Vec<_> = [1, 2].map(|one| caller(&recorder, one, 1)).into();
        let mut drain = Drain::default();
        let mut seen = drained(&mut drain, &recorder);
        seen.extend(drained(&mut drain, &recorder));
        join(threads);
        // Once for what they left, once to release their rings.
        seen.extend(drained(&mut drain, &recorder));
        seen.extend(drained(&mut drain, &recorder));
        seen.sort_unstable();
        assert_eq!(seen, [100, 200]);
        let counted = recorder.recorded();
        assert_eq!((counted.hits, counted.hits_dropped), (2, 0));
    });
}

/// What was recorded before the request to flush is drained; what is recorded while the agent ends, or after, is
/// drained or counted as dropped.
pub fn every_call_is_counted_at_the_end() {
    every_order(|| {
        let recorder = Arc::new(Recorder::new(0, 4));
        let ending = Arc::new(Ending::default());
        let late = caller(&recorder, 2, 1);
        let owner = {
            let (recorder, ending) = (Arc::clone(&recorder), Arc::clone(&ending));
            thread::spawn(move || {
                recorder.record(&hit(100));
                ending.ask_to_flush();
            })
        };
        // Like the flusher's loop.
        let mut drain = Drain::default();
        let mut seen = Vec::new();
        loop {
            let last = ending.is_flushing();
            seen.extend(drained(&mut drain, &recorder));
            if last {
                break;
            }
            thread::yield_now();
        }
        drain.end(&recorder);
        assert!(seen.contains(&100), "recorded before the telling: {seen:?}");
        join(vec![late, owner]);
        let counted = recorder.recorded();
        assert_eq!(counted.hits, seen.len() as u64, "what was drained");
        assert_eq!(
            counted.hits + counted.hits_dropped,
            2,
            "is all, with what was not"
        );
    });
}

/// The indices of the doubts that are taken.
fn take(doubts: &Doubts, marks: &[Doubt; 2], is_due: fn(usize) -> bool) -> Vec<usize> {
    let all = || marks.iter().enumerate().collect();
    let taken = doubts.take(all, |(_, mark)| mark, |(one, _)| is_due(*one));
    taken.into_iter().map(|(one, _)| one).collect()
}

/// A thread that records this many hits, with stamps from 100 × its number on.
fn caller(recorder: &Arc<Recorder>, number: u64, hits: u64) -> thread::JoinHandle<()> {
    let recorder = Arc::clone(recorder);
    thread::spawn(move || (0..hits).for_each(|n| recorder.record(&hit(100 * number + n))))
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("it ends"));
}

fn hit(at: u64) -> RecorderEvent<'static> {
    RecorderEvent {
        resource: ResourceId(0),
        domain: "a",
        at: Timestamp::from_micros(at),
        happened: Happened::Hit {
            copies: 1,
            min: None,
            unguarded: false,
        },
    }
}

fn drained(drain: &mut Drain, recorder: &Recorder) -> Vec<u64> {
    let mut stamps = Vec::new();
    drain.drain(recorder, |event| stamps.push(event.at.as_micros()));
    stamps
}
