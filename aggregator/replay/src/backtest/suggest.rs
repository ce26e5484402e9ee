//! The least limit that refuses at most a share of the calls.
//!
//! ```text
//! window 10s, at most 0.1 % refused     30 refuses 0.036 %, 21 refuses 0.094 %, 20 refuses 0.131 %: 21
//! ```
//!
//! Computed for each window, tier, hard limit, bucket and quota of resources in the limits files: a number of hits in
//! that window or period, or a burst at that rate, as the only constraint of every domain. Limits are tried by
//! playing the recording again, all resources and constraints at once, doubling until one suffices and then
//! bisecting.
//!
//! For calls of one hit the answer is exact: whatever a lower limit grants a higher one grants too. (By induction: a
//! call that L grants and L + 1 refuses would find L + 1 hits in its window, at least two of them refused under L;
//! the later of those two had L granted hits before it in its own window, and with the earlier one L + 1 under L + 1,
//! so that it would have been refused there as well.) The greater of two bursts has granted at least as many calls at
//! every instant: it refuses one that the smaller grants only if it has granted one more before. Calls for several
//! copies break this: for them the answer suffices, and the next lower limit does not, but a still lower one might.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use serde::Serialize;
use tollgate_engine::rules::Stamps;
use tollgate_limits::{
    Bucket, Calendar, Limits, Quota, Rate, RateClass, RateResource, Window, Zone, print_quota,
    print_rate, whole_rate,
};
use tollgate_shared::time::{Span, Timestamp};

use super::answer::answer;
use super::moved::MovedEstimates;
use super::networks::Networks;
use super::pairs::Pairs;
use super::states::States;
use super::tape::{Call, Tape};

/// A share of calls, in parts of a thousand million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareE9(pub u64);

/// A sufficient limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    /// The resource.
    pub resource: String,
    /// `window`, `bucket` or `quota`.
    pub constraint: &'static str,
    /// The window; for a bucket the time in which its rate refills the limit's copies; for a quota 0.
    pub window_us: u64,
    /// The least limit in this window or period, or the least burst.
    pub limit: u64,
    /// The constraint as a limits document states it.
    pub written: String,
    /// The limits file, if another one counts addresses or refunds differently under the same constraint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
    /// Calls that it refuses.
    pub refused: u64,
    /// The number of calls that those are a part of.
    pub calls: u64,
    /// `refused` as a share of `calls`.
    pub refused_share: f64,
    /// The requested share.
    pub share_max: f64,
}

impl Suggestion {
    /// The resource, and the limits file if there is more than one suggestion.
    pub fn of(&self) -> String {
        match &self.limits {
            Some(file) => format!("{} ({file})", self.resource),
            None => self.resource.clone(),
        }
    }
}

/// What is suggested.
#[derive(Debug, Default)]
pub struct Suggestions {
    /// By resource and constraint.
    pub found: Vec<Suggestion>,
    /// Constraints of which no limit suffices that a document may state: resources, and the stated constraints.
    pub unanswered: Vec<(String, String)>,
}

/// A constraint whose least limit is searched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Constraint {
    /// A sliding window of this length.
    Window(Span),
    /// A bucket with a refill of this many copies in this time.
    Bucket(u64, Span),
    /// A calendar period.
    Quota(Calendar, Arc<Zone>),
}

/// The greatest limit that a document may state.
const LIMIT_MAX: u64 = u32::MAX as u64;

/// A document's bucket is smaller: burst and debt, in parts of a copy.
const LEVEL_MAX: u64 = 1 << 62;

impl Constraint {
    /// All constraints of a class, each with its limit.
    fn of(class: &RateClass) -> Vec<(Self, u64)> {
        let tiers = class.tiers().iter().map(|tier| (tier.window, tier.limit));
        let windows = class.sliding().map(|window| (window.window, window.limit));
        let windows = windows.chain(tiers);
        let windows = windows.map(|(window, limit)| (Self::Window(window), limit));
        let quotas = class.quotas.iter();
        let quotas = quotas.map(|of| (Self::Quota(of.unit, Arc::clone(&of.zone)), of.limit));
        let bucket = class.bucket.iter();
        let bucket = bucket.map(|of| (Self::Bucket(of.tokens, of.period), of.burst));
        windows.chain(quotas).chain(bucket).collect()
    }

