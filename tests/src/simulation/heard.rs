//! An agent refuses by the statements that it has received, and by no older ones.
//!
//! ```text
//! denied @17 until E, received without a gap up to 23      before E: refused, and the refusal names @17
//! ```
//!
//! That is stricter than leniency, which lets an agent forget: of two statements about a scope the one with
//! the greater log position holds, in any order of arrival, duplicated or late. Knows nothing of frames. What
//! stays true: denials near their end are left out, and so are statements from before the log's clock was
//! right again after a jump or stop.

use tollgate_model::log::{ScopeName, Statement};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::place::Place;

use super::compare::end_us;
use super::documents::{DOMAINS, RESOURCES};
use super::faults::{Episode, Fault, Whose};
use super::ticks::{ticks_come_again_us, ticks_late_us};
use super::world::World;

/// How long a denial must still last to be checked: the uncertainty of how late a frame was, with a margin.
const LEFT_US: u64 = 2_500_000;

/// By how much clocks may differ over the time of an answer, including rounding.
const ROUNDED_US: u64 = 100_000;

/// When a partition gets records again: how long it takes until agents have received statements from it.
const GOES_ON_WITHIN_US: u64 = 5_000_000;

/// How long after the end of a cut the held messages may still be arriving.
const TOLD_WITHIN_US: u64 = 1_000_000;

/// How long log time may differ from the course of true time after the log's clock is right
/// again, or its topic was recreated.
const IN_ORDER_WITHIN_US: u64 = 2_000_000;

/// An agent that keeps fewer denials than there are scopes may have had no room.
pub(super) const ROOM: usize = 100;

/// After this long without a frame, leases may run out.
pub(super) const HEARD_WITHIN_US: u64 = 30_000_000;

impl World {
    /// Notes partitions that got no record for long, or that no aggregator ruled for as long.
    pub(super) fn look_for_still_partitions(&mut self) {
        for partition in 0..self.plan.partitions {
            let mut owners = (0..self.owners.len()).filter(|owner| {
                let host = &self.owners[*owner];
                host.is_up() && host.stalled_until_us <= self.now_us
            });
            if owners.any(|owner| !self.plan.fleet || self.is_assigned(owner, partition)) {
                self.ruled_us.insert(partition, self.now_us);
            }
            let ruled_us = self.ruled_us.get(&partition).copied().unwrap_or(0);
            let taken = self.watch.ruled[partition as usize].taken.last();
            let last_us = taken.map_or(0, |(at_us, _)| *at_us).min(ruled_us);
            if last_us + HEARD_WITHIN_US < self.now_us {
                self.still_us.insert(partition, self.now_us);
            }
        }
    }

    /// Whether a partition stands still: if nothing reaches the log, or no aggregator rules it, there are no new
    /// watermarks, and leases run out too. This lasts until the next frames after it continues and, if the agent is
    /// cut off just then, until those arrive.
    fn is_still(&self, agent: usize, partition: u32) -> bool {
        let Some(seen_us) = self.still_us.get(&partition).copied() else {
            return false;
        };
        let cut_then =
            |one: &&Episode| one.from_us < seen_us + GOES_ON_WITHIN_US && seen_us < one.to_us;
        let cuts = self.cuts_of(agent).filter(cut_then);
        let goes_on_us = cuts.map(|one| one.to_us).max().unwrap_or(0).max(seen_us);
        self.now_us < goes_on_us + GOES_ON_WITHIN_US
    }

    pub(super) fn check_heard(&mut self, agent: usize) {
        self.agents[agent].note_news(self.plan.partitions, self.now_us);
        let host = &self.agents[agent];
        let is_deaf = HEARD_WITHIN_US < self.now_us - host.feed_heard_us
            || host
                .deaf_until_us
                .is_some_and(|until_us| self.now_us < until_us + HEARD_WITHIN_US)
            || self.is_cut_for_long(agent);
        let is_frozen = self.now_us < host.frozen_until_us || !host.waiting.is_empty();
        if is_deaf || is_frozen || host.process.is_none() || host.plan.denials_max < ROOM {
            return;
        }
        let Some(since_us) = self.log_in_order_since_us() else {
            return;
        };
        host.set_clocks(self.now_us);
        for (r, resource) in RESOURCES.iter().enumerate() {
            for domain in DOMAINS {
                match self.refuses_by_what_it_heard(agent, (r, resource), domain, since_us) {
                    Some(Ok(())) => self
                        .watch
                        .cover
                        .see("checked: what was heard is refused by"),
                    Some(Err(what)) => {
                        return self.violated(7, "what was heard is refused by", what);
                    }
                    None => {}
                }
            }
        }
    }

    /// Whether an agent has lacked the frames of some aggregator for so long that leases may run out, whatever
    /// it receives from others or by other ways; or its requests after a change of the ruling aggregator, or
    /// their answers, were cut as long.
    fn is_cut_for_long(&self, agent: usize) -> bool {
        // Held messages arrive when the cut is over, and a reopened feed repeats everything soon after.
        let is_on = |one: &Episode| {
            one.from_us + HEARD_WITHIN_US < self.now_us && self.now_us < one.to_us + HEARD_WITHIN_US
        };
        self.cuts_of(agent).any(is_on)
    }

