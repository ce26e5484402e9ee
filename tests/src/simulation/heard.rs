//! What an agent has heard it refuses by, and by nothing older.
//!
//! ```text
//! denied @17 until E, heard without a gap up to 23       before E: refused, and @17 is named
//! ```
//!
//! That is stricter than leniency, which lets an agent forget: of two statements about a scope the one of the
//! greater place holds, whatever comes first, twice or late. Knows nothing of frames. What stays true: what is
//! near its end, and what was stated before the log's clock was right again that jumped or stood still, is left out.

use tollgate_model::log::{ScopeName, Statement};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::place::Place;

use super::compare::end_us;
use super::documents::{DOMAINS, RESOURCES};
use super::faults::{Episode, Fault, Whose};
use super::ticks::{ticks_come_again_us, ticks_late_us};
use super::world::World;

/// How long a denial has still to last: what is not known of how late a frame was, with room.
const LEFT_US: u64 = 2_500_000;

/// What clocks may be apart over the time of an answer, and what is rounded.
const ROUNDED_US: u64 = 100_000;

/// How long it takes, when something comes to a partition again, until agents have heard of it.
const GOES_ON_WITHIN_US: u64 = 5_000_000;

/// How long after nothing came through what was held up may be told.
const TOLD_WITHIN_US: u64 = 1_000_000;

/// How long after the log's clock is right again, or its topic was made anew, its time may not go on as true time does.
const IN_ORDER_WITHIN_US: u64 = 2_000_000;

/// Who keeps fewer denials than there are scopes may have had no room.
pub(super) const ROOM: usize = 100;

/// No frame heard for so long, and leases may run out.
pub(super) const HEARD_WITHIN_US: u64 = 30_000_000;

impl World {
    /// Takes note of partitions to which nothing came for long, or which nobody ruled for as long.
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

    /// Where nothing reaches the log, or nobody rules it, nothing is news, and leases run out as well; until the next
    /// frames, when it goes on, and where an agent is cut off just then, until those come through.
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

    /// Whether an agent has lacked the frames of some owner for so long that leases may run out, whatever it
    /// hears from others, and by other ways; or what it asks for when an owner is another, or the answers.
    fn is_cut_for_long(&self, agent: usize) -> bool {
        // What was held comes when the cut is over, and a feed that was opened anew tells all soon after.
        let is_on = |one: &Episode| {
            one.from_us + HEARD_WITHIN_US < self.now_us && self.now_us < one.to_us + HEARD_WITHIN_US
        };
        self.cuts_of(agent).any(is_on)
    }

    /// All that cut an agent off from an owner, one way or the other.
    fn cuts_of(&self, agent: usize) -> impl Iterator<Item = &Episode> {
        let all = self.plan.episodes.iter();
        all.filter(move |one| matches!(one.fault, Fault::Cut { edge, .. } if edge.agent == agent))
    }

    /// Since when the log's clock is right and its topic the same; none: it is not. What was stated before that may
    /// have been over early for some.
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
        // Until a tick has come since then an owner goes by one of before.
        Some(match since_us {
            0 => 0,
            since_us => ticks_come_again_us(&self.watch.without_ticks, since_us),
        })
    }

    /// Whether an agent answers rightly for a pair that it knows to be denied since the log is in order; none: it knows
    /// of no such denial.
    ///
    /// # Errors
    ///
    /// What is wrong.
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
        // By faults that are each shorter than that a lease may run out, too.
        let news_us = host.news.get(&(r, partition)).map(|(_, at_us)| *at_us)?;
        if news_us + HEARD_WITHIN_US < self.now_us {
            return None;
        }
        let is_known = (generation, statement.place.offset) < (heard.generation, heard.offset);
        // Of an older log nothing may hold any more, nor of an end that is lost and not begun anew yet.
        let is_of_this = heard.generation == generation
            && heard.offset <= ruled.taken.len() as u64
            && ruled.log.is_some_and(|log| log.generation == generation)
            && process.known_log(partition) == ruled.log;
        // By the asking that took longest the agent knows when at the earliest a frame was sent.
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
        // Where the whole resource is denied too, that may be what is named.
        let of_pair = denied.scope() == tollgate_agent::Scope::Pair;
        let older = { denied.code() }.filter(|code| of_pair && code.place.offset < place.offset);
        Some(older.map_or(Ok(()), |code| {
            Err(format!(
                "agent {agent}, which has heard up to {heard}, refuses {resource} for {domain} by {code}, and \
                 {place} is newer"
            ))
        }))
    }

    /// Whether a denial that was stated while the log was in order is in force for so long yet, by the log's clock and
    /// by true time.
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

    /// How late ticks of owners may have been when a denial was told: who told it took it for over by so much too
    /// early, and so does whoever was told.
    fn ticks_late_us(&self, stated_us: u64) -> u64 {
        ticks_late_us(&self.plan, |one, late_us| {
            one.from_us <= self.now_us && stated_us < one.to_us + late_us + TOLD_WITHIN_US
        })
    }
}
