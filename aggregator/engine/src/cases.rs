//! Test vectors: cases in JSON, one a line, played through the rules.
//!
//! ```text
//! {"name":"five","limits":{"tiers":[…]},"ops":[{"t":0,"domain":"d","copies":1,"min":1}]}
//!     -> the same, and in each op: "result":{"granted":1,"burst":true,…}
//! ```
//!
//! `mode` tells the kinds apart: `stream` is the reading of the log, none (or `rate`) the in-line
//! one, `reserve` and `hold` are those of copies, which know their cases themselves. What an op is expected to result in is ignored. Knows nothing of files. What stays true: a
//! result has the field names that an expectation has, so that the two are compared as they are.

pub(crate) mod fault;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_shared::time::{Span, Timestamp};

pub use fault::CaseFault;

use crate::copies;
use crate::inline::{Inline, tier_counts};
use crate::limits::{RateClass, Tier, normalise};
use crate::rules::request::{LimitedBy, Request};
use crate::rules::{Until, second, tiers};
use crate::stream::Pair;

/// Plays one case and gives it back with a `result` in each op.
///
/// # Errors
///
/// [`CaseFault`] says what is wrong with the line.
pub fn play(line: &str) -> Result<Value, CaseFault> {
    let mut case: Value = serde_json::from_str(line)?;
    let mode = Mode::deserialize(&case)?;
    let results = match mode.mode.as_deref() {
        None | Some("rate") => play_rate(&RateCase::deserialize(&case)?)?,
        Some("stream") => play_stream(&StreamCase::deserialize(&case)?)?,
        Some("reserve" | "hold") => copies::cases::run(&case)?,
        Some(other) => {
            let found = other.to_owned();
            return Err(CaseFault::Mode { found });
        }
    };
    let ops = case.get_mut("ops").and_then(Value::as_array_mut);
    for (op, result) in ops.into_iter().flatten().zip(results) {
        if let Some(op) = op.as_object_mut() {
            op.insert("result".to_owned(), result);
        }
    }
    Ok(case)
}

#[derive(Deserialize)]
struct Mode {
    mode: Option<String>,
}

/// A tier as cases write it, all times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct CaseTier {
    limit: u64,
    window: u64,
    active: u64,
    cooldown: u64,
    skippable: bool,
}

#[derive(Clone, Deserialize)]
struct CaseLimits {
    tiers: Vec<CaseTier>,
    hard: Option<u64>,
    global: Option<u64>,
    #[serde(default)]
    domains: BTreeMap<String, CaseOverride>,
}

#[derive(Clone, Deserialize)]
struct CaseOverride {
    tiers: Option<Vec<CaseTier>>,
    hard: Option<u64>,
}

#[derive(Deserialize)]
struct RateCase {
    limits: CaseLimits,
    ops: Vec<RateOp>,
}

#[derive(Deserialize)]
struct RateOp {
    t: u64,
    domain: String,
    copies: u64,
    min: u64,
}

#[derive(Serialize)]
struct RateResult {
    granted: u64,
    burst: bool,
    limited_by: Option<&'static str>,
    tier: usize,
    tier_limit: u64,
    tier_hits: u64,
    domain_last_second: u64,
    global_last_second: u64,
    domain_until: Option<CaseEnd>,
    global_until: Option<CaseEnd>,
}

#[derive(Deserialize)]
struct StreamCase {
    limits: CaseLimits,
    ops: Vec<StreamOp>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum StreamOp {
    Entry {
        t: u64,
        domain: String,
        n: u64,
        min: Option<u64>,
    },
    Limits {
        t: u64,
        limits: CaseLimits,
    },
}

#[derive(Serialize)]
struct EntryResult {
    granted: u64,
    excess: u64,
    late: u64,
    tier: usize,
    tier_hits: u64,
    domain_last_second: u64,
    denied_until: Option<CaseEnd>,
}

#[derive(Serialize)]
struct LimitsResult<'a> {
    denials: BTreeMap<&'a str, CaseEnd>,
}

/// An end as cases write it.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum CaseEnd {
    At(u64),
    Never(&'static str),
}

impl CaseEnd {
    fn of(end: Timestamp) -> Self {
        match end {
            Timestamp::MAX => Self::Never("never"),
            end => Self::At(end.as_micros()),
        }
    }

    fn of_until(until: Until) -> Option<Self> {
        match until {
            Until::Now => None,
            Until::At(end) => Some(Self::of(end)),
            Until::Never => Some(Self::of(Timestamp::MAX)),
        }
    }
}

impl From<CaseTier> for Tier {
    fn from(tier: CaseTier) -> Self {
        Self {
            limit: tier.limit,
            window: Span::from_micros(tier.window),
            active: Span::from_micros(tier.active),
            cooldown: Span::from_micros(tier.cooldown),
            skippable: tier.skippable,
        }
    }
}

