//! The flusher: the one thread that moves the cached clock on, empties the recorder, and passes on what
//! is said at the desk of holds.
//!
//! Calls wake nobody, so it comes by: every 100 µs (with what a sleep takes longer, up to 200) while
//! calls are made, in steps up to a millisecond while none are, and every millisecond while there are
//! more than a thousand in one and room for twice as many: calls of one pair between two comings become
//! one entry of the log, so that a busy agent costs everybody less a call. Behind calls of pairs near their
//! limits it does not slow down: the sooner the last one that has room is in the log, the fewer are let through
//! behind it. A thread of its own and no task, because nothing may hold it up: the clock of every call is its
//! clock.
//!
//! What stays true: it never waits for the network; what the network does not take waits in the packer,
//! which is bounded.

mod ending;
mod packer;
mod parcel;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tollgate_shared::time::Span;

pub(crate) use ending::Ending;
pub(crate) use packer::Packer;
pub(crate) use parcel::Parcel;

use crate::copies::Told;
use crate::recorder::Drain;
use crate::shared::Shared;
use crate::stats::Counters;

/// The pause while calls are made.
const PAUSE_MIN: Duration = Duration::from_micros(100);

/// The pause while none are made, and while very many are: the bound on how far the cached clock is
/// behind, and on what a hit after silence waits.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// For so long after a call of a pair near its limit it comes by as if calls were made.
const PRESSING_FOR: Span = Span::from_millis(20);

/// Calls a millisecond from which on there are very many.
const MANY_A_MS: u64 = 1_000;

/// What the flusher's thread does each time that it comes by.
#[derive(Debug)]
pub(crate) struct Flusher {
    drain: Drain,
    packer: Packer,
}

/// What one coming by came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flushed {
    /// Events that were drained.
    pub(crate) events: usize,
    /// How full the fullest buffer was, in thousandths.
    filled: usize,
    /// Whether nothing is left of what is due.
    pub(crate) all_gone: bool,
}

impl Flusher {
    pub(crate) fn new(packer: Packer) -> Self {
        Self {
            drain: Drain::default(),
            packer,
        }
    }

    /// Moves the cached clock on, empties the recorder and hands over what is due, until `hand_over`
    /// gives a parcel back; `last` hands over everything.
    pub(crate) fn come_by(
        &mut self,
        shared: &Shared,
        last: bool,
        hand_over: impl FnMut(Parcel) -> Option<Parcel>,
    ) -> Flushed {
        shared.clock.refresh();
        let now = shared.clock.cached();
        let wall = shared.clock.cached_wall();
        let packer = &mut self.packer;
        let is_killed = shared.kill_switch.load(Ordering::Relaxed);
        packer.guard_by(shared.sight.guard.guards(), is_killed);
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
        }
    }

    /// Ends the recorder, gives up everything that could not be handed over, and counts it.
    pub(crate) fn give_up(mut self, shared: &Shared) {
        self.drain.end(&shared.recorder);
        self.packer.give_up();
        count_dropped(&mut self.packer, shared);
    }
}

/// Runs until it is told to end; then everything that could not be handed over is counted as dropped.
/// Only then the parcels' channel is let go of, and by that others know that everything is counted.
pub(crate) fn run(
    shared: &Shared,
    packer: Packer,
    (parcels, words): &(mpsc::Sender<Parcel>, mpsc::Sender<Vec<Told>>),
    ending: &Ending,
) {
    let mut flusher = Flusher::new(packer);
    let mut told = Vec::new();
    let mut pause = PAUSE_MIN;
    let mut came = shared.clock.cached();
    loop {
        // Asked before the drain, so that what was recorded before the telling is drained below.
        let last = ending.is_flushing();
        // While words wait to be taken, more wait where they were said, where holds bound them.
        let mut all_told = tell(&mut told, words);
        let mut said = 0;
        if all_told {
            shared.desk.sweep(&mut told);
            said = told.len();
            all_told = tell(&mut told, words);
        }
        let flushed = flusher.come_by(shared, last, |parcel| match parcels.try_send(parcel) {
            Ok(()) => None,
            Err(TrySendError::Full(parcel) | TrySendError::Closed(parcel)) => Some(parcel),
        });
        let all_gone = flushed.all_gone && all_told;
        if ending.is_now() || (last && all_gone) {
            break;
        }
        let now = shared.clock.cached();
        // Words about holds have no large buffers, and somebody waits for them.
        let is_pressing = now.since(shared.view.near_called()) < PRESSING_FOR;
        pause = match said {
            0 if is_pressing && flushed.events == 0 => PAUSE_MIN,
            0 => pause_after(pause, &flushed, now.since(came)),
            _ => PAUSE_MIN,
        };
        came = now;
        std::thread::sleep(pause);
    }
    flusher.give_up(shared);
}

