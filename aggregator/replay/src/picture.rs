//! Tiers and other constraints over time, in text.
//!
//! ```text
//! tier 2   4 in 1s     |    12==-------|   digits: hits granted   = active   - cooling down
//! tier 1   2 in 1s     |2=====1==2=====|
//! refused              |   1     3     |
//! window:0 9 in 10s    |2  5  67   8   |   tenths that are used after the hits, #: full
//! closed               |   ~~~~  ~~~   |
//!                       0s        1s
//! ```
//!
//! Draws requests that were played (`simulate`) and entries of the log (`explain`). Knows nothing
//! of where its steps come from. What stays true: a line stays below 100 columns.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tollgate_engine::rules::Until;
use tollgate_engine::rules::request::LimitedBy;
use tollgate_limits::SECOND;
use tollgate_limits::{RateClass, Tier, print_span};
use tollgate_shared::escape::escaped;
use tollgate_shared::time::{Span, Timestamp};

use crate::fill::{self, Lane};

/// Columns of time. With the names in front a line stays below 100.
const COLUMNS: usize = 64;

/// The width of the names in front of a row.
const NAMES: usize = 30;

/// Up to how many requests are listed one by one; of more only those at which something changed, and as
/// many of these.
const LISTED_MAX: usize = 40;

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// The result of one request.
#[derive(Clone, Debug)]
pub struct Step {
    /// When it came.
    pub at: Timestamp,
    /// Hits asked for.
    pub asked: u64,
    /// Hits granted.
    pub granted: u64,
    /// By tier, lowest first: the hits that it granted.
    pub by_tier: Vec<u64>,
    /// By tier: whether this request entered it.
    pub entered: Vec<bool>,
    /// How much of each of the other constraints is used afterwards, in the order of
    /// [`fill::lanes`].
    pub used: Vec<u64>,
    /// The limit that kept it from getting more.
    pub limited_by: Option<LimitedBy>,
    /// When the domain is open again afterwards, under the limit that holds longest.
    pub until: Until,
}

/// The results of all requests of a domain.
#[derive(Clone, Debug)]
pub struct Played {
    /// The resource.
    pub resource: String,
    /// The domain.
    pub domain: String,
    /// Its limits.
    pub class: RateClass,
    /// The instant that times are counted from.
    pub origin: Timestamp,
    /// What hits that were not granted are called: refused, or excess.
    pub beyond: &'static str,
    /// The result of each request.
    pub steps: Vec<Step>,
    /// By tier: when it was entered.
    pub entries: Vec<Vec<Timestamp>>,
}

impl Played {
    /// The end of the picture: the last request, or the instant at which the domain is open again
    /// if that is near.
    pub fn end(&self) -> Timestamp {
        let last = self.steps.last().map_or(self.origin, |step| step.at);
        match self.steps.last().map(|step| step.until) {
            Some(Until::At(end))
                if end.since(last) <= last.since(self.origin).saturating_add(SECOND) =>
            {
                end
            }
            _ => last,
        }
    }
}

/// Columns of time between a beginning and an end.
struct Scale {
    from: Timestamp,
    column: u64,
}

impl Scale {
    fn of(played: &Played) -> Self {
        let from = played.steps.first().map_or(Timestamp::ZERO, |step| step.at);
        let length = played.end().since(from).as_micros() + 1;
        Self {
            from,
            column: length.div_ceil(COLUMNS as u64).max(1),
        }
    }

    fn column_of(&self, at: Timestamp) -> usize {
        let column = at.since(self.from).as_micros() / self.column;
        usize::try_from(column).unwrap_or(usize::MAX)
    }

    /// The columns that `[from, to)` touches.
    fn columns(&self, from: Timestamp, to: Timestamp) -> std::ops::Range<usize> {
        let first = self.column_of(from);
        let behind = to.since(self.from).as_micros().div_ceil(self.column);
        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
        first.min(COLUMNS)..behind.clamp(first.min(COLUMNS), COLUMNS)
    }
}

/// Draws the requests, and lists what happened.
pub fn draw(played: &Played, coloured: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} of {}",
        escaped(&played.resource),
        escaped(&played.domain)
    );
    text.push_str(&draw_lanes(played, coloured));
    push_list(&mut text, played);
    push_sum(&mut text, played);
    text
}

