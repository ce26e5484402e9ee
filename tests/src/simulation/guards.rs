//! Whether an agent's calls are guarded, by what came over the wire and not by what it says.
//!
//! ```text
//! the newest watermark of partition 3 came at 7.0 s, marked as current
//! a call at 7.4 s     guarded, where all is well: its excess is debt
//! a call at 8.2 s     unguarded, whatever else: nobody owes what was let through while nobody was heard
//! ```
//!
//! Law 8 binds guarded calls alone, so an agent that marked all of them unguarded would be bound by
//! nothing. Knows nothing of what entries say. What stays true: between what is surely guarded and what is
//! surely not lies a part that is not judged.

use std::collections::BTreeMap;

use tollgate_agent::simulation::Happening;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::place::Place;
use tollgate_shared::wire::frame::{Frame, Watermark};
use tollgate_shared::wire::link::FromAggregator;

use super::documents::{DOMAINS, RESOURCES};
use super::held::SETTLED_AFTER_US;
use super::world::World;

/// For how long a current watermark guards.
const GUARDED_US: u64 = 1_000_000;

/// What clocks may drift over that time, and how old a call's stamp may be.
const ROUNDED_US: u64 = 20_000;

/// What is not known of how late a frame was, with room.
const LATE_US: u64 = 300_000;

/// What is known of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Surely guarded.
    Guarded,
    /// Surely not.
    Unguarded,
    /// It may be either.
    Unknown,
}

/// What one process was told of partitions.
#[derive(Debug, Default)]
pub(super) struct CurrentNews {
    /// The greatest watermark, and when it came.
    newest: BTreeMap<u32, (Place, u64)>,
    /// When one that was marked as current came last.
    current_us: BTreeMap<u32, u64>,
}

impl CurrentNews {
    /// Something comes to the agent.
    pub(super) fn comes(&mut self, happening: &Happening, now_us: u64) {
        match happening {
            Happening::FeedSaid { frame, .. } => {
                if let Ok(frame) = Frame::decode(frame) {
                    self.take(&frame.evidence, now_us);
                }
            }
            Happening::LinkSaid { message, .. } => {
                if let Ok(FromAggregator::Snapshot(snapshot)) = FromAggregator::decode(message) {
                    self.take(&snapshot.evidence, now_us);
                    // What a snapshot shows is taken with its last part, whichever part said it.
                    self.current_us
                        .values_mut()
                        .for_each(|at_us| *at_us = now_us);
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, evidence: &[Watermark], now_us: u64) {
        for one in evidence {
            let place = Place::of_record(one.log, one.ruled);
            let newest = self.newest.get(&one.partition);
            if newest.is_none_or(|(newest, _)| *newest < place) {
                self.newest.insert(one.partition, (place, now_us));
            }
            if one.current {
                self.current_us.insert(one.partition, now_us);
            }
        }
    }
}

impl World {
    /// Whether a call of an agent is guarded that it makes now.
    pub(super) fn guard_of(&self, agent: usize, (r, d): (usize, usize)) -> Guard {
        let partition = partition_of_pair(RESOURCES[r], DOMAINS[d], self.plan.partitions);
        // Where all is well every watermark is current, whatever its mark says.
        if self.is_well(agent) && self.is_guarded(agent, (r, partition)) {
            return Guard::Guarded;
        }
        let news = &self.agents[agent].current_news;
        let current_us = news.current_us.get(&partition).copied();
        let is_long_ago =
            current_us.is_none_or(|at_us| at_us + GUARDED_US + ROUNDED_US < self.now_us);
        // A host that goes on does everything that waited at one instant: a call before the news is not told
        // from one after it.
        let goes_on_us = self.agents[agent].frozen_until_us + ROUNDED_US;
        // Entries are told apart by their stamps, which all are the same while the wall clock stands still.
        let is_told_apart = goes_on_us < self.now_us && !self.agents[agent].clock.stands_still();
        match is_long_ago && is_told_apart {
            true => Guard::Unguarded,
            false => Guard::Unknown,
        }
    }

    /// Whether faults are over, owners have caught up, so that all they say is current, and what they say
    /// comes in time.
    fn is_well(&self, agent: usize) -> bool {
        let settled_us = self.plan.calm_us() + SETTLED_AFTER_US;
        let since_us = self.hears_in_order_since(agent);
        let since_us = since_us.map(|since_us| since_us.max(settled_us) + GUARDED_US);
        since_us.is_some_and(|since_us| since_us <= self.now_us)
    }

    fn is_guarded(&self, agent: usize, (r, partition): (usize, u32)) -> bool {
        let host = &self.agents[agent];
        let newest = host.current_news.newest.get(&partition);
        let Some(((place, at_us), process)) = newest.zip(host.process.as_ref()) else {
            return false;
        };
        let heard = process.heard_upto(RESOURCES[r], partition);
        let late_us = LATE_US.max(host.slowest_answer_us);
        heard.is_some_and(|heard| *place <= heard)
            && self.now_us + late_us + ROUNDED_US < at_us + GUARDED_US
    }
}
