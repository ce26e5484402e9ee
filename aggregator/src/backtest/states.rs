//! The states of pairs while a recording is played.
//!
//! A pair whose windows, active times and cooldowns are all over is as one that never was, so its state
//! is dropped now and then: memory is that of the pairs that matter at one time. Knows nothing of
//! calls. What stays true: dropping changes no answer.

use tollgate_engine::limits::RateClass;
use tollgate_engine::rules::State;
use tollgate_shared::time::Timestamp;

/// How many states there may be before it is worth looking through them.
const SWEEP_MIN: usize = 1 << 16;

/// States by number of pair.
#[derive(Debug)]
pub struct States {
    slots: Vec<Option<Box<State>>>,
    live: usize,
    sweep_at: usize,
}

impl States {
    /// Of so many pairs, none of which has been seen.
    pub fn new(pairs: usize) -> Self {
        Self {
            slots: vec![None; pairs],
            live: 0,
            sweep_at: SWEEP_MIN,
        }
    }

    /// The state of a pair.
    pub fn of(&mut self, pair: u32, class: &RateClass) -> &mut State {
        let slot = &mut self.slots[pair as usize];
        if slot.is_none() {
            self.live += 1;
        }
        slot.get_or_insert_with(|| Box::new(State::of(class)))
    }

    /// The state of a pair, if it has one.
    pub fn get(&self, pair: u32) -> Option<&State> {
        self.slots[pair as usize].as_deref()
    }

    /// Drops what does not matter any more, if there is much. `of` says a pair's limits and time.
    pub fn sweep<'a>(&mut self, of: impl Fn(u32) -> (&'a RateClass, Timestamp)) {
        if self.live < self.sweep_at {
            return;
        }
        for (pair, slot) in self.slots.iter_mut().enumerate() {
            let Some(state) = slot else { continue };
            let (class, now) = of(pair as u32);
            if state.matters_until(class).is_none_or(|until| until < now) {
                *slot = None;
                self.live -= 1;
            }
        }
        // Twice what was left, so that looking costs each new state a constant.
        self.sweep_at = SWEEP_MIN.max(2 * self.live);
    }
}