/// Draws tiers and other constraints over time alone.
pub fn draw_lanes(played: &Played, coloured: bool) -> String {
    let scale = Scale::of(played);
    let mut text = String::new();
    for (index, tier) in played.class.tiers().iter().enumerate().rev() {
        let row = tier_row(played, &scale, index, tier);
        push_row(
            &mut text,
            &tier_name(index, tier),
            &row,
            coloured.then_some(GREEN),
        );
    }
    if played.class.is_inaccessible() {
        let _ = writeln!(text, "no tiers: inaccessible");
    }
    let lanes = fill::lanes(&played.class);
    for (index, lane) in lanes.iter().enumerate() {
        let row = lane_row(played, &scale, index, lane.limit);
        push_row(&mut text, &lane_name(lane), &row, coloured.then_some(GREEN));
    }
    let refused = numbers(&scale, &played.steps, |step| step.asked - step.granted);
    push_row(&mut text, played.beyond, &refused, coloured.then_some(RED));
    push_row(
        &mut text,
        "closed",
        &closed_row(played, &scale),
        coloured.then_some(YELLOW),
    );
    push_axis(&mut text, &scale, played.origin);
    let _ = writeln!(
        text,
        "digits: hits (+: more than 9)   = active   - cooling down   ~ closed for one more hit"
    );
    if !lanes.is_empty() {
        let kinds: BTreeSet<&str> = lanes.iter().map(Lane::kind).collect();
        let kinds: Vec<&str> = kinds.into_iter().collect();
        let _ = writeln!(
            text,
            "{}: tenths that are used after the hits   #: full",
            kinds.join(", ")
        );
    }
    text
}

fn lane_name(lane: &Lane) -> String {
    format!("{:<8} {:>6} {}", lane.name, lane.limit, lane.over)
}

/// The most that is used after a hit of each column, in tenths of the limit.
fn lane_row(played: &Played, scale: &Scale, index: usize, limit: u64) -> Vec<char> {
    let mut row = vec![' '; COLUMNS];
    let mut most: Vec<Option<u64>> = vec![None; COLUMNS];
    for step in &played.steps {
        if let Some(most) = most.get_mut(scale.column_of(step.at)) {
            *most = (*most).max(step.used.get(index).copied());
        }
    }
    for (cell, used) in row.iter_mut().zip(most) {
        let Some(used) = used else { continue };
        *cell = match used.saturating_mul(10).checked_div(limit) {
            Some(tenths @ 0..=9) => char::from_digit(tenths as u32, 10).unwrap_or('#'),
            _ => '#',
        };
    }
    row
}

fn tier_name(index: usize, tier: &Tier) -> String {
    let skippable = if tier.skippable { " skippable" } else { "" };
    format!(
        "tier {} {:>6} in {}{skippable}",
        index + 1,
        tier.limit,
        print_span(tier.window)
    )
}

fn tier_row(played: &Played, scale: &Scale, index: usize, tier: &Tier) -> Vec<char> {
    let mut row = vec![' '; COLUMNS];
    let entries = &played.entries[index];
    for (number, entered) in entries.iter().enumerate() {
        let active_end = entered.saturating_add(tier.active);
        let cool_end = active_end.saturating_add(tier.cooldown);
        let again = entries.get(number + 1).copied().unwrap_or(Timestamp::MAX);
        row[scale.columns(active_end.min(again), cool_end.min(again))].fill('-');
        row[scale.columns(*entered, active_end.min(again))].fill('=');
    }
    let granted = numbers(scale, &played.steps, |step| step.by_tier[index]);
    for (cell, granted) in row.iter_mut().zip(granted) {
        if granted != ' ' {
            *cell = granted;
        }
    }
    row
}

/// The sums of each column as digits.
fn numbers(scale: &Scale, steps: &[Step], of: impl Fn(&Step) -> u64) -> Vec<char> {
    let mut sums = vec![0u64; COLUMNS];
    for step in steps {
        if let Some(sum) = sums.get_mut(scale.column_of(step.at)) {
            *sum = sum.saturating_add(of(step));
        }
    }
    sums.iter()
        .map(|sum| match sum {
            0 => ' ',
            1..=9 => char::from_digit(*sum as u32, 10).unwrap_or('+'),
            _ => '+',
        })
        .collect()
}

fn closed_row(played: &Played, scale: &Scale) -> Vec<char> {
    let mut row = vec![' '; COLUMNS];
    for (number, step) in played.steps.iter().enumerate() {
        // A step's denial holds until the next step.
        let next = played
            .steps
            .get(number + 1)
            .map_or(Timestamp::MAX, |next| next.at);
        let end = match step.until {
            Until::Now => continue,
            Until::At(end) => end,
            Until::Never => Timestamp::MAX,
        };
        row[scale.columns(step.at, end.min(next))].fill('~');
    }
    row
}

fn push_row(text: &mut String, name: &str, row: &[char], colour: Option<&str>) {
    let row: String = row.iter().collect();
    let (on, off) = match colour {
        Some(colour) => (colour, PLAIN),
        None => ("", ""),
    };
    let _ = writeln!(text, "{name:<NAMES$}|{on}{row}{off}|");
}