    /// A class with this constraint at this limit, and no other; `refunds`: settlements give back.
    fn class(&self, limit: u64, refunds: bool) -> RateClass {
        let mut class = RateClass {
            refunds,
            ..RateClass::default()
        };
        match self {
            &Self::Window(window) => class.windows = [Window { limit, window }].into(),
            &Self::Bucket(tokens, period) => {
                let debt = Bucket::default_debt(tokens, period, limit);
                class.bucket = Some(Bucket::new(tokens, period, limit, debt));
            }
            Self::Quota(unit, zone) => {
                let (unit, zone) = (*unit, Arc::clone(zone));
                class.quotas = [Quota { limit, unit, zone }].into();
            }
        }
        class
    }

    /// The greatest limit that a document may state of it.
    fn limit_max(&self) -> u64 {
        let &Self::Bucket(tokens, period) = self else {
            return LIMIT_MAX;
        };
        let copies = (LEVEL_MAX - 1) / period.as_micros().max(1);
        // The debt is the burst, but a second's inflow at least.
        let inflow = Bucket::default_debt(tokens, period, 0);
        LIMIT_MAX.min(copies / 2).min(copies.saturating_sub(inflow))
    }

    fn written(&self, limit: u64) -> String {
        match self {
            Self::Window(window) => {
                let (hits, window) = (limit, *window);
                format!("rate = \"{}\"", print_rate(Rate { hits, window }))
            }
            Self::Bucket(tokens, period) => {
                let rate = print_rate(whole_rate(*tokens, *period));
                format!("bucket = {{ rate = \"{rate}\", burst = {limit} }}")
            }
            // The zone is a line of its own, which the document has.
            Self::Quota(unit, _) => format!("quota = [\"{}\"]", print_quota(limit, *unit)),
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Window(_) => "window",
            Self::Bucket(..) => "bucket",
            Self::Quota(..) => "quota",
        }
    }

    fn window_us(&self) -> u64 {
        match self {
            Self::Window(window) | Self::Bucket(_, window) => window.as_micros(),
            Self::Quota(..) => 0,
        }
    }
}

/// The search for one resource and constraint.
struct Search {
    resource: u32,
    constraint: Constraint,
    /// The number of the first limits file that has it.
    file: usize,
    /// The limit that this file states.
    stated: u64,
    /// The greatest limit that may be stated.
    limit_max: u64,
    /// The limit to try.
    limit: u64,
    /// The greatest limit known to refuse too much; at first one that was not tried.
    too_low: u64,
    /// The least limit known to suffice, and the number of calls that it refuses.
    suffices: Option<(u64, u64)>,
    class: RateClass,
    /// By pair the pair whose state it uses; empty if each uses its own.
    leads: Arc<[u32]>,
    states: States,
    second: Stamps,
    moved: MovedEstimates,
    latest: Timestamp,
    refused: u64,
}

/// The least limits for all constraints that named limits files state of the recording's resources.
///
/// # Errors
///
/// If the tape cannot be read.
pub fn suggest(
    tape: &Tape,
    pairs: &Pairs,
    limits: &[(&str, &Limits)],
    share: ShareE9,
    progress: &dyn Fn(u64),
) -> io::Result<Suggestions> {
    let calls = calls_of(tape, pairs)?;
    let allowed = |resource: u32| {
        let calls = u128::from(calls[resource as usize]);
        (calls * u128::from(share.0) / 1_000_000_000) as u64
    };
    let mut under_way = searches(pairs, limits);
    let mut settled = Vec::new();
    while !under_way.is_empty() {
        play(tape, pairs, &mut under_way, progress)?;
        let (done, left): (Vec<Search>, Vec<Search>) = under_way
            .into_iter()
            .map(|search| search.judged(allowed))
            .partition(Search::is_settled);
        under_way = left;
        settled.extend(done);
        for search in &mut under_way {
            search.clear(pairs.all().len());
        }
    }
    let is_same =
        |a: &Search, b: &Search| (a.resource, &a.constraint) == (b.resource, &b.constraint);
    let order = |of: &Search| (of.resource, of.constraint.clone(), of.file);
    settled.sort_by_key(order);
    let mut suggestions = Suggestions::default();
    for search in &settled {
        let resource = pairs.resources().nth(search.resource as usize);
        let resource = resource.unwrap_or_default().to_owned();
        let Some((limit, refused)) = search.suffices else {
            let stated = search.constraint.written(search.stated);
            suggestions.unanswered.push((resource, stated));
            continue;
        };
        let calls = calls[search.resource as usize];
        let is_one_of_several = 1 < settled.iter().filter(|of| is_same(of, search)).count();
        suggestions.found.push(Suggestion {
            resource,
            limits: is_one_of_several.then(|| limits[search.file].0.to_owned()),
            constraint: search.constraint.name(),
            window_us: search.constraint.window_us(),
            written: search.constraint.written(limit),
            limit,
            refused,
            calls,
            refused_share: refused as f64 / calls.max(1) as f64,
            share_max: share.0 as f64 / 1e9,
        });
    }
    Ok(suggestions)
}

