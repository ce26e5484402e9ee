//! Live traffic under other limits: the calls of a log, played as they come.
//!
//! ```text
//! partitions ──calls──► kept for two seconds, in order of stamps ──► a player for each limits file
//! ```
//!
//! A call that comes later than that is played at the latest instant so far, as an in-line limiter would
//! have ruled it. Has no clock: the caller passes the current time. What stays true: memory grows with
//! pairs, with two seconds of calls and a batch of each partition, not with time, and not with the log.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;
use tollgate_limits::Limits;
use tollgate_shared::escape::escaped;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::{Span, Timestamp};

use super::calls::{Calls, calls_of};
use super::copies::CopiesLeftOut;
use super::fronts::Fronts;
use super::log::LogFault;
use super::pairs::Pairs;
use super::read::RowReading;
use super::replay::Player;
use super::senders::Senders;
use super::table::count;
use super::tape::{Call, CallKind};
use crate::range::{Range, RangePosition};
use crate::source::Source;
use crate::tags::{Tags, unchecked_line};
use tollgate_log::{Delivered, Stream};

/// How long a call is kept back for calls with earlier stamps.
const KEPT_BACK: Span = Span::from_secs(2);

/// How many batches of records are read at once, so that the caller can report and end in between.
const READS_AT_ONCE: usize = 64;

/// How many pairs are shown for each limits file.
const SHOWN_MAX: usize = 5;

/// A log that is followed.
pub struct Follow<'a> {
    reading: &'a RowReading,
    range: Range,
    fronts: Fronts,
    pairs: Pairs,
    players: Vec<(&'a str, Player<'a>)>,
    /// Ordered by stamp, then by arrival.
    waiting: BinaryHeap<Reverse<(Timestamp, u64, CallKey)>>,
    came: u64,
    senders: Senders,
    copies: CopiesLeftOut,
    inputs: FollowInputs,
    tags: Tags,
    unchecked_keys: Vec<String>,
}

/// The part of a call after stamp and number, which order it.
type CallKey = (u32, u32, u32, CallKind);

/// What was read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FollowInputs {
    /// Calls, including those that were passed over.
    pub rows: u64,
    /// Records that this build cannot read.
    pub skipped: u64,
    /// Calls of resources or domains that were not asked for.
    pub passed_over: u64,
    /// Hits that were let through.
    pub hits: u64,
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Batches of agents, among them those of holds.
    pub batches: u64,
    /// Refused reservations that were left out, since their resources are limited by copies.
    pub copies_refused: u64,
    /// Calls that were left out, since one entry states more than anybody makes.
    pub calls_left_out: u64,
    /// Records that retention removed before they could be read.
    pub records_gone: u64,
    /// The stamp of the first call that was played; 0 before the first call.
    pub first_us: u64,
    /// The stamp of the last one.
    pub last_us: u64,
}

/// The results so far.
#[derive(Debug, Serialize)]
pub struct FollowReport<'a> {
    /// The schema's name.
    pub schema: &'static str,
    /// What was read.
    pub inputs: FollowInputs,
    /// Ids of missing record keys: the tags of aggregators' records under them were not checked.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub unchecked_keys: &'a [String],
    /// By limits file.
    pub results: Vec<FollowResult<'a>>,
}

/// The results under one limits file.
#[derive(Debug, Default, Serialize)]
pub struct FollowResult<'a> {
    /// The file.
    pub limits: &'a str,
    /// Calls that were played.
    pub calls: u64,
    /// Calls granted.
    pub granted: u64,
    /// Calls refused.
    pub refused: u64,
    /// Calls refused here that were let through when they were recorded.
    pub excess: u64,
    /// Pairs.
    pub pairs: u64,
    /// Pairs of which a call was refused.
    pub pairs_refused: u64,
    /// Pairs refused here, but not under the first file.
    pub newly_refused: u64,
    /// Pairs refused under the first file, but not here.
    pub no_longer_refused: u64,
    /// The most refused pairs.
    pub worst: Vec<FollowPair<'a>>,
}

/// One of the most refused pairs.
#[derive(Debug, Serialize)]
pub struct FollowPair<'a> {
    /// Its resource.
    pub resource: &'a str,
    /// Its domain.
    pub domain: &'a str,
    /// Its calls.
    pub calls: u64,
    /// How many of them were refused.
    pub refused: u64,
}