fn push_axis(text: &mut String, scale: &Scale, origin: Timestamp) {
    const MARKS: usize = 4;
    let mut axis = String::new();
    for mark in 0..MARKS {
        let column = mark * COLUMNS / MARKS;
        let at = scale
            .from
            .saturating_add(Span::from_micros(scale.column * column as u64));
        while axis.len() < column {
            axis.push(' ');
        }
        axis.push_str(&seconds(rounded(at.since(origin))));
        axis.push(' ');
    }
    let _ = writeln!(text, "{:NAMES$} {}", "", axis.trim_end());
}

/// Rounded to the millisecond: columns with labels are wider than that.
fn rounded(span: Span) -> Span {
    match span.as_micros() {
        0..100_000 => span,
        micros => Span::from_millis((micros + 500) / 1_000),
    }
}

fn push_list(text: &mut String, played: &Played) {
    let all = played.steps.len() <= LISTED_MAX;
    let mut before: Option<&Step> = None;
    let (mut listed, mut further) = (0, 0);
    for step in &played.steps {
        let changed = before.is_none_or(|before| {
            step.entered.contains(&true)
                || before.limited_by != step.limited_by
                || (before.until == Until::Now) != (step.until == Until::Now)
        });
        before = Some(step);
        if !all && (!changed || LISTED_MAX <= listed) {
            further += usize::from(changed);
            continue;
        }
        listed += 1;
        let _ = writeln!(text, "{}", sentence(played, step));
    }
    let unchanged = played.steps.len() - listed - further;
    let _ = match (all, further) {
        (true, _) => Ok(()),
        (false, 0) => writeln!(
            text,
            "({unchanged} requests at which nothing new happened are not listed)"
        ),
        (false, _) => writeln!(
            text,
            "({unchanged} unchanged and {further} further changes are not listed)"
        ),
    };
}

fn sentence(played: &Played, step: &Step) -> String {
    let mut line = format!("{:>12}  ", seconds(step.at.since(played.origin)));
    if step.granted == 0 {
        line.push_str("refused");
    } else {
        let _ = write!(line, "granted {}", step.granted);
        for (index, hits) in step
            .by_tier
            .iter()
            .enumerate()
            .filter(|(_, hits)| **hits > 0)
        {
            let _ = write!(line, ", {hits} in tier {}", index + 1);
        }
        for (index, _) in step
            .entered
            .iter()
            .enumerate()
            .filter(|(_, entered)| **entered)
        {
            let _ = write!(line, ", enters tier {}", index + 1);
        }
    }
    if let Some(limited_by) = step.limited_by {
        let _ = match limited_by {
            LimitedBy::Tier => write!(line, ", no tier has room"),
            other => write!(line, ", {} limit reached", other.name()),
        };
        if step.granted > 0 {
            let _ = write!(line, " for {} more", step.asked - step.granted);
        }
    }
    match step.until {
        Until::Now => {}
        Until::At(end) => {
            let _ = write!(line, "; closed until {}", seconds(end.since(played.origin)));
        }
        Until::Never => line.push_str("; closed for ever"),
    }
    line
}

fn push_sum(text: &mut String, played: &Played) {
    let granted: u64 = played.steps.iter().map(|step| step.granted).sum();
    let asked: u64 = played.steps.iter().map(|step| step.asked).sum();
    let _ = writeln!(
        text,
        "{granted} of {asked} hits granted, {} refused",
        asked - granted
    );
}

/// A span in seconds, without trailing zeros.
fn seconds(span: Span) -> String {
    let micros = span.as_micros();
    let mut text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    text + "s"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let text = |micros| seconds(Span::from_micros(micros));
        assert_eq!(
            [0, 100_000, 1_000_001, 20_000_000].map(text),
            ["0s", "0.1s", "1.000001s", "20s"]
        );
    }

    #[test]
    fn changes_beyond_the_list_are_counted_apart() {
        // Each of a hundred requests opens or closes the domain; at a hundred more nothing changes.
        let step = |number: u64| Step {
            at: Timestamp::from_micros(number),
            asked: 1,
            granted: 1,
            by_tier: Vec::new(),
            entered: Vec::new(),
            used: Vec::new(),
            limited_by: None,
            until: match number < 100 && number.is_multiple_of(2) {
                true => Until::Never,
                false => Until::Now,
            },
        };
        let played = Played {
            resource: "r".into(),
            domain: "d".into(),
            class: RateClass::default(),
            steps: (0..200).map(step).collect(),
            entries: Vec::new(),
            origin: Timestamp::ZERO,
            beyond: "refused",
        };
        let text = draw(&played, false);
        let expected = "(100 unchanged and 60 further changes are not listed)";
        assert!(text.contains(expected), "{text}");
    }
}
