//! What a partition knows of an agent: its batches' sequence numbers and its clock.
//!
//! ```text
//! highest 200   73 is known as seen or new; 72 is still in the window of 128
//!               below the highest; 71 is older: not ruled
//! clock         append − sent: 900 ms, 400 ms, 650 ms in one minute: stamps move by 400 ms
//! ```
//!
//! An agent is a name with an epoch. Knows nothing of hits. What stays true: time is log time, the
//! greatest append time of a counted tick; before the first one it is 0.

use std::collections::{BTreeMap, BTreeSet};

/// The number of sequences below the highest one that the model distinguishes as seen or new.
const WINDOW: u64 = 128;
/// Log time for which an agent's sequences are kept, in microseconds.
const KEPT_US: u64 = 600_000_000;
/// The unit over which the least append − sent is kept, in microseconds.
const MINUTE_US: u64 = 60_000_000;
/// The least difference append − sent that does not yet count as a clock error, in microseconds.
const TOLERATED_US: u64 = 250_000;

/// Whether a batch is to be ruled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    Fresh,
    Duplicate,
    OlderThanWindow,
}

#[derive(Clone, Debug, Default)]
struct Agent {
    highest_seq: u64,
    /// All sequences received that are not below the window.
    seen: BTreeSet<u64>,
    /// Log time at the last fresh batch; `None` until a tick was counted.
    last_us: Option<u64>,
    /// The least append − sent for each minute of log time.
    least_us: BTreeMap<u64, i64>,
}

/// All agents that wrote to the partition recently.
#[derive(Clone, Debug, Default)]
pub(super) struct Agents {
    agents: BTreeMap<(String, u128), Agent>,
}

impl Agents {
    /// Notes a batch's sequence number.
    pub fn batch(&mut self, name: &str, epoch: u128, seq: u64, log_us: Option<u64>) -> Freshness {
        let agent = self.agents.entry((name.to_owned(), epoch)).or_default();
        if seq < agent.highest_seq.saturating_sub(WINDOW) {
            return Freshness::OlderThanWindow;
        }
        if !agent.seen.insert(seq) {
            return Freshness::Duplicate;
        }
        agent.highest_seq = agent.highest_seq.max(seq);
        let lowest = agent.highest_seq.saturating_sub(WINDOW);
        agent.seen.retain(|seq| lowest <= *seq);
        agent.last_us = log_us;
        Freshness::Fresh
    }

    /// Notes a fresh batch's stamps and returns by how much, in microseconds, the agent's stamps move: by the least
    /// (append − sent) over the last whole minute of log time and the current one, this batch included, if that
    /// exceeds 250 ms either way. If the least difference states that the clock is ahead, and this batch states
    /// that it is ahead by 250 ms less, the batch is believed.
    pub fn stamps_move_us(
        &mut self,
        name: &str,
        epoch: u128,
        log_us: Option<u64>,
        appended_us: u64,
        sent_us: u64,
    ) -> i64 {
        let minute = log_us.unwrap_or(0) / MINUTE_US;
        let agent = self.agents.entry((name.to_owned(), epoch)).or_default();
        let behind_us = signed_difference(appended_us, sent_us);
        let least_us = agent.least_us.entry(minute).or_insert(behind_us);
        *least_us = behind_us.min(*least_us);
        agent.least_us.retain(|kept, _| minute <= kept + 1);
        let least_us = agent.least_us.values().min().copied().unwrap_or(0);
        let tolerated_us = i64::try_from(TOLERATED_US).unwrap_or(i64::MAX);
        let moved_us = if least_us < 0 && tolerated_us < behind_us.saturating_sub(least_us) {
            behind_us.min(0)
        } else {
            least_us
        };
        if moved_us.unsigned_abs() <= TOLERATED_US {
            return 0;
        }
        moved_us
    }

    /// Whether the model remembers anything of an agent.
    pub fn knows(&self, name: &str, epoch: u128) -> bool {
        self.agents.contains_key(&(name.to_owned(), epoch))
    }

    /// Applies a counted tick: forgets agents that have been silent for too long.
    pub fn tick(&mut self, log_us: u64) {
        self.agents.retain(|_, agent| {
            let last_us = *agent.last_us.get_or_insert(log_us);
            log_us <= last_us.saturating_add(KEPT_US)
        });
    }
}

/// `a − b`, or the nearest representable number.
fn signed_difference(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    let nearest = difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    i64::try_from(nearest).expect("clamped to the range")
}