/// Calls by resource number.
fn calls_of(tape: &Tape, pairs: &Pairs) -> io::Result<Vec<u64>> {
    let mut calls = vec![0; pairs.resources().len()];
    tape.play(&mut |call| {
        calls[pairs.pair(call.pair).resource as usize] += call.calls();
    })?;
    Ok(calls)
}

/// A search for every resource and constraint, beginning at the stated limit.
fn searches(pairs: &Pairs, limits: &[(&str, &Limits)]) -> Vec<Search> {
    let mut searches: Vec<Search> = Vec::new();
    for (resource, name) in pairs.resources().enumerate() {
        let mut known = BTreeSet::new();
        let stated = limits.iter().enumerate();
        let stated = stated.filter_map(|(file, (_, of))| Some((file, of, of.rate(name)?)));
        for (file, of, rate) in stated {
            let leads = leads(pairs, of, rate);
            let refunds = rate.stated().refunds.unwrap_or(true);
            for (constraint, limit) in Constraint::of(&rate.stated().class()) {
                // The answer depends on which domains share a state, and on whether refunds give copies back.
                if known.insert((constraint.clone(), refunds, Arc::clone(&leads))) {
                    let (stated, limit_max) = (limit, constraint.limit_max());
                    let limit = limit.clamp(1, limit_max.max(1));
                    let mut search = Search {
                        resource: resource as u32,
                        class: constraint.class(limit, refunds),
                        constraint,
                        file,
                        stated,
                        limit_max,
                        limit,
                        too_low: 0,
                        suffices: None,
                        leads: Arc::clone(&leads),
                        states: States::new(0),
                        second: Stamps::new(),
                        moved: MovedEstimates::default(),
                        latest: Timestamp::ZERO,
                        refused: 0,
                    };
                    search.clear(pairs.all().len());
                    searches.push(search);
                }
            }
        }
    }
    searches
}

/// By pair the pair whose state it uses, if addresses are limited by their networks; else empty.
fn leads(pairs: &Pairs, limits: &Limits, rate: &RateResource) -> Arc<[u32]> {
    if rate.addresses().is_none() {
        return Arc::default();
    }
    let mut networks = Networks::default();
    let all = 0..pairs.all().len() as u32;
    all.map(|number| networks.lead(pairs, number, limits))
        .collect()
}

fn play(
    tape: &Tape,
    pairs: &Pairs,
    searches: &mut [Search],
    progress: &dyn Fn(u64),
) -> io::Result<()> {
    let mut of_resource: Vec<Vec<usize>> = vec![Vec::new(); pairs.resources().len()];
    for (number, search) in searches.iter().enumerate() {
        of_resource[search.resource as usize].push(number);
    }
    let mut calls = 0u64;
    tape.play(&mut |call| {
        let resource = pairs.pair(call.pair).resource as usize;
        for number in &of_resource[resource] {
            searches[*number].call(call);
        }
        calls += 1;
        if calls.is_multiple_of(1 << 16) {
            progress(1 << 16);
        }
    })
}

impl Search {
    fn call(&mut self, call: &Call) {
        let now = self.latest.max(call.at);
        self.latest = now;
        let (class, states) = (&self.class, &mut self.states);
        states.sweep(|_| (class, now));
        let lead = self.leads.get(call.pair as usize).copied();
        let state = states.of(lead.unwrap_or(call.pair), class);
        let moved = (call, &mut self.moved);
        let answer = answer(class, state, (None, &mut self.second), now, moved);
        self.refused += call.calls() - call.granted_calls(answer.hits);
    }

