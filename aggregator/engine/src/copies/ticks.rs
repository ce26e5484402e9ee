//! What time does to copies: transfers end, holds grow too old.
//!
//! ```text
//! max_age 1h    taken at 10:00:00.3    ended by the first tick at or after 11:00:00.3
//! ttl 30s       staged at 10:00:00.3   let go by the first tick at or after 10:00:30.3
//! ```
//!
//! Knows nothing of how ticks come about. What stays true: between ticks time stands still, and a
//! tick earlier than one before it changes nothing.

use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::time::Timestamp;

use super::effects::{Effects, Ended};
use super::state::Copies;

impl Copies {
    /// Brings time in: lets go what is staged and due, and ends holds that are older than they may
    /// be; the latter are listed in [`Effects::ended`], by agent and number, and stay ended.
    pub fn tick(&mut self, now: Timestamp, out: &mut Effects) {
        if now < self.now {
            return;
        }
        self.now = now;
        let from = out.scopes_said();
        let kept = planted(Bug::TransferKept);
        while let Some(id) = self.staging.due(now).filter(|_| !kept) {
            self.unstage(id, out);
        }
        self.end_old(out);
        out.settle(from);
    }

    /// Whether a hold of this start has reached the greatest age at the last tick.
    pub(super) fn too_old(&self, start: Timestamp) -> bool {
        self.limits
            .max_age
            .is_some_and(|age| start.saturating_add(age) <= self.now)
    }

    fn end_old(&mut self, out: &mut Effects) {
        let Some(age) = self.limits.max_age else {
            return;
        };
        let Some(last) = self.now.as_micros().checked_sub(age.as_micros()) else {
            return;
        };
        let old: Vec<u32> = self.holds.up_to(Timestamp::from_micros(last)).collect();
        if old.is_empty() {
            return;
        }
        let first = out.ended.len();
        for slot in old {
            let facts = self.holds.facts(slot);
            self.end(slot, out);
            // A lost hold is forgotten: should its agent come back, its start says how old it is.
            if !facts.flags.lost {
                out.ended.push(Ended {
                    hold: facts.id,
                    copies: facts.copies,
                });
            }
        }
        let agents = &self.agents;
        out.ended[first..].sort_by_cached_key(|ended| {
            let agent = agents.get(ended.hold.agent);
            let name = agent.map(|agent| (agent.name.clone(), agent.epoch));
            (name, ended.hold.number)
        });
        for index in first..out.ended.len() {
            self.stays_ended(out.ended[index].hold);
        }
    }
}
