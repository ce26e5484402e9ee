//! The least limit that refuses at most a share of the calls.
//!
//! ```text
//! window 10s, at most 0.1 % refused     30 refuses 0.036 %, 21 refuses 0.094 %, 20 refuses 0.131 %: 21
//! ```
//!
//! Asked for each window that the limits files use: so many hits in such a window, as the only tier of
//! every domain, without hard and global limits. Limits are tried by playing the recording again, all
//! resources and windows at once, doubling until one suffices and halving from there.
//!
//! For calls of one hit the answer is exact: whatever a lower limit grants a higher one grants too. (By
//! induction: a call that L grants and L + 1 refuses would find L + 1 hits in its window, at least two
//! of them refused under L; the later of those two had L granted hits before it in its own window, and
//! with the earlier one L + 1 under L + 1, so that it would have been refused there as well.) Calls for
//! several copies can be unlucky: there it is a limit that suffices, while one less does not.

use std::collections::BTreeSet;
use std::io;

use serde::Serialize;
use tollgate_engine::inline::ask;
use tollgate_engine::limits::{Limits, RateClass, Tier};
use tollgate_engine::rules::Stamps;
use tollgate_engine::rules::request::Request;
use tollgate_shared::time::{Span, Timestamp};

use super::pairs::Pairs;
use super::states::States;
use super::tape::{Call, Tape};

/// A share of calls, in parts of a thousand million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareE9(pub u64);

/// A limit that suffices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    /// The resource.
    pub resource: String,
    /// The window.
    pub window_us: u64,
    /// The least limit in such a window.
    pub limit: u64,
    /// Calls that it refuses.
    pub refused: u64,
    /// Of so many.
    pub calls: u64,
    /// Which is this share.
    pub refused_share: f64,
    /// What share was asked for.
    pub share_max: f64,
}

/// One resource and window under way.
struct Search {
    resource: u32,
    window: Span,
    /// The greatest limit that is known to refuse too much; at first one that nobody tried.
    too_low: u64,
    /// The least limit that is known to suffice, and what it refuses.
    suffices: Option<(u64, u64)>,
    class: RateClass,
    states: States,
    second: Stamps,
    latest: Timestamp,
    refused: u64,
}

/// The least limits for all windows that `limits` use on the recording's resources.
///
/// # Errors
///
/// Where the tape cannot be read.
pub fn suggest(
    tape: &Tape,
    pairs: &Pairs,
    limits: &[&Limits],
    share: ShareE9,
    progress: &dyn Fn(u64),
) -> io::Result<Vec<Suggestion>> {
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
            .filter_map(|search| search.judged(allowed))
            .partition(Search::is_settled);
        under_way = left;
        settled.extend(done);
        for search in &mut under_way {
            search.clear(pairs.all().len());
        }
    }
    settled.sort_by_key(|search| (search.resource, search.window));
    let suggestion = |search: &Search| {
        let (limit, refused) = search.suffices?;
        let resource = pairs.resources().nth(search.resource as usize)?;
        let calls = calls[search.resource as usize];
        Some(Suggestion {
            resource: resource.to_owned(),
            window_us: search.window.as_micros(),
            limit,
            refused,
            calls,
            refused_share: refused as f64 / calls.max(1) as f64,
            share_max: share.0 as f64 / 1e9,
        })
    };
    Ok(settled.iter().filter_map(suggestion).collect())
}

/// Calls by number of resource.
fn calls_of(tape: &Tape, pairs: &Pairs) -> io::Result<Vec<u64>> {
    let mut calls = vec![0; pairs.resources().len()];
    tape.play(&mut |call| {
        calls[pairs.pair(call.pair).resource as usize] += call.calls();
    })?;
    Ok(calls)
}

/// A search for every resource and window, beginning at the limit that has this window.
fn searches(pairs: &Pairs, limits: &[&Limits]) -> Vec<Search> {
    let mut searches: Vec<Search> = Vec::new();
    for (resource, name) in pairs.resources().enumerate() {
        let mut known = BTreeSet::new();
        for rate in limits.iter().filter_map(|limits| limits.rate(name)) {
            let class = rate.stated().class();
            let windows = class.windows.iter().map(|of| (of.limit, of.window));
            let tiers = class.tiers().iter().map(|tier| (tier.limit, tier.window));
            for (limit, window) in windows.chain(tiers) {
                if known.insert(window) {
                    let mut search = Search {
                        resource: resource as u32,
                        window,
                        too_low: 0,
                        suffices: None,
                        class: self::class(limit.max(1), window),
                        states: States::new(0),
                        second: Stamps::new(),
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

/// So many hits in a window, and nothing else.
fn class(limit: u64, window: Span) -> RateClass {
    let tier = Tier {
        limit,
        window,
        active: window,
        cooldown: Span::ZERO,
        skippable: false,
    };
    RateClass {
        tiers: Some([tier].into()),
        ..RateClass::default()
    }
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
    fn limit(&self) -> u64 {
        self.class.tiers()[0].limit
    }

    fn call(&mut self, call: &Call) {
        let now = self.latest.max(call.at);
        self.latest = now;
        let (class, states) = (&self.class, &mut self.states);
        states.sweep(|_| (class, now));
        let state = states.of(call.pair, class);
        let request = Request {
            copies: u64::from(call.copies),
            min: u64::from(call.min.max(1)),
        };
        let grant = ask(class, state, None, &mut self.second, now, request);
        self.refused += call.calls() - call.granted_calls(grant.hits);
    }

    /// What was learnt, and the limit to try next. None where no limit suffices.
    fn judged(mut self, allowed: impl Fn(u32) -> u64) -> Option<Self> {
        let limit = self.limit();
        if self.refused <= allowed(self.resource) {
            self.suffices = Some((limit, self.refused));
        } else if limit == u64::MAX {
            return None;
        } else {
            self.too_low = limit;
        }
        let next = match self.suffices {
            Some((suffices, _)) => self.too_low + (suffices - self.too_low) / 2,
            None => limit.saturating_mul(2),
        };
        self.class = class(next, self.window);
        Some(self)
    }

    fn is_settled(&self) -> bool {
        // A limit of nothing suffices only where all may be refused; one is the least worth stating.
        self.suffices
            .is_some_and(|(suffices, _)| suffices - self.too_low <= 1)
    }

    fn clear(&mut self, pairs: usize) {
        self.states = States::new(pairs);
        self.second = Stamps::new();
        self.latest = Timestamp::ZERO;
        self.refused = 0;
    }
}
