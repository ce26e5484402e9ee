//! Cases of log order: entries, settlements and new limits in the order of a log.
//!
//! Every entry is remembered like an estimate, so that a settlement finds what it counted. The pair
//! (resource, *) receives the granted copies of each entry, and the excess that every constraint
//! counted, stamped with the start of its millisecond.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::Timestamp;

use super::CaseFault;
use super::limits::CaseLimits;
use super::show::{CaseEnd, counts};
use tollgate_engine::rules::refund::Settlement;
use tollgate_engine::rules::request::LimitedBy;
use tollgate_engine::rules::{Stamps, Until, whole};
use tollgate_engine::stream::{Entry, Pair, Ruled};
use tollgate_limits::RateClass;
use tollgate_limits::SECOND;

#[derive(Deserialize)]
struct StreamCase {
    limits: CaseLimits,
    ops: Vec<StreamOp>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum StreamOp {
    Entry {
        t: u64,
        domain: String,
        n: u64,
        #[serde(default)]
        unguarded: bool,
    },
    Settle {
        t: u64,
        domain: String,
        stamp: u64,
        n: i64,
    },
    Limits {
        t: u64,
        limits: CaseLimits,
    },
}

/// One domain of a case.
struct CaseDomain {
    class: RateClass,
    pair: Pair,
    denied_until: Option<Timestamp>,
}

/// The pair (resource, *) of a case.
struct Everybody {
    limit: u64,
    second: Stamps,
    time: Option<Timestamp>,
    denied_until: Option<Timestamp>,
}

struct Playing<'a> {
    limits: &'a CaseLimits,
    domains: BTreeMap<&'a str, CaseDomain>,
    everybody: Option<Everybody>,
    more: bool,
}

/// Plays a case. Returns the result of each op.
pub(super) fn play(case: &Value) -> Result<Vec<Value>, CaseFault> {
    let case = StreamCase::deserialize(case)?;
    let mut playing = Playing {
        limits: &case.limits,
        domains: BTreeMap::new(),
        everybody: case.limits.global.map(Everybody::of),
        more: case.more,
    };
    let results = case.ops.iter().map(|op| match op {
        StreamOp::Entry {
            t,
            domain,
            n,
            unguarded,
        } => playing.entry(domain, at(*t), *n, *unguarded),
        StreamOp::Settle {
            t,
            domain,
            stamp,
            n,
        } => playing.settle(domain, at(*t), at(*stamp), *n),
        StreamOp::Limits { t, limits } => playing.new_limits(at(*t), limits),
    });
    Ok(results.collect())
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn end_of(until: Until) -> Option<Timestamp> {
    match until {
        Until::Now => None,
        Until::At(end) => Some(end),
        Until::Never => Some(Timestamp::MAX),
    }
}

impl<'a> Playing<'a> {
    fn entry(&mut self, name: &'a str, at: Timestamp, copies: u64, unguarded: bool) -> Value {
        let entry = Entry {
            copies,
            unguarded,
            estimated: true,
        };
        let domain = self.domain(name);
        let ruled = domain.pair.entry(&domain.class, at, entry);
        if let Some(everybody) = &mut self.everybody {
            let stamp = Timestamp::from_millis(at.as_millis());
            everybody.count(stamp, ruled.granted + ruled.counted, unguarded);
        }
        self.show(name, ruled, None)
    }

    fn settle(&mut self, name: &'a str, at: Timestamp, made: Timestamp, n: i64) -> Value {
        if 0 < n {
            let mut result = self.entry(name, at, n.unsigned_abs(), false);
            result["refunded"] = json!(0);
            return result;
        }
        let settlement = Settlement {
            made,
            copies: n.unsigned_abs(),
            actual: 0,
        };
        let domain = self.domain(name);
        let refunded = domain.pair.settle(&domain.class, at, settlement);
        self.show(name, Ruled::default(), Some(refunded))
    }

    fn domain(&mut self, name: &'a str) -> &mut CaseDomain {
        let limits = self.limits;
        self.domains.entry(name).or_insert_with(|| {
            let class = limits.class_of(name);
            let pair = Pair::of(&class);
            CaseDomain {
                class,
                pair,
                denied_until: None,
            }
        })
    }

    fn show(&mut self, name: &'a str, ruled: Ruled, refunded: Option<u64>) -> Value {
        let more = self.more;
        let domain = self.domain(name);
        let (class, pair) = (&domain.class, &domain.pair);
        let now = pair.now();
        domain.denied_until = pair.closure(class, now).map(|closure| closure.end);
        let fields = json!({
            "granted": ruled.granted,
            "excess": ruled.excess,
            "late": ruled.late,
            "limited_by": ruled.limited_by.map(LimitedBy::name),
            "denied_until": domain.denied_until.map(CaseEnd::of),
        });
        let mut result: Map<String, Value> = fields.as_object().cloned().unwrap_or_default();
        counts(&mut result, class, &pair.state, now, more);
        if more {
            let mut add = |name: &str, value| result.insert(name.to_owned(), value);
            add("counted", json!(ruled.counted));
            let everybody = self.everybody.as_ref();
            add("global_hits", json!(everybody.map_or(0, Everybody::hits)));
            let until = everybody.and_then(|everybody| everybody.denied_until);
            add("global_until", json!(until.map(CaseEnd::of)));
            if let Some(refunded) = refunded {
                add("refunded", json!(refunded));
            }
        }
        result.into()
    }

    fn new_limits(&mut self, at: Timestamp, limits: &'a CaseLimits) -> Value {
        self.limits = limits;
        let mut denials: BTreeMap<&str, CaseEnd> = BTreeMap::new();
        for (name, domain) in &mut self.domains {
            domain.new_limits(at, limits.class_of(name));
            let end = domain.denied_until.map(CaseEnd::of);
            denials.extend(end.map(|end| (*name, end)));
        }
        self.everybody = match (self.everybody.take(), limits.global) {
            (_, None) => None,
            (None, Some(limit)) => Some(Everybody::of(limit)),
            (Some(everybody), Some(limit)) => Some(everybody.under(limit, at)),
        };
        let everybody = self.everybody.as_ref();
        let end = everybody.and_then(|everybody| everybody.denied_until);
        denials.extend(end.map(|end| (EVERYBODY, CaseEnd::of(end))));
        json!({ "denials": denials })
    }
}

impl CaseDomain {
    /// Applies a version whose record was appended at `at`: denials in force are ruled again, none
    /// is started.
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

impl Everybody {
    fn of(limit: u64) -> Self {
        Self {
            limit,
            second: Stamps::new(),
            time: None,
            denied_until: None,
        }
    }

    fn count(&mut self, stamp: Timestamp, copies: u64, unguarded: bool) {
        if copies == 0 {
            return;
        }
        let now = self.time.map_or(stamp, |time| time.max(stamp));
        self.time = Some(now);
        self.second.forget(SECOND, now);
        whole::count(
            self.limit,
            &mut self.second,
            (stamp, now),
            copies,
            unguarded,
        );
        self.denied_until = end_of(whole::open_again(self.limit, &self.second, now));
    }

    fn hits(&self) -> u64 {
        self.second.held(SECOND, self.time.unwrap_or_default())
    }

    fn under(mut self, limit: u64, at: Timestamp) -> Self {
        self.limit = limit;
        let now = self.time.map_or(at, |time| time.max(at));
        let in_force = self.denied_until.is_some_and(|end| now < end);
        let until = whole::open_again(limit, &self.second, now);
        self.denied_until = end_of(until).filter(|_| in_force);
        self
    }
}