impl From<Tier> for CaseTier {
    fn from(tier: Tier) -> Self {
        Self {
            limit: tier.limit,
            window: tier.window.as_micros(),
            active: tier.active.as_micros(),
            cooldown: tier.cooldown.as_micros(),
            skippable: tier.skippable,
        }
    }
}

impl CaseLimits {
    /// The limits of a domain: what it does not state it inherits.
    fn class_of(&self, domain: &str) -> RateClass {
        let own = self.domains.get(domain);
        let tiers = own.and_then(|own| own.tiers.as_ref());
        let tiers = tiers.unwrap_or(&self.tiers).iter().copied();
        let tiers: Vec<Tier> = tiers.map(Tier::from).collect();
        RateClass {
            tiers: Some(normalise(&tiers).0),
            hard: own.and_then(|own| own.hard).or(self.hard),
            ..RateClass::default()
        }
    }
}

fn play_rate(case: &RateCase) -> Result<Vec<Value>, CaseFault> {
    let mut inline = Inline::new(case.limits.global);
    let mut classes: BTreeMap<&str, RateClass> = BTreeMap::new();
    let mut results = Vec::with_capacity(case.ops.len());
    for op in &case.ops {
        let class = classes
            .entry(&op.domain)
            .or_insert_with(|| case.limits.class_of(&op.domain));
        let request = Request {
            copies: op.copies,
            min: op.min,
        };
        let answer = inline.request(class, Timestamp::from_micros(op.t), &op.domain, request);
        results.push(serde_json::to_value(RateResult {
            granted: answer.granted,
            burst: answer.burst,
            limited_by: answer.limited_by.map(|by| match by {
                LimitedBy::Hard => "hard",
                LimitedBy::Global => "global",
                LimitedBy::Tier => "tier",
            }),
            tier: answer.tier,
            tier_limit: answer.tier_limit,
            tier_hits: answer.tier_hits,
            domain_last_second: answer.domain_last_second,
            global_last_second: answer.global_last_second,
            domain_until: CaseEnd::of_until(answer.domain_until),
            global_until: CaseEnd::of_until(answer.global_until),
        })?);
    }
    Ok(results)
}

/// One domain of a stream case.
struct Ruled {
    class: RateClass,
    pair: Pair,
    denied_until: Option<Timestamp>,
}

fn play_stream(case: &StreamCase) -> Result<Vec<Value>, CaseFault> {
    let mut limits = &case.limits;
    let mut domains: BTreeMap<&str, Ruled> = BTreeMap::new();
    let mut results = Vec::with_capacity(case.ops.len());
    for op in &case.ops {
        results.push(match op {
            StreamOp::Entry { t, domain, n, min } => {
                let ruled = domains.entry(domain).or_insert_with(|| {
                    let class = limits.class_of(domain);
                    let pair = Pair::of(&class);
                    Ruled {
                        class,
                        pair,
                        denied_until: None,
                    }
                });
                let request = Request {
                    copies: *n,
                    min: min.unwrap_or(0),
                };
                serde_json::to_value(ruled.entry(Timestamp::from_micros(*t), request))?
            }
            StreamOp::Limits { t, limits: new } => {
                limits = new;
                let mut denials = BTreeMap::new();
                for (domain, ruled) in &mut domains {
                    ruled.new_limits(Timestamp::from_micros(*t), limits.class_of(domain));
                    if let Some(end) = ruled.denied_until {
                        denials.insert(*domain, CaseEnd::of(end));
                    }
                }
                serde_json::to_value(LimitsResult { denials })?
            }
        });
    }
    Ok(results)
}

impl Ruled {
    fn entry(&mut self, at: Timestamp, request: Request) -> EntryResult {
        let ruled = self.pair.entry(&self.class, at, request);
        let now = self.pair.now();
        let closure = self.pair.closure(&self.class, now);
        self.denied_until = closure.map(|closure| closure.end);
        let tier = tiers::current(&self.class, &self.pair.state, now);
        EntryResult {
            granted: ruled.granted,
            excess: ruled.excess,
            late: ruled.late,
            tier,
            tier_hits: tier_counts(&self.class, &self.pair.state, tier, now).1,
            domain_last_second: second::held(&self.pair.state, now),
            denied_until: self.denied_until.map(CaseEnd::of),
        }
    }

    /// A version whose record stands at `at`: what is in force is ruled again, nothing is started.
    fn new_limits(&mut self, at: Timestamp, class: RateClass) {
        self.pair.new_limits(&self.class, &class);
        self.class = class;
        let now = self.pair.now().max(at);
        let in_force = self.denied_until.is_some_and(|end| now < end);
        let closure = match in_force {
            true => self.pair.closure(&self.class, now),
            false => None,
        };
        self.denied_until = closure.map(|closure| closure.end);
    }
}
