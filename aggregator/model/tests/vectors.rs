//! Every published vector, field by field, against the model.
//!
//! Knows nothing of the rules: the vectors say what is right. What stays true: a file without
//! cases fails, and so does a field that is compared with nothing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate_model::{
    DomainLimits, DomainOverride, End, InlineLimiter, LimitedBy, ResourceLimits, StreamPair, Tier,
    Until, normalize,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTier {
    limit: u64,
    window: u64,
    active: u64,
    cooldown: u64,
    skippable: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverride {
    tiers: Option<Vec<RawTier>>,
    hard: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    tiers: Vec<RawTier>,
    hard: Option<u64>,
    global: Option<u64>,
    #[serde(default)]
    domains: BTreeMap<String, RawOverride>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    limits: RawLimits,
    ops: Vec<Value>,
}

#[derive(Deserialize)]
struct NormalizeCase {
    name: String,
    tiers: Vec<RawTier>,
    expect: Vec<RawTier>,
}

fn tiers(raw: &[RawTier]) -> Vec<Tier> {
    let tier = |raw: &RawTier| Tier {
        limit: raw.limit,
        window_us: raw.window,
        active_us: raw.active,
        cooldown_us: raw.cooldown,
        skippable: raw.skippable,
    };
    raw.iter().map(tier).collect()
}

fn limits(raw: &RawLimits) -> ResourceLimits {
    let own = |raw: &RawOverride| DomainOverride {
        tiers: raw.tiers.as_deref().map(tiers),
        hard: raw.hard,
    };
    ResourceLimits {
        default: DomainLimits {
            tiers: tiers(&raw.tiers),
            hard: raw.hard,
        },
        domains: raw
            .domains
            .iter()
            .map(|(d, o)| (d.clone(), own(o)))
            .collect(),
        global: raw.global,
    }
}

fn read<T: DeserializeOwned>(file: &str) -> Vec<T> {
    let path = format!("{}/../../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|err| panic!("{path}: {err}"));
    let cases: Vec<T> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!cases.is_empty(), "{file} holds no case");
    cases
}

fn end(end: Option<End>) -> Value {
    match end {
        None => Value::Null,
        Some(End::At(at_us)) => json!(at_us),
        Some(End::Never) => json!("never"),
    }
}

fn until(until: Until) -> Value {
    match until {
        Until::Now => Value::Null,
        Until::At(at_us) => json!(at_us),
        Until::Never => json!("never"),
    }
}

#[test]
fn normalize_vectors_hold() {
    for case in read::<NormalizeCase>("normalize.jsonl") {
        assert_eq!(
            normalize(&tiers(&case.tiers)),
            tiers(&case.expect),
            "{}",
            case.name
        );
    }
}

#[test]
fn rate_vectors_hold() {
    for case in read::<Case>("rate.jsonl") {
        let mut limiter = InlineLimiter::new(limits(&case.limits));
        for (i, op) in case.ops.iter().enumerate() {
            let number = |field: &str| op[field].as_u64().unwrap();
            let domain = op["domain"].as_str().unwrap();
            let out = limiter.request(number("t"), domain, number("copies"), number("min"));
            let got = json!({
                "granted": out.granted,
                "burst": out.burst,
                "limited_by": out.limited_by.map(|limited_by| match limited_by {
                    LimitedBy::Hard => "hard",
                    LimitedBy::Global => "global",
                    LimitedBy::Tier => "tier",
                }),
                "tier": out.tier,
                "tier_limit": out.tier_limit,
                "tier_hits": out.tier_hits,
                "domain_last_second": out.domain_last_second,
                "global_last_second": out.global_last_second,
                "domain_until": until(out.domain_until),
                "global_until": until(out.global_until),
            });
            assert_eq!(got, op["expect"], "{} op {i}: {op}", case.name);
        }
    }
}

#[test]
fn stream_vectors_hold() {
    for case in read::<Case>("stream.jsonl") {
        let mut limits_now = limits(&case.limits);
        let mut pairs: BTreeMap<String, StreamPair> = BTreeMap::new();
        for (i, op) in case.ops.iter().enumerate() {
            let at_us = op["t"].as_u64().unwrap();
            let got = match op["op"].as_str().unwrap() {
                "entry" => {
                    let domain = op["domain"].as_str().unwrap();
                    let pair = pairs
                        .entry(domain.to_owned())
                        .or_insert_with(|| StreamPair::new(&limits_now.of(domain)));
                    let out = pair.entry(at_us, op["n"].as_u64().unwrap(), op["min"].as_u64());
                    json!({
                        "granted": out.granted,
                        "excess": out.excess,
                        "late": out.late,
                        "tier": out.tier,
                        "tier_hits": out.tier_hits,
                        "domain_last_second": out.domain_last_second,
                        "denied_until": end(out.denied_until()),
                    })
                }
                "limits" => {
                    limits_now = limits(&serde_json::from_value(op["limits"].clone()).unwrap());
                    let mut denials = serde_json::Map::new();
                    for (domain, pair) in &mut pairs {
                        let denied = pair.new_limits(at_us, &limits_now.of(domain));
                        if let Some(denial) = denied {
                            denials.insert(domain.clone(), end(Some(denial.end)));
                        }
                    }
                    json!({ "denials": denials })
                }
                other => panic!("{}: unknown op {other}", case.name),
            };
            assert_eq!(got, op["expect"], "{} op {i}: {op}", case.name);
        }
    }
}