impl<'a> Follow<'a> {
    /// Follows a log from a range's beginning to its end, if it has one, under named limits files.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub fn new(
        source: &dyn Source,
        (range, keys): (Range, &Keyring),
        reading: &'a RowReading,
        limits: impl Iterator<Item = (&'a str, &'a Limits)> + Clone,
    ) -> Result<Self, LogFault> {
        let partitions = (0..source.partitions()).filter(|partition| range.has(*partition));
        let cursors = partitions.map(|partition| {
            let cursor = source.open(Stream::Hits, partition, 0)?;
            Ok((partition, cursor))
        });
        let tags = Tags::of(source, keys)?;
        let pairs = Pairs::default();
        let copies = CopiesLeftOut::new(limits.clone().map(|(_, limits)| limits));
        Ok(Self {
            reading,
            range,
            fronts: Fronts::new(cursors.collect::<Result<_, LogFault>>()?),
            players: limits
                .map(|(name, limits)| (name, Player::new(&pairs, limits)))
                .collect(),
            pairs,
            waiting: BinaryHeap::new(),
            came: 0,
            senders: Senders::default(),
            copies,
            inputs: FollowInputs::default(),
            unchecked_keys: tags.unchecked(),
            tags,
        })
    }

    /// Reads new records, and plays the calls that are old enough at `now`. Of a log with many records it reads some:
    /// see [`Follow::is_behind`].
    ///
    /// # Errors
    ///
    /// If the log cannot be read any further.
    pub fn go_on(&mut self, now: Timestamp) -> Result<(), LogFault> {
        if !self.fronts.is_behind() {
            self.fronts.look_again();
        }
        for _ in 0..READS_AT_ONCE {
            let Some((partition, records)) = self.fronts.read(now)? else {
                break;
            };
            for record in &records {
                self.record(partition, record)?;
            }
            self.play_read(now);
        }
        self.inputs.records_gone = self.fronts.gone();
        self.play_read(now);
        Ok(())
    }

    /// Whether the log may have records that were not read yet, so that it is worth going on at once.
    pub fn is_behind(&self) -> bool {
        self.fronts.is_behind()
    }

    /// Plays the calls before which none can come any more.
    fn play_read(&mut self, now: Timestamp) {
        self.play_to(self.fronts.upto().min(now).saturating_sub(KEPT_BACK));
    }

    /// Plays all calls that are still kept back.
    pub fn end(&mut self) {
        self.play_to(Timestamp::MAX);
    }

    fn record(&mut self, partition: u32, delivered: &Delivered) -> Result<(), LogFault> {
        let (offset, appended) = (delivered.offset, delivered.appended);
        match self.range.lies(offset, appended) {
            RangePosition::Before => {
                self.senders.before(partition, delivered, &self.tags);
                return Ok(());
            }
            RangePosition::In => {}
            RangePosition::Behind => return Ok(()),
        }
        let batch = match Calls::of(partition, delivered, &self.tags)? {
            Calls::Batch(batch) => batch,
            Calls::Holds { sender, resources } => {
                self.copies.met(&resources);
                let clock = self.senders.record(partition, &sender, appended);
                self.inputs.batches += u64::from(clock.is_some());
                return Ok(());
            }
            Calls::Tick => {
                self.senders.tick(partition, appended);
                return Ok(());
            }
            Calls::None => return Ok(()),
            Calls::Unreadable(_) => {
                self.inputs.skipped += 1;
                return Ok(());
            }
        };
        let Some(clock) = self.senders.record(partition, &batch.sender, appended) else {
            return Ok(());
        };
        self.inputs.batches += 1;
        let mut copies = std::mem::take(&mut self.copies);
        let each = &mut |resource: &str, domain: &str, call| {
            self.take(resource, domain, call);
            Ok::<(), LogFault>(())
        };
        let left_out = calls_of(&batch, clock, &mut copies, each)?;
        let inputs = &mut self.inputs;
        inputs.calls_left_out = inputs.calls_left_out.saturating_add(left_out);
        self.inputs.copies_refused = copies.refused();
        self.copies = copies;
        Ok(())
    }

    fn take(&mut self, resource: &str, domain: &str, call: Call) {
        self.inputs.rows += call.calls();
        match call.kind {
            CallKind::Refused => self.inputs.refused_calls += call.calls(),
            CallKind::LetThrough | CallKind::Estimate { .. } | CallKind::Charge => {
                self.inputs.hits += u64::from(call.copies);
            }
            CallKind::Refund { .. } => {}
        }
        if !self.reading.takes(resource, domain) {
            self.inputs.passed_over += call.calls();
            return;
        }
        let pair = self.pairs.number_of(resource, domain);
        self.came += 1;
        let key = (pair, call.copies, call.min, call.kind);
        self.waiting.push(Reverse((call.at, self.came, key)));
    }

    fn play_to(&mut self, upto: Timestamp) {
        for (_, player) in &mut self.players {
            player.grow(&self.pairs);
        }
        while let Some(Reverse((at, _, (pair, copies, min, kind)))) = self.waiting.peek()
            && *at <= upto
        {
            let call = Call {
                at: *at,
                pair: *pair,
                copies: *copies,
                min: *min,
                kind: *kind,
            };
            self.waiting.pop();
            if self.inputs.first_us == 0 {
                self.inputs.first_us = call.at.as_micros();
            }
            self.inputs.last_us = self.inputs.last_us.max(call.at.as_micros());
            for (_, player) in &mut self.players {
                player.call(&call);
            }
        }
    }

    /// The results so far.
    pub fn report(&self) -> FollowReport<'_> {
        let first = self.players.first().map(|(_, player)| player);
        let results = self.players.iter();
        FollowReport {
            schema: "tollgate.backtest_follow/1",
            inputs: self.inputs,
            unchecked_keys: &self.unchecked_keys,
            results: results
                .map(|(name, player)| self.result(name, player, first))
                .collect(),
        }
    }

    fn result<'s>(
        &'s self,
        name: &'s str,
        player: &Player<'_>,
        first: Option<&Player<'_>>,
    ) -> FollowResult<'s> {
        let mut result = FollowResult {
            limits: name,
            ..FollowResult::default()
        };
        let mut worst = Vec::new();
        for pair in 0..player.len() as u32 {
            let tally = player.tally(pair);
            if tally.asked.calls == 0 {
                continue;
            }
            let refused = tally.refused();
            let refused_first = first.map_or(0, |first| first.tally(pair).refused());
            result.calls += tally.asked.calls;
            result.granted += tally.granted.calls;
            result.refused += refused;
            result.excess += tally.excess;
            result.pairs += 1;
            result.pairs_refused += u64::from(0 < refused);
            result.newly_refused += u64::from(0 < refused && refused_first == 0);
            result.no_longer_refused += u64::from(refused == 0 && 0 < refused_first);
            if 0 < refused {
                worst.push((Reverse(refused), pair, tally.asked.calls));
            }
        }
        worst.sort_unstable();
        let shown = worst.into_iter().take(SHOWN_MAX);
        result.worst = shown
            .map(|(Reverse(refused), pair, calls)| {
                let (resource, domain) = self.pairs.names(pair);
                FollowPair {
                    resource,
                    domain,
                    calls,
                    refused,
                }
            })
            .collect();
        result
    }
}

