//! How the entries of a followed pair are ruled, one by one, on the state beside the engine.
//!
//! Knows nothing of reading logs. What stays true: an entry is ruled as the engine ruled it, at the same instant.

use tollgate_engine::engine::{Fate, TOO_OLD, event_of};
use tollgate_engine::stream::{Pair, PairEvent};
use tollgate_limits::Resource;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::hits::{Hit, HitBatch};

use super::{ENTRIES_MAX, OTHERS_MAX, PairFollow};
use crate::explain::counting::increase;
use crate::explain::history::{Burst, EntryFate, ExplainedEntry, push};
use crate::fill;
use tollgate_log::Delivered;

impl PairFollow {
    pub(super) fn entries(
        &mut self,
        delivered: &Delivered,
        batch: &HitBatch<'_>,
        numbers: &[u32],
        hits: &[Hit<'_>],
    ) {
        let applied = self.replay.rulings().fates.contains(&Fate::Applied);
        let limits = self.replay.engine().limits();
        let free = match limits.resource(&self.resource) {
            Some(limited) => matches!(limited, Resource::Copies(_)),
            None => limits.namespace_of(&self.resource).allow_unconfigured,
        };
        let mut stood = Vec::new();
        for (number, hit) in numbers.iter().zip(hits) {
            let at = self.corrected(hit.at, delivered.appended);
            let position = (delivered.offset, *number);
            let agent: Box<str> = batch.sender.agent.into();
            let before = self.closed_until();
            let engine = self.replay.engine();
            let banned = engine.is_banned(&self.resource, &self.domain, at);
            let fate = if !applied {
                EntryFate::Duplicate
            } else if free && !banned {
                EntryFate::Free
            } else if TOO_OLD < delivered.appended.since(at) {
                EntryFate::TooOld
            } else {
                self.rule((at, banned), hit, position, &agent)
            };
            let until = self.closed_until();
            // If nothing changed, the engine stated nothing.
            stood.push((until != before).then(|| self.standing()));
            let entry = ExplainedEntry {
                position,
                agent,
                stamp: hit.at,
                at,
                appended: delivered.appended,
                copies: if hit.is_refund() { 0 } else { hit.total() },
                version: self.version.unwrap_or(0),
                fate,
                until: until.filter(|_| !free),
            };
            let oldest = push(&mut self.entries, ENTRIES_MAX, entry).map(|entry| entry.at);
            let upto = &mut self.unremembered.entries_upto;
            *upto = oldest.max(*upto);
        }
        let stood: Vec<_> = numbers.iter().copied().zip(stood).collect();
        self.listen(delivered, &stood);
        debug_assert!(self.agrees(), "the state beside the engine is another one");
    }

    /// Rules an entry on the state beside the engine, of a pair that is banned then or not.
    fn rule(
        &mut self,
        (at, banned): (Timestamp, bool),
        hit: &Hit<'_>,
        position: (u64, u32),
        agent: &str,
    ) -> EntryFate {
        let now = self.pair.time.map_or(at, |time| time.max(at));
        // Drop what is over by now first, so that this entry does not seem to have removed it.
        self.pair.state.forget(&self.class, now);
        let held = |pair: &Pair| -> Vec<u64> {
            let tiers = pair.state.tiers.iter().zip(self.class.tiers());
            tiers
                .map(|(of, tier)| of.window.held(tier.window, now))
                .collect()
        };
        let entered =
            |pair: &Pair| -> Vec<_> { pair.state.tiers.iter().map(|tier| tier.entered).collect() };
        let (held_before, entered_before) = (held(&self.pair), entered(&self.pair));
        let used_before = fill::used(&self.class, &self.pair.state, now);
        // A correction moves the stamps of estimates in the same way.
        let moved_us = at.signed_micros_since(hit.at);
        let event = event_of(hit, |stamp| stamp.saturating_offset(moved_us));
        let ruled = self.pair.rule(&self.class, at, event, banned);
        let in_tiers = held(&self.pair);
        let by_tier = in_tiers
            .iter()
            .zip(&held_before)
            .map(|(after, before)| after.saturating_sub(*before))
            .collect();
        let entered: Vec<usize> = entered(&self.pair)
            .iter()
            .zip(&entered_before)
            .enumerate()
            .filter(|(_, (after, before))| after != before && **after == Some(now))
            .map(|(index, _)| index)
            .collect();
        for index in &entered {
            let burst = Burst {
                tier: index + 1,
                at: now,
                position,
                agent: agent.into(),
            };
            push(&mut self.bursts, OTHERS_MAX, burst);
        }
        let used = fill::used(&self.class, &self.pair.state, now);
        let (counted, made) = match event {
            PairEvent::Entry(_) => (increase(&used_before, &used), None),
            PairEvent::Settlement(of) => (increase(&used, &used_before), Some(of.made)),
        };
        EntryFate::Ruled {
            granted: ruled.granted,
            excess: ruled.excess,
            late: ruled.late,
            by_tier,
            in_tiers,
            entered,
            counted,
            made,
            used,
        }
    }
}
