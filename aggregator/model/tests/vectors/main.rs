//! Compares every published vector, field by field, with the model.
//!
//! Knows nothing of the rules: the vectors state what is right. What stays true: every field that
//! a vector expects is compared.

mod read;

use std::collections::BTreeMap;

use read::{Case, NormalizeCase, cause, end, limits, read, standing, tiers, until};
use serde_json::{Value, json};
use tollgate_model::log::WholeResource;
use tollgate_model::{
    EntryOutcome, InlineLimiter, InlineOutcome, ResourceLimits, StreamPair, Until, normalize,
};

/// Checks that `got` has every expected field with the expected value.
fn check(got: &Value, expected: &Value, of: impl Fn() -> String) {
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(got.get(field), Some(value), "{field} of {}", of());
    }
}

#[test]
fn normalize_vectors_hold() {
    for case in read::<NormalizeCase>("normalize.jsonl") {
        let normal = normalize(&tiers(&case.tiers));
        assert_eq!(normal, tiers(&case.expect), "{}", case.name);
    }
}

fn in_line_cases_hold(file: &str, until_of: impl Fn(&InlineOutcome) -> Until) {
    for case in read::<Case>(file) {
        let mut limiter = InlineLimiter::new(limits(&case.limits));
        for (i, op) in case.ops.iter().enumerate() {
            let number = |field: &str| op[field].as_u64().unwrap();
            let domain = op["domain"].as_str().unwrap();
            let out = limiter.request(number("t"), domain, number("copies"), number("min"));
            let mut got = json!({
                "granted": out.granted,
                "burst": out.burst,
                "limited_by": cause(out.limited_by),
                "tier_limit": out.tier_limit,
                "domain_last_second": out.domain_last_second,
                "global_last_second": out.global_last_second,
                "domain_until": until(until_of(&out)),
                "global_until": until(out.global_until),
            });
            standing(&out.standing, &mut got);
            check(&got, &op["expect"], || {
                format!("{} op {i}: {op}", case.name)
            });
        }
    }
}

#[test]
fn rate_vectors_hold() {
    // These vectors ask about the domain alone, and about the global limit separately.
    in_line_cases_hold("rate.jsonl", |out| out.domain_until);
}

#[test]
fn in_line_vectors_of_rules_2_hold() {
    in_line_cases_hold("inline2.jsonl", |out| out.until);
    in_line_cases_hold("inline2_more.jsonl", |out| out.until);
}

/// One resource in the stream reading, with its global limit fed as entries come.
struct Stream {
    limits: ResourceLimits,
    pairs: BTreeMap<String, StreamPair>,
    whole: WholeResource,
}

impl Stream {
    fn pair(&mut self, domain: &str) -> &mut StreamPair {
        let own = self.limits.of(domain);
        let pair = self.pairs.entry(domain.to_owned());
        pair.or_insert_with(|| StreamPair::new(&own))
    }

    fn entry(&mut self, op: &Value) -> Value {
        let at_us = op["t"].as_u64().unwrap();
        let domain = op["domain"].as_str().unwrap();
        let n = op["n"].as_i64().unwrap();
        let unguarded = op["unguarded"].as_bool().unwrap_or(false);
        let pair = self.pair(domain);
        let out = match (u64::try_from(n), op["stamp"].as_u64()) {
            (Ok(n), _) => pair.estimate(at_us, n, unguarded),
            (Err(_), made_us) => pair.settle(at_us, made_us.unwrap(), n.unsigned_abs(), 0),
        };
        let mut got = self.entry_view(domain, &out);
        self.global(at_us, out.granted + out.counted, unguarded, &mut got);
        got
    }

    fn entry_view(&self, domain: &str, out: &EntryOutcome) -> Value {
        let mut got = json!({
            "granted": out.granted,
            "excess": out.excess,
            "late": out.late,
            "counted": out.counted,
            "refunded": out.refunded,
            "limited_by": cause(out.limited_by),
            "denied_until": end(out.denied_until()),
        });
        standing(&self.pairs[domain].standing(), &mut got);
        assert_eq!(got["tier"], json!(out.tier));
        assert_eq!(got["tier_hits"], json!(out.tier_hits));
        got
    }

    /// Feeds the copies reported to (resource, *), stamped with the start of their millisecond.
    fn global(&mut self, at_us: u64, copies: u64, unguarded: bool, got: &mut Value) {
        (got["global_hits"], got["global_until"]) = (json!(0), Value::Null);
        if let Some(limit) = self.limits.global {
            if 0 < copies {
                self.whole
                    .hits(limit, at_us / 1_000 * 1_000, copies, unguarded);
                self.whole.rule_denial(limit);
            }
            got["global_hits"] = json!(self.whole.count(limit));
            got["global_until"] = end(self.whole.denied().map(|denial| denial.end));
        }
    }

    fn version(&mut self, op: &Value) -> Value {
        let at_us = op["t"].as_u64().unwrap();
        self.limits = limits(&serde_json::from_value(op["limits"].clone()).unwrap());
        let mut denials = serde_json::Map::new();
        for (domain, pair) in &mut self.pairs {
            if let Some(denial) = pair.new_limits(at_us, &self.limits.of(domain)) {
                denials.insert(domain.clone(), end(Some(denial.end)));
            }
        }
        self.whole.new_limit(at_us, self.limits.global);
        if let Some(denial) = self.whole.denied() {
            denials.insert("*".to_owned(), end(Some(denial.end)));
        }
        json!({ "denials": denials })
    }
}

#[test]
fn stream_vectors_of_rules_2_hold() {
    for case in ["stream2.jsonl", "stream2_more.jsonl"]
        .into_iter()
        .flat_map(read::<Case>)
    {
        let mut stream = Stream {
            limits: limits(&case.limits),
            pairs: BTreeMap::new(),
            whole: WholeResource::default(),
        };
        for (i, op) in case.ops.iter().enumerate() {
            let got = match op["op"].as_str().unwrap() {
                "entry" | "settle" => stream.entry(op),
                "limits" => stream.version(op),
                other => panic!("{}: unknown op {other}", case.name),
            };
            check(&got, &op["expect"], || {
                format!("{} op {i}: {op}", case.name)
            });
        }
    }
}
