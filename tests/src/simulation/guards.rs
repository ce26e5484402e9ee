//! Whether an agent's calls are guarded, judged by the messages on the wire and not by the agent's own marks.
//!
//! ```text
//! the newest watermark of partition 3 arrived at 7.0 s, marked as current
//! a call at 7.4 s     guarded, if there are no faults: its excess is debt
//! a call at 8.2 s     unguarded in any case: its excess is no debt
//! ```
//!
//! Law 8 binds guarded calls only, so an agent that marked all its calls as unguarded would be bound by
//! nothing. Knows nothing of the marks of entries. What stays true: calls that are neither surely guarded nor
//! surely unguarded are not judged.

use std::collections::BTreeMap;

use tollgate_agent::simulation::Happening;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::place::Place;
use tollgate_shared::wire::frame::{Frame, Watermark};
use tollgate_shared::wire::link::FromAggregator;

use super::documents::{DOMAINS, RESOURCES};
use super::held::SETTLED_AFTER_US;
use super::world::World;

/// How long a current watermark guards.
const GUARDED_US: u64 = 1_000_000;

/// By how much clocks may drift over that time, plus the age that a call's stamp may have.
const ROUNDED_US: u64 = 20_000;

/// The uncertainty of how late a frame was, with a margin.
const LATE_US: u64 = 300_000;

/// What the simulation knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Surely guarded.
    Guarded,
    /// Surely unguarded.
    Unguarded,
    /// Either.
    Unknown,
}

/// The watermarks that one process received.
#[derive(Debug, Default)]
pub(super) struct CurrentNews {
    /// The greatest watermark, and when it arrived.
    newest: BTreeMap<u32, (Place, u64)>,
    /// When a watermark marked as current last arrived.
    current_us: BTreeMap<u32, u64>,
}

impl CurrentNews {
    /// Notes an arrival at the agent.
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
                    // A snapshot's watermarks take effect with its last part, whichever part carried them.
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
    /// Whether a call that an agent makes now is guarded.
    pub(super) fn guard_of(&self, agent: usize, (r, d): (usize, usize)) -> Guard {
        let partition = partition_of_pair(RESOURCES[r], DOMAINS[d], self.plan.partitions);
        // Without faults every watermark is current, whatever its mark.
        if self.is_well(agent) && self.is_guarded(agent, (r, partition)) {
            return Guard::Guarded;
        }
        let news = &self.agents[agent].current_news;
        let current_us = news.current_us.get(&partition).copied();
        let is_long_ago =
            current_us.is_none_or(|at_us| at_us + GUARDED_US + ROUNDED_US < self.now_us);
        // A host that continues handles everything that waited at one instant: a call before the watermark
        // cannot be told from one after it.
        let goes_on_us = self.agents[agent].frozen_until_us + ROUNDED_US;
        // Stamps distinguish entries, and are all equal while the wall clock is stopped.
        let is_told_apart = goes_on_us < self.now_us && !self.agents[agent].clock.stands_still();
        match is_long_ago && is_told_apart {
            true => Guard::Unguarded,
            false => Guard::Unknown,
        }
    }

    /// Whether faults are over, aggregators have caught up, so that all their watermarks are current, and
    /// their messages arrive in time.
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
