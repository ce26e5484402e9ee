//! What time does to copies: transfers end, and holds and staged copies grow too old.
//!
//! ```text
//! max_age 1h    taken at 10:00:00.3    ended by the first tick at or after 11:00:00.3
//! ttl 30s       staged at 10:00:00.3   let go by the first tick at or after 10:00:30.3
//! ttl 2h        staged at 10:30:00.3   let go as a hold would end: at or after 11:00:00.3
//! ```
//!
//! Knows nothing of how ticks are made. What stays true: between ticks time stands still, and a tick with
//! an earlier time than the last one changes nothing.

use tollgate_shared::time::Timestamp;

use super::effects::{Effects, EndedHold};
use super::staging::Staging;
use super::state::Copies;

impl Copies {
    /// Advances the time: lets staged copies go that are due or too old, and ends holds that are too old.
    /// [`Effects::ended`] lists those holds, by agent and number; they stay ended.
    pub fn tick(&mut self, now: Timestamp, out: &mut Effects) {
        if now < self.now {
            return;
        }
        self.now = now;
        let from = out.scopes_stated();
        let last = self.last_too_old();
        let over = |staging: &Staging| {
            let old = || last.and_then(|last| staging.taken_by(last));
            staging.due(now).or_else(old)
        };
        while let Some(id) = over(&self.staging) {
            self.unstage(id, out);
        }
        self.end_old(last, out);
        out.settle(from);
    }

    /// Whether a hold with this start has reached the greatest age at the last tick.
    pub(super) fn too_old(&self, start: Timestamp) -> bool {
        self.limits
            .max_age
            .is_some_and(|age| start.saturating_add(age) <= self.now)
    }

    /// The latest start that has reached the greatest age, if there is one.
    fn last_too_old(&self) -> Option<Timestamp> {
        let age = self.limits.max_age?;
        let last = self.now.as_micros().checked_sub(age.as_micros())?;
        Some(Timestamp::from_micros(last))
    }

    fn end_old(&mut self, last: Option<Timestamp>, out: &mut Effects) {
        let Some(last) = last else {
            return;
        };
        let old: Vec<u32> = self.holds.up_to(last).collect();
        if old.is_empty() {
            return;
        }
        let first = out.ended.len();
        for slot in old {
            let facts = self.holds.facts(slot);
            self.end(slot, out);
            // A lost hold is forgotten: if its agent comes back, the listed start shows its age.
            if !facts.flags.lost {
                out.ended.push(EndedHold {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_shared::time::Span;

    use super::super::{
        CopiesRequest, CopiesScope, CopyLimits, HoldId, NameKey, OpRefused, TransferId,
    };
    use super::*;

    const S: u64 = 1_000_000;
    const KEY: NameKey = NameKey { k0: 1, k1: 2 };

    fn limits(max_age: Option<u64>) -> Arc<CopyLimits> {
        let span = max_age.map(Span::from_secs);
        Arc::new(CopyLimits::builder(2).max_age(span).build())
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    /// Two copies of `a` that were taken at ten seconds, and staged for years.
    fn staged(max_age: Option<u64>) -> (Copies, Effects) {
        let (mut copies, mut out) = (Copies::new(limits(max_age), KEY), Effects::new());
        let agent = copies.agent("A", 1);
        let id = HoldId { agent, number: 1 };
        let ask = CopiesRequest {
            id,
            at: at(10 * S),
            domain: "a",
            copies: 2,
        };
        copies.tick(at(10 * S), &mut out);
        copies.hold(ask, &mut out).expect("counted");
        let (to, ttl) = (TransferId(7), Span::from_secs(100_000_000));
        let moved = copies.transfer(id, 2, to, at(20 * S), ttl, &mut out);
        moved.expect("staged");
        out.clear();
        (copies, out)
    }

    fn seize(copies: &mut Copies, out: &mut Effects) -> Result<u32, OpRefused> {
        let agent = copies.agent("B", 1);
        copies.seize(TransferId(7), HoldId { agent, number: 1 }, out)
    }

    #[test]
    fn staged_copies_that_grow_too_old_are_let_go_before_their_end() {
        let (mut copies, mut out) = staged(Some(60));
        assert_eq!(copies.staged().map(|of| of.end).next(), Some(at(70 * S)));
        copies.tick(at(70 * S - 1), &mut out);
        assert_eq!((copies.total().copies, out.scopes().count()), (2, 0));
        let mut restored = Copies::restore(&copies.snapshot(), limits(Some(60)), KEY);
        for copies in [&mut copies, restored.as_mut().expect("sound")] {
            out.clear();
            copies.tick(at(70 * S), &mut out);
            assert_eq!((copies.total().copies, copies.kept()), (0, 0));
            let stated: Vec<(CopiesScope<'_>, bool)> = out.scopes().collect();
            assert_eq!(stated, [(CopiesScope::Domain("a"), false)]);
            assert!(out.ended().is_empty(), "nobody's");
            assert_eq!(seize(copies, &mut out), Err(OpRefused::UnknownTransfer));
            assert_eq!(copies.audit(), Ok(()));
        }
    }

    #[test]
    fn a_lowered_age_ends_staged_copies_at_the_next_tick() {
        let (mut copies, mut out) = staged(None);
        copies.tick(at(1_000 * S), &mut out);
        copies.new_limits(limits(Some(600)));
        // Time stands still until the tick.
        assert_eq!(copies.total().copies, 2);
        copies.tick(at(1_000 * S), &mut out);
        assert_eq!((copies.total().copies, copies.kept()), (0, 0));
    }

    #[test]
    fn seized_copies_are_staged_no_more_however_old_they_are() {
        let (mut copies, mut out) = staged(Some(60));
        assert_eq!(seize(&mut copies, &mut out), Ok(2));
        copies.tick(at(70 * S - 1), &mut out);
        assert_eq!(copies.total().copies, 2);
        copies.tick(at(70 * S), &mut out);
        assert_eq!((copies.total().copies, out.ended().len()), (0, 1));
    }
}