/// How long to pause after one of `before` and a coming that found what had gathered for so long.
fn pause_after(before: Duration, flushed: &Flushed, gathered: Span) -> Duration {
    if flushed.events == 0 {
        return (before * 2).min(PAUSE_MAX);
    }
    let (events, filled) = (flushed.events as u64, flushed.filled as u64);
    let gathered_us = gathered.as_micros();
    let many = MANY_A_MS * gathered_us <= 1_000 * events && MANY_A_MS / 10 <= events;
    // What comes in the longest pause fills no buffer by more than half. Of one that is so full already
    // nobody knows for how long it has been.
    let have_room = filled <= 500 && 1_000 * filled <= 500 * gathered_us;
    if many && have_room {
        PAUSE_MAX
    } else {
        PAUSE_MIN
    }
}

/// Hands over what is due; whether nothing is left of what is.
fn hand_over_due(
    packer: &mut Packer,
    mut hand_over: impl FnMut(Parcel) -> Option<Parcel>,
    now: crate::clock::Mono,
    last: bool,
) -> bool {
    while let Some(parcel) = packer.next(now, last) {
        if let Some(parcel) = hand_over(parcel) {
            packer.take_back(parcel);
            return false;
        }
    }
    packer.knows_where_to()
}

/// Passes on what was said at the desk; whether nothing is left of it.
fn tell(told: &mut Vec<Told>, words: &mpsc::Sender<Vec<Told>>) -> bool {
    if told.is_empty() {
        return true;
    }
    match words.try_send(std::mem::take(told)) {
        Ok(()) => true,
        Err(TrySendError::Full(back)) => {
            *told = back;
            false
        }
        // Nobody will hear it.
        Err(TrySendError::Closed(_)) => true,
    }
}

fn count_dropped(packer: &mut Packer, shared: &Shared) {
    let dropped = packer.take_dropped();
    Counters::add(&shared.counters.hits_unpacked, dropped.hits);
    Counters::add(&shared.counters.refused_unpacked, dropped.refused);
    Counters::add(&shared.counters.hits_unguarded, packer.take_unguarded());
}

/// Starts it on a thread of its own.
pub(crate) fn start(
    shared: Arc<Shared>,
    packer: Packer,
    channels: (mpsc::Sender<Parcel>, mpsc::Sender<Vec<Told>>),
    ending: Arc<Ending>,
) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("tollgate-flush".to_owned())
        .spawn(move || run(&shared, packer, &channels, &ending))
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_by_often_unless_there_is_nothing_or_very_much() {
        let after = |before, events, filled, us| {
            let flushed = Flushed {
                events,
                filled,
                all_gone: true,
            };
            let before = Duration::from_micros(before);
            pause_after(before, &flushed, Span::from_micros(us)).as_micros()
        };
        // Nothing: in steps up to a millisecond.
        assert_eq!(after(100, 0, 0, 150), 200);
        assert_eq!(after(800, 0, 0, 900), 1_000);
        // Some, whenever the last were.
        assert_eq!(after(1_000, 1, 0, 1_100), 100);
        assert_eq!(after(100, 149, 5, 150), 100);
        assert_eq!(after(1_000, 1_099, 40, 1_100), 100);
        // A million a second and more.
        assert_eq!(after(100, 150, 5, 150), 1_000);
        assert_eq!(after(1_000, 1_100, 40, 1_100), 1_000);
        // So many that in a millisecond a buffer would be more than half full.
        assert_eq!(after(100, 1_500, 75, 150), 1_000);
        assert_eq!(after(100, 1_500, 76, 150), 100);
        assert_eq!(after(100, 50_000, 1_000, 5_000), 100);
        // A few at once, after no time at all, are not many.
        assert_eq!(after(100, 99, 0, 0), 100);
    }
}