    /// Takes the result of the tried limit, and sets the next limit to try.
    fn judged(mut self, allowed: impl Fn(u32) -> u64) -> Self {
        let limit = self.limit;
        if self.refused <= allowed(self.resource) {
            self.suffices = Some((limit, self.refused));
        } else {
            self.too_low = limit;
        }
        let next = match self.suffices {
            Some((suffices, _)) => self.too_low + (suffices - self.too_low) / 2,
            None => limit.saturating_mul(2).min(self.limit_max),
        };
        self.limit = next;
        self.class = self.constraint.class(next, self.class.refunds);
        self
    }

    fn is_settled(&self) -> bool {
        match self.suffices {
            // A limit of zero would suffice only if all calls may be refused; one is the least worth stating.
            Some((suffices, _)) => suffices - self.too_low <= 1,
            None => self.limit_max <= self.too_low,
        }
    }

    fn clear(&mut self, pairs: usize) {
        self.states = States::new(pairs);
        self.second = Stamps::new();
        self.moved = MovedEstimates::default();
        self.latest = Timestamp::ZERO;
        self.refused = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::tape::{CallKind, PlayOrder, Recorder};

    /// What is suggested for files, so that none of these calls is refused: each has a domain and copies, and all are
    /// made at once.
    fn suggested(files: &[&str], calls: &[(&str, u32)]) -> Suggestions {
        let mut pairs = Pairs::default();
        let mut recorder = Recorder::new(PlayOrder::Stamps);
        for (domain, copies) in calls {
            let call = Call {
                at: Timestamp::from_millis(1_000),
                pair: pairs.number_of("r", domain),
                copies: *copies,
                min: *copies,
                kind: CallKind::LetThrough,
            };
            recorder.push(call).expect("memory");
        }
        let parsed = files.iter().map(|text| Limits::parse(text).expect("good"));
        let parsed: Vec<Limits> = parsed.collect();
        let limits: Vec<(&str, &Limits)> = ["a.toml", "b.toml"].into_iter().zip(&parsed).collect();
        suggest(&recorder.wind(), &pairs, &limits, ShareE9(0), &|_| {}).expect("memory")
    }

    #[test]
    fn files_that_count_addresses_or_refunds_differently_have_limits_of_their_own() {
        let alone = "[rate.r]\nrate = \"5/m\"\n";
        let networks = format!("{alone}addresses = {{ v4 = 24, v6 = 64 }}\n");
        let kept = format!("{alone}refunds = false\n");
        let calls = [("192.0.2.1", 3), ("192.0.2.2", 3)];
        let limits_of = |files: &[&str]| {
            let found = suggested(files, &calls).found.into_iter();
            found.map(|of| (of.of(), of.limit)).collect::<Vec<_>>()
        };
        let (a, b) = ("r (a.toml)".to_owned(), "r (b.toml)".to_owned());
        let both = limits_of(&[alone, &networks]);
        assert_eq!(both, [(a.clone(), 3), (b.clone(), 6)]);
        assert_eq!(limits_of(&[alone, &kept]), [(a, 3), (b, 3)]);
        assert_eq!(limits_of(&[alone, alone]), [("r".to_owned(), 3)]);
    }

    #[test]
    fn no_bucket_is_suggested_that_no_document_may_state() {
        let bucket = "bucket = { rate = \"1/h\", burst = 5 }";
        let document = |line: &str| Limits::parse(&format!("[rate.r]\n{line}\n"));
        let stated = format!("[rate.r]\nrate = \"5/m\"\n{bucket}\n");
        let found = suggested(&[&stated], &[("d", 1_000_000_000)]);
        for of in &found.found {
            document(&of.written).expect("a document that states it");
        }
        let unanswered = ("r".to_owned(), bucket.to_owned());
        assert_eq!(found.unanswered, [unanswered]);
        let of_bucket = Constraint::Bucket(1, Span::from_secs(3_600));
        let most = of_bucket.limit_max();
        assert!(document(&of_bucket.written(most)).is_ok());
        assert!(document(&of_bucket.written(most + 1)).is_err());
    }

    #[test]
    fn a_suggested_quota_is_a_line_of_a_document() {
        let zone = "[rate.r]\nzone = \"Europe/Berlin\"\n";
        let stated = format!("{zone}quota = [\"9/day\"]\n");
        let found = suggested(&[&stated], &[("d", 2)]);
        let document = format!("{zone}{}\n", found.found[0].written);
        let read = Limits::parse(&document).expect("a document");
        let of_domain = read.class_of("r", "d").expect("limits");
        assert_eq!(of_domain.quotas[0].limit, 2);
    }
}
