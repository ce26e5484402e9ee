//! The constraints of one pair over a part of the recording, in columns of a picture.
//!
//! Knows nothing of drawing. What stays true: the rules are those of the replay, which this only observes;
//! memory does not grow with the length of the recording.

use std::io;

use tollgate_limits::{Limits, RateClass};
use tollgate_shared::time::{Span, Timestamp};

use super::networks::limited_as;
use super::pairs::Pairs;
use super::replay::Player;
use super::tally::PairTally;
use super::tape::{Extent, Tape};
use crate::fill;

/// How many columns a picture has.
const COLUMNS: u64 = 240;

/// How many entries into one tier are kept. A picture cannot show more of them than it has columns.
const ENTRIES_MAX: usize = 2 * COLUMNS as usize;

/// What happened in one column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Hits asked for.
    pub asked: u64,
    /// Hits granted.
    pub granted: u64,
    /// By tier: the most hits in its window after a call.
    pub held: Vec<u64>,
    /// By constraint other than tiers, as [`fill::lanes`] lists them: the most that was used after a call.
    pub used: Vec<u64>,
}

/// What happened to one pair.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its resource.
    pub resource: String,
    /// Its domain.
    pub domain: String,
    /// Its limits.
    pub class: RateClass,
    /// Where the first column begins.
    pub from: Timestamp,
    /// How long a column is.
    pub width: Span,
    /// The columns.
    pub columns: Vec<Column>,
    /// By tier: when it was entered.
    pub entries: Vec<Vec<Timestamp>>,
}

/// Traces a pair around its longest refusal, or over the whole recording if it has none. `None` if the pair
/// has no limits on rates.
///
/// # Errors
///
/// If the tape cannot be read.
pub fn trace(
    tape: &Tape,
    pairs: &Pairs,
    limits: &Limits,
    number: u32,
    tally: &PairTally,
) -> io::Result<Option<Trace>> {
    let (resource, domain) = pairs.names(number);
    let named = match limits.rate(resource) {
        Some(rate) => limited_as(rate, domain),
        None => return Ok(None),
    };
    let Some(class) = limits.class_of(resource, &named) else {
        return Ok(None);
    };
    // Calls of the greatest stamp may be played after it.
    let extent = Extent {
        last: tape.played_until(),
        ..tape.extent()
    };
    let (from, to) = part(class, tally, extent);
    // Whole milliseconds, for people.
    let width = (to.since(from).as_micros() / COLUMNS + 1).next_multiple_of(1_000);
    let mut trace = Trace {
        resource: resource.to_owned(),
        domain: domain.to_owned(),
        class: class.clone(),
        from,
        width: Span::from_micros(width),
        columns: vec![Column::default(); COLUMNS as usize],
        entries: vec![Vec::new(); class.tiers().len()],
    };
    let of_resource = pairs.pair(number).resource;
    let mut player = Player::new(pairs, limits);
    tape.play(&mut |call| {
        // Other pairs' calls matter too, through the resource's global limit.
        if pairs.pair(call.pair).resource != of_resource || to < call.at {
            return;
        }
        let outcome = player.call(call);
        if call.pair == number {
            trace.look(&player, number, outcome.at, &outcome);
        }
    })?;
    Ok(Some(trace))
}

/// The part of the recording to show: the longest refusal, and around it the time that tiers and windows need
/// to return to their initial state.
fn part(class: &RateClass, tally: &PairTally, extent: Extent) -> (Timestamp, Timestamp) {
    if tally.refused() == 0 {
        return (extent.first, extent.last);
    }
    let cycle = |tier: &tollgate_limits::Tier| {
        tier.active
            .as_micros()
            .saturating_add(tier.cooldown.as_micros())
    };
    let cycle = class.tiers().iter().map(cycle).max().unwrap_or(0);
    let windows = class.sliding().map(|window| window.window.as_micros());
    let cycle = cycle.max(windows.max().unwrap_or(0));
    let around = Span::from_micros(cycle.max(tally.longest.span().as_micros()).max(10_000_000));
    let from = tally.longest.from.saturating_sub(around).max(extent.first);
    let to = tally.longest.to.saturating_add(around).min(extent.last);
    (from.min(to), to)
}

impl Trace {
    fn look(
        &mut self,
        player: &Player<'_>,
        number: u32,
        at: Timestamp,
        outcome: &super::tally::TallyOutcome,
    ) {
        let Some(state) = player.state(number) else {
            return;
        };
        let tiers = self.class.tiers().iter().zip(state.tiers.iter());
        for ((tier, state), entries) in tiers.zip(&mut self.entries) {
            let over = |entered: Timestamp| {
                let end = entered.saturating_add(tier.active);
                end.saturating_add(tier.cooldown) < self.from
            };
            if let Some(entered) = state.entered
                && entries.last() != Some(&entered)
                && !over(entered)
                && entries.len() < ENTRIES_MAX
            {
                entries.push(entered);
            }
        }
        if at < self.from {
            return;
        }
        let number = at.since(self.from).as_micros() / self.width.as_micros();
        let Some(column) = self.columns.get_mut(number as usize) else {
            return;
        };
        column.asked += outcome.asked.hits;
        column.granted += outcome.granted.hits;
        column.held.resize(self.class.tiers().len(), 0);
        let tiers = self.class.tiers().iter().zip(state.tiers.iter());
        for ((tier, state), held) in tiers.zip(&mut column.held) {
            *held = (*held).max(state.window.held(tier.window, at));
        }
        let used = fill::used(&self.class, state, at);
        column.used.resize(used.len(), 0);
        for (most, used) in column.used.iter_mut().zip(used) {
            *most = (*most).max(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::tape::{Call, CallKind, PlayOrder, Recorder};

    #[test]
    fn a_picture_has_the_calls_that_are_spread_over_the_last_second() {
        let limits = "version = 1\nrules = 2\n[rate.r]\nrate = \"5/s\"\n";
        let limits = Limits::parse(limits).expect("good limits");
        let mut pairs = Pairs::default();
        let pair = pairs.number_of("r", "d");
        let mut recorder = Recorder::new(PlayOrder::Stamps).spread(true);
        for _ in 0..4 {
            let call = Call {
                at: Timestamp::from_millis(100_000),
                pair,
                copies: 1,
                min: 1,
                kind: CallKind::LetThrough,
            };
            recorder.push(call).expect("memory");
        }
        let tape = recorder.wind();
        let trace = trace(&tape, &pairs, &limits, pair, &PairTally::default());
        let trace = trace.expect("memory").expect("a rate");
        let asked: u64 = trace.columns.iter().map(|column| column.asked).sum();
        assert_eq!(asked, 4);
    }
}
