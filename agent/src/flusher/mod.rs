//! The flusher: the one thread that moves the cached clock on, empties the recorder, and passes on what
//! is said at the desk of holds.
//!
//! Calls wake nobody, so it comes by: every 100 µs (with what a sleep takes longer, up to 200) while
//! calls are made, and in steps up to a millisecond while none are. A thread of its own and no task,
//! because nothing may hold it up: the clock of every call is its clock.
//!
//! What stays true: it never waits for the network; what the network does not take waits in the packer,
//! which is bounded.

mod packer;
mod parcel;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

pub(crate) use packer::Packer;
pub(crate) use parcel::Parcel;

use crate::copies::Told;
use crate::recorder::Drain;
use crate::shared::Shared;
use crate::stats::Counters;

/// The pause while calls are made.
const PAUSE_MIN: Duration = Duration::from_micros(100);

/// The pause while none are made: the bound on how far the cached clock is behind, and on what a hit
/// after silence waits.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// How a flusher is told to end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// Hand over everything, then end.
    pub(crate) flush: AtomicBool,
    /// End now.
    pub(crate) now: AtomicBool,
}

/// Runs until it is told to end; then everything that could not be handed over is counted as dropped.
/// Only then the parcels' channel is let go of, and by that others know that everything is counted.
pub(crate) fn run(
    shared: &Shared,
    mut packer: Packer,
    (parcels, words): &(mpsc::Sender<Parcel>, mpsc::Sender<Vec<Told>>),
    ending: &Ending,
) {
    let mut drain = Drain::default();
    let mut told = Vec::new();
    let mut pause = PAUSE_MIN;
    loop {
        // Asked before the drain, so that what was recorded before the telling is drained below.
        let last = ending.flush.load(Ordering::Acquire);
        shared.clock.refresh();
        let now = shared.clock.cached();
        let events = drain.drain(&shared.recorder, |event| packer.take(&event, now));
        packer.set_partitions(shared.log_partitions.load(Ordering::Relaxed), now);
        // While words wait to be taken, more wait where they were said, where holds bound them.
        let mut all_told = tell(&mut told, words);
        let mut said = 0;
        if all_told {
            shared.desk.sweep(&mut told);
            said = told.len();
            all_told = tell(&mut told, words);
        }
        let all_gone = hand_over(&mut packer, parcels, now, last) && all_told;
        count_dropped(&mut packer, shared);
        if ending.now.load(Ordering::Acquire) || (last && all_gone) {
            break;
        }
        pause = if events + said == 0 {
            (pause * 2).min(PAUSE_MAX)
        } else {
            PAUSE_MIN
        };
        std::thread::sleep(pause);
    }
    drain.end(&shared.recorder);
    packer.give_up();
    count_dropped(&mut packer, shared);
}

/// Hands over what is due; whether nothing is left of what is.
fn hand_over(
    packer: &mut Packer,
    parcels: &mpsc::Sender<Parcel>,
    now: crate::clock::Mono,
    last: bool,
) -> bool {
    while let Some(parcel) = packer.next(now, last) {
        match parcels.try_send(parcel) {
            Ok(()) => {}
            Err(TrySendError::Full(parcel) | TrySendError::Closed(parcel)) => {
                packer.take_back(parcel);
                return false;
            }
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