    /// All cuts between an agent and an aggregator, in any direction.
    fn cuts_of(&self, agent: usize) -> impl Iterator<Item = &Episode> {
        let all = self.plan.episodes.iter();
        all.filter(move |one| matches!(one.fault, Fault::Cut { edge, .. } if edge.agent == agent))
    }

    /// Since when the log's clock has been right and its topic the same; `None`: it is not so now. A denial stated
    /// before that may have ended early for some agents.
    pub(super) fn log_in_order_since_us(&self) -> Option<u64> {
        let begun = self.plan.episodes.iter();
        let mut begun = begun.filter(|one| one.from_us <= self.now_us);
        let since_us = begun.try_fold(self.log_stood_us, |since_us, one| match one.fault {
            Fault::LogClock { .. } | Fault::ClockStops(Whose::Log) => {
                (one.to_us < self.now_us).then(|| since_us.max(one.to_us))
            }
            Fault::TopicAnew => Some(since_us.max(one.from_us)),
            _ => Some(since_us),
        })?;
        // Until a tick has come since then, an aggregator goes by an earlier one.
        Some(match since_us {
            0 => 0,
            since_us => ticks_come_again_us(&self.watch.without_ticks, since_us),
        })
    }

    /// Whether an agent's answer is right for a pair that it knows to be denied since the log is in order.
    /// `None`: it knows of no such denial.
    ///
    /// # Errors
    ///
    /// If the answer is wrong.
    fn refuses_by_what_it_heard(
        &self,
        agent: usize,
        (r, resource): (usize, &str),
        domain: &str,
        since_us: u64,
    ) -> Option<Result<(), String>> {
        let host = &self.agents[agent];
        let partition = partition_of_pair(resource, domain, self.plan.partitions);
        let ruled = &self.watch.ruled[partition as usize];
        let statement = ruled
            .model
            .statements(&ScopeName::new(resource, Some(domain)))
            .last()?;
        let process = host.process.as_ref()?;
        let heard = process.heard_upto(resource, partition)?;
        let generation = ruled.generation_of(statement.place.offset);
        // A lease may also run out because of several faults that are each shorter.
        let news_us = host.news.get(&(r, partition)).map(|(_, at_us)| *at_us)?;
        if news_us + HEARD_WITHIN_US < self.now_us {
            return None;
        }
        let is_known = (generation, statement.place.offset) < (heard.generation, heard.offset);
        // Statements of an older log may no longer hold, nor statements from the lost end
        // of a log before its new begin.
        let is_of_this = heard.generation == generation
            && heard.offset <= ruled.taken.len() as u64
            && ruled.log.is_some_and(|log| log.generation == generation)
            && process.known_log(partition) == ruled.log;
        // From its slowest hello the agent knows the earliest instant at which a frame was sent.
        let left_us = LEFT_US.max(host.slowest_answer_us + ROUNDED_US);
        let lasts = self.lasts(partition, statement, since_us, left_us);
        if !is_known || !is_of_this || self.is_still(agent, partition) || !lasts {
            return None;
        }
        let place = Place {
            generation,
            offset: statement.place.offset,
            entry: statement.place.entry,
        };
        let denied = match host.rates[r].peek(domain) {
            Ok(_) => {
                return Some(Err(format!(
                    "agent {agent}, which has heard up to {heard}, does not refuse {resource} for {domain}: \
                     {place}"
                )));
            }
            Err(denied) => denied,
        };
        // If the whole resource is denied too, the refusal may name that denial.
        let of_pair = denied.scope() == tollgate_agent::Scope::Pair;
        let older = { denied.code() }.filter(|code| of_pair && code.place.offset < place.offset);
        Some(older.map_or(Ok(()), |code| {
            Err(format!(
                "agent {agent}, which has heard up to {heard}, refuses {resource} for {domain} by {code}, and \
                 {place} is newer"
            ))
        }))
    }

    /// Whether a denial that was stated while the log was in order stays in force for `left_us` more, both by the
    /// log's clock and by true time.
    pub(super) fn lasts(
        &self,
        partition: u32,
        statement: &Statement,
        since_us: u64,
        left_us: u64,
    ) -> bool {
        let Some(denial) = statement.denied else {
            return false;
        };
        let offset = statement.place.offset;
        let stream = tollgate_log::Stream::Hits;
        let Some(cause) = self.watch.record(stream, partition, offset) else {
            return false;
        };
        if 0 < since_us && cause.at_us <= since_us + IN_ORDER_WITHIN_US {
            return false;
        }
        let end_us = end_us(denial.end);
        let lasted_us = end_us.saturating_sub(cause.appended.as_micros());
        let by_log = self.log_now_us(partition);
        let early_us = left_us + self.ticks_late_us(cause.at_us);
        by_log.is_some_and(|now_us| now_us + early_us < end_us)
            && self.now_us + early_us < cause.at_us.saturating_add(lasted_us)
    }

    /// How late aggregators' ticks may have been when a denial was published: the aggregator took the denial for
    /// over earlier by as much, and so do the agents.
    fn ticks_late_us(&self, stated_us: u64) -> u64 {
        ticks_late_us(&self.plan, |one, late_us| {
            one.from_us <= self.now_us && stated_us < one.to_us + late_us + TOLD_WITHIN_US
        })
    }
}
