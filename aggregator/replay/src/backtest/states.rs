//! The states of pairs while a recording is played.
//!
//! A pair whose windows, active times and cooldowns are all over behaves like a new one, so its
//! state is dropped now and then. Memory is that of the pairs that matter at one time. Knows
//! nothing of calls. What stays true: dropping a state changes no ruling.

use tollgate_engine::rules::State;
use tollgate_limits::RateClass;
use tollgate_shared::time::Timestamp;

/// How many states there may be before a sweep is worthwhile.
const SWEEP_MIN: usize = 1 << 16;

/// States by number of pair.
#[derive(Debug)]
pub struct States {
    slots: Vec<Option<Box<State>>>,
    /// Dropped states, for reuse: most pairs of a long recording come rarely, and allocating a
    /// state for each of their calls took a seventh of the time.
    #[expect(clippy::vec_box, reason = "boxes go back into slots as they are")]
    spare: Vec<Box<State>>,
    live: usize,
    sweep_at: usize,
}

impl States {
    /// For `pairs` pairs without state.
    pub fn new(pairs: usize) -> Self {
        Self {
            slots: vec![None; pairs],
            spare: Vec::new(),
            live: 0,
            sweep_at: SWEEP_MIN,
        }
    }

    /// Makes room for `pairs` pairs.
    pub fn grow(&mut self, pairs: usize) {
        self.slots.resize(pairs, None);
    }

    /// The state of a pair.
    pub fn of(&mut self, pair: u32, class: &RateClass) -> &mut State {
        let slot = &mut self.slots[pair as usize];
        slot.get_or_insert_with(|| {
            self.live += 1;
            match self.spare.pop() {
                Some(mut state) => {
                    state.begin(class);
                    state
                }
                None => Box::new(State::of(class)),
            }
        })
    }

    /// The state of a pair, if it has one.
    pub fn get(&self, pair: u32) -> Option<&State> {
        self.slots[pair as usize].as_deref()
    }

    /// Drops states that do not matter any more, if there are many. `of` returns a pair's limits
    /// and time.
    pub fn sweep<'a>(&mut self, of: impl Fn(u32) -> (&'a RateClass, Timestamp)) {
        if self.live < self.sweep_at {
            return;
        }
        for (pair, slot) in self.slots.iter_mut().enumerate() {
            let Some(state) = slot else { continue };
            let (class, now) = of(pair as u32);
            if state.matters_until(class) < now {
                self.spare.extend(slot.take());
                self.live -= 1;
            }
        }
        // Twice what was left, so that sweeping costs a constant per new state.
        self.sweep_at = SWEEP_MIN.max(2 * self.live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_engine::inline::ask;
    use tollgate_engine::rules::Stamps;
    use tollgate_engine::rules::request::Request;
    use tollgate_limits::Limits;

    #[test]
    fn evicted_pairs_free_their_slots_and_return_as_new() {
        let limits = Limits::parse("[rate.r]\nrate = \"1/s\"\n").expect("good");
        let class = limits.class_of("r", "d").expect("limited").clone();
        let pairs = 4 * SWEEP_MIN as u32;
        let mut states = States::new(pairs as usize);
        let mut granted = 0;
        // Each pair twice, so far apart that nothing of the first call matters any more.
        for n in 0..2 * pairs {
            let now = Timestamp::from_millis(u64::from(n));
            states.sweep(|_| (&class, now));
            let state = states.of(n % pairs, &class);
            let one = Request { copies: 1, min: 1 };
            granted += ask(&class, state, (None, &mut Stamps::new()), now, one, false).hits;
        }
        assert_eq!(granted, u64::from(2 * pairs));
        let made = states.slots.iter().flatten().count() + states.spare.len();
        assert!(made <= SWEEP_MIN, "{made}");
        // A state that is still in its window is kept.
        let now = Timestamp::from_millis(u64::from(2 * pairs));
        states.sweep_at = 0;
        states.sweep(|_| (&class, now));
        let state = states.of(pairs - 1, &class);
        let one = Request { copies: 1, min: 1 };
        assert_eq!(
            ask(&class, state, (None, &mut Stamps::new()), now, one, false).hits,
            0
        );
    }
}