impl std::fmt::Display for FollowReport<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inputs = &self.inputs;
        write!(
            f,
            "{} hits and {} refused calls in {} batches",
            count(inputs.hits),
            count(inputs.refused_calls),
            count(inputs.batches)
        )?;
        for (what, number) in [
            (
                "calls on other resources or domains were skipped",
                inputs.passed_over,
            ),
            (
                "refused reservations of copies were left out",
                inputs.copies_refused,
            ),
            (
                "calls of entries that state too many were left out",
                inputs.calls_left_out,
            ),
            ("records cannot be read", inputs.skipped),
            (
                "records were removed before they could be read",
                inputs.records_gone,
            ),
        ] {
            if 0 < number {
                write!(f, "; {} {what}", count(number))?;
            }
        }
        if let Some(line) = unchecked_line(self.unchecked_keys) {
            write!(f, "; {line}")?;
        }
        for (number, result) in self.results.iter().enumerate() {
            write!(
                f,
                "\n  {}: {} calls, {} granted, {} refused ({} of them were let through); {} of {} pairs refused",
                result.limits,
                count(result.calls),
                count(result.granted),
                count(result.refused),
                count(result.excess),
                count(result.pairs_refused),
                count(result.pairs)
            )?;
            if 0 < number {
                write!(
                    f,
                    ", {} newly, {} no longer",
                    count(result.newly_refused),
                    count(result.no_longer_refused)
                )?;
            }
            for pair in &result.worst {
                write!(
                    f,
                    "\n    {} {}: {} of {} refused",
                    escaped(pair.resource),
                    escaped(pair.domain),
                    count(pair.refused),
                    count(pair.calls)
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_writes_no_line_of_a_report() {
        let worst = FollowPair {
            resource: "api",
            domain: "two\nlines",
            calls: 2,
            refused: 1,
        };
        let report = FollowReport {
            schema: "tollgate.backtest_follow/1",
            inputs: FollowInputs::default(),
            unchecked_keys: &[],
            results: vec![FollowResult {
                worst: vec![worst],
                ..FollowResult::default()
            }],
        };
        let text = report.to_string();
        assert!(
            text.ends_with("\n    api two\\nlines: 1 of 2 refused"),
            "{text}"
        );
    }
}
