//! A figure: a measured value, its unit, its target, and the peers' values.

use serde_json::{Map, Value, json};

use super::stats::{Spread, ratios};

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// One measured value with its unit, target and peers.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    name: String,
    unit: &'static str,
    /// `None` if it could not be measured; the remark has the reason.
    value: Option<Spread>,
    target: Option<Target>,
    peers: Vec<(String, Spread)>,
    note: Option<String>,
}

impl Figure {
    /// A figure with a spread; its value is the median.
    pub fn new(name: impl Into<String>, unit: &'static str, value: Spread) -> Self {
        Self {
            name: name.into(),
            unit,
            value: Some(value),
            target: None,
            peers: Vec::new(),
            note: None,
        }
    }

    /// A figure of rounds; `None` if there were none.
    pub fn of_rounds(name: impl Into<String>, unit: &'static str, rounds: &[f64]) -> Option<Self> {
        Some(Self::new(name, unit, Spread::of(rounds)?))
    }

    /// A ratio, taken round by round; `None` if there were no rounds.
    pub fn of_ratio(name: impl Into<String>, over: &[f64], under: &[f64]) -> Option<Self> {
        Self::of_rounds(name, "×", &ratios(over, under))
    }

    /// A figure of one value.
    pub fn single(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self::new(name, unit, Spread::single(value))
    }

    /// A figure that could not be measured, with the reason.
    pub fn absent(name: impl Into<String>, unit: &'static str, why: impl Into<String>) -> Self {
        Self {
            value: None,
            ..Self::single(name, unit, 0.0).note(why)
        }
    }

    /// Sets the target.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Adds a peer's figure from the same run, if there were rounds of it.
    #[must_use]
    pub fn peer(mut self, name: impl Into<String>, rounds: &[f64]) -> Self {
        if let Some(spread) = Spread::of(rounds) {
            self.peers.push((name.into(), spread));
        }
        self
    }

    /// Sets the remark: how it was measured, or what it does not show.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The figure's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The remark.
    pub fn remark(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether the median reaches the target; `None` without a target or without a value.
    pub fn is_met(&self) -> Option<bool> {
        let median = self.value?.median;
        self.target.map(|target| match target {
            Target::AtMost(most) => median <= most,
            Target::AtLeast(least) => least <= median,
        })
    }

    /// `met`, `MISSED`, `NOT MEASURED`, or nothing without a target.
    pub fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None if self.value.is_none() => "NOT MEASURED",
            None => "",
        }
    }

    /// The value with its unit.
    pub fn value_text(&self) -> String {
        self.value.map_or_else(String::new, |value| {
            format!("{} {}", number(value.median), self.unit)
                .trim_end()
                .to_owned()
        })
    }

    /// The least and the greatest of the rounds; empty for a single value.
    pub fn range_text(&self) -> String {
        self.value.as_ref().map_or_else(String::new, range)
    }

    /// The target as text.
    pub fn target_text(&self) -> String {
        match self.target {
            Some(Target::AtMost(most)) => format!("≤ {}", number(most)),
            Some(Target::AtLeast(least)) => format!("≥ {}", number(least)),
            None => String::new(),
        }
    }

    /// The peers with their values and ranges.
    pub fn peers_text(&self) -> String {
        let one = |(name, spread): &(String, Spread)| match range(spread) {
            range if range.is_empty() => format!("{name}: {}", number(spread.median)),
            range => format!("{name}: {} ({range})", number(spread.median)),
        };
        self.peers.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// The figure as one JSON object.
    pub fn to_json(&self, bench: &str) -> Value {
        let (target, bound) = match self.target {
            Some(Target::AtMost(most)) => (json!(most), json!("at_most")),
            Some(Target::AtLeast(least)) => (json!(least), json!("at_least")),
            None => (Value::Null, Value::Null),
        };
        let peers: Map<String, Value> = self
            .peers
            .iter()
            .map(|(name, spread)| (name.clone(), json!(spread.median)))
            .collect();
        json!({
            "schema": "tollgate.bench/1",
            "bench": bench,
            "figure": self.name,
            "value": self.value.map(|value| value.median),
            "unit": self.unit,
            "low": self.value.map(|value| value.low),
            "high": self.value.map(|value| value.high),
            "rounds": self.value.map_or(0, |value| value.count),
            "target": target,
            "bound": bound,
            "met": self.is_met(),
            "peers": peers,
            "note": self.note,
        })
    }
}

fn range(spread: &Spread) -> String {
    match spread.count {
        1 => String::new(),
        _ => format!("{} … {}", number(spread.low), number(spread.high)),
    }
}

/// A number with its significant digits: three, and all of those before the point.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return format!("{value}");
    }
    let digits = match value.abs() {
        0.0 => 0,
        size if size < 0.1 => 4,
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    grouped(&format!("{value:.digits$}"))
}

/// Groups the digits before the point by three.
fn grouped(text: &str) -> String {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (sign, digits) = whole
        .strip_prefix('-')
        .map_or(("", whole), |digits| ("-", digits));
    let mut out = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if 0 < index && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_by_the_median_up_to_its_edge() {
        let rounds = [1.0, 30.0, 500.0];
        let figure = |target| {
            Figure::of_rounds("hot", "ns", &rounds)
                .expect("rounds")
                .target(target)
        };
        assert_eq!(figure(Target::AtMost(30.0)).is_met(), Some(true));
        assert_eq!(figure(Target::AtMost(29.9)).is_met(), Some(false));
        assert_eq!(figure(Target::AtLeast(30.0)).is_met(), Some(true));
        assert_eq!(figure(Target::AtLeast(30.1)).verdict(), "MISSED");
        assert_eq!(Figure::single("hot", "ns", 1.0).is_met(), None);
        assert_eq!(Figure::of_rounds("hot", "ns", &[]), None);
    }

    #[test]
    fn an_unmeasured_target_is_neither_met_nor_zero() {
        let figure = Figure::absent("cold", "ns", "no room").target(Target::AtMost(200.0));
        assert_eq!(figure.is_met(), None);
        assert_eq!(figure.verdict(), "NOT MEASURED");
        assert_eq!(figure.value_text(), "");
        let line = figure.to_json("hit");
        assert_eq!((&line["value"], &line["met"]), (&Value::Null, &Value::Null));
        assert_eq!(line["note"], "no room");
    }

    #[test]
    fn a_json_line_has_what_the_format_says() {
        let figure = Figure::of_rounds("hot", "ns", &[20.0, 22.0, 21.0])
            .expect("rounds")
            .target(Target::AtMost(30.0))
            .peer("governor", &[74.0, 76.0, 75.0]);
        let line = figure.to_json("hit");
        assert_eq!(line["bench"], "hit");
        assert_eq!(line["figure"], "hot");
        assert_eq!(line["value"], 21.0);
        assert_eq!(line["unit"], "ns");
        assert_eq!(line["target"], 30.0);
        assert_eq!(line["bound"], "at_most");
        assert_eq!(line["met"], true);
        assert_eq!(line["peers"]["governor"], 75.0);
        assert_eq!(
            Figure::single("x", "ns", 1.0).to_json("hit")["target"],
            Value::Null
        );
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(number(5_012_345.6), "5 012 346");
        assert_eq!(number(-12_345.0), "-12 345");
        assert_eq!(number(123.4), "123");
        assert_eq!(number(41.26), "41.3");
        assert_eq!(number(3.456), "3.46");
        assert_eq!(number(0.1234), "0.123");
        assert_eq!(number(0.01234), "0.0123");
        assert_eq!(number(0.0), "0");
    }
}
