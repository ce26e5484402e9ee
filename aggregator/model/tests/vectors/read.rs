//! Reads the vector files, and turns their limits into the model's types.
//!
//! Knows nothing of the rules. What stays true: an unknown field of limits fails, and so does a file
//! without cases.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate_model::{
    Bucket, Calendar, Cause, DomainLimits, DomainOverride, End, FieldStated, Quota, ResourceLimits,
    Standing, Tier, Until, Window, Zone,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTier {
    limit: u64,
    window: u64,
    active: u64,
    cooldown: u64,
    skippable: bool,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWindow {
    limit: u64,
    window: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawQuota {
    limit: u64,
    unit: String,
    offset_s: i32,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBucket {
    rate: u64,
    period: u64,
    burst: u64,
    debt: Option<u64>,
}

/// A field's own value, or `"none"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Raw<T> {
    Own(T),
    None(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverride {
    tiers: Option<Raw<Vec<RawTier>>>,
    hard: Option<Raw<u64>>,
    windows: Option<Raw<Vec<RawWindow>>>,
    quota: Option<Raw<Vec<RawQuota>>>,
    bucket: Option<Raw<RawBucket>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    tiers: Option<Vec<RawTier>>,
    hard: Option<u64>,
    global: Option<u64>,
    #[serde(default)]
    windows: Vec<RawWindow>,
    #[serde(default)]
    quota: Vec<RawQuota>,
    bucket: Option<RawBucket>,
    #[serde(default)]
    domains: BTreeMap<String, RawOverride>,
}

#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    pub limits: RawLimits,
    pub ops: Vec<Value>,
}

#[derive(Deserialize)]
pub struct NormalizeCase {
    pub name: String,
    pub tiers: Vec<RawTier>,
    pub expect: Vec<RawTier>,
}

pub fn read<T: DeserializeOwned>(file: &str) -> Vec<T> {
    let path = format!("{}/../../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|err| panic!("{path}: {err}"));
    let cases: Vec<T> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!cases.is_empty(), "{file} holds no case");
    cases
}

pub fn tiers(raw: &[RawTier]) -> Vec<Tier> {
    let tier = |raw: &RawTier| Tier {
        limit: raw.limit,
        window_us: raw.window,
        active_us: raw.active,
        cooldown_us: raw.cooldown,
        skippable: raw.skippable,
    };
    raw.iter().map(tier).collect()
}

fn windows(raw: &[RawWindow]) -> Vec<Window> {
    let window = |raw: &RawWindow| Window {
        limit: raw.limit,
        window_us: raw.window,
    };
    raw.iter().map(window).collect()
}

fn quotas(raw: &[RawQuota]) -> Vec<Quota> {
    let quota = |raw: &RawQuota| Quota {
        limit: raw.limit,
        unit: match raw.unit.as_str() {
            "day" => Calendar::Day,
            "week" => Calendar::Week,
            "month" => Calendar::Month,
            "year" => Calendar::Year,
            other => panic!("unit {other}"),
        },
        zone: Zone::fixed(raw.offset_s),
    };
    raw.iter().map(quota).collect()
}

fn bucket(raw: &RawBucket) -> Bucket {
    let RawBucket {
        rate,
        period,
        burst,
        debt,
    } = *raw;
    Bucket {
        tokens: rate,
        period_us: period,
        burst,
        debt: debt.unwrap_or_else(|| Bucket::default_debt(rate, period, burst)),
    }
}

fn stated<T, U>(raw: &Option<Raw<T>>, own: impl Fn(&T) -> U) -> FieldStated<U> {
    match raw {
        None => FieldStated::Inherited,
        Some(Raw::Own(raw)) => FieldStated::Own(own(raw)),
        Some(Raw::None(none)) => {
            assert_eq!(none, "none");
            FieldStated::Nothing
        }
    }
}

pub fn limits(raw: &RawLimits) -> ResourceLimits {
    let own = |raw: &RawOverride| DomainOverride {
        tiers: stated(&raw.tiers, |raw| tiers(raw)),
        hard: stated(&raw.hard, |hard| *hard),
        windows: stated(&raw.windows, |raw| windows(raw)),
        quotas: stated(&raw.quota, |raw| quotas(raw)),
        bucket: stated(&raw.bucket, bucket),
        no_refunds: None,
    };
    let domains = raw.domains.iter();
    ResourceLimits {
        default: DomainLimits {
            tiers: raw.tiers.as_deref().map(tiers),
            hard: raw.hard,
            windows: windows(&raw.windows),
            quotas: quotas(&raw.quota),
            bucket: raw.bucket.as_ref().map(bucket),
            no_refunds: false,
        },
        domains: domains.map(|(d, o)| (d.clone(), own(o))).collect(),
        global: raw.global,
    }
}

pub fn end(end: Option<End>) -> Value {
    match end {
        None => Value::Null,
        Some(End::At(at_us)) => json!(at_us),
        Some(End::Never) => json!("never"),
    }
}

pub fn until(until: Until) -> Value {
    match until {
        Until::Now => Value::Null,
        Until::At(at_us) => json!(at_us),
        Until::Never => json!("never"),
    }
}

pub fn cause(cause: Option<Cause>) -> Value {
    match cause {
        None => Value::Null,
        Some(Cause::Hard) => json!("hard"),
        Some(Cause::Global) => json!("global"),
        Some(Cause::Window(i)) => json!(format!("window:{i}")),
        Some(Cause::Quota(i)) => json!(format!("quota:{i}")),
        Some(Cause::Bucket) => json!("bucket"),
        Some(Cause::Tier(_)) => json!("tier"),
        Some(Cause::Banned) => json!("banned"),
    }
}

/// The counts, in the form of the vectors.
pub fn standing(standing: &Standing, into: &mut Value) {
    let mut hits = serde_json::Map::new();
    if let Some(hard) = standing.hard {
        hits.insert("hard".to_owned(), json!(hard));
    }
    for (i, count) in standing.windows.iter().enumerate() {
        hits.insert(format!("window:{i}"), json!(count));
    }
    into["window_hits"] = Value::Object(hits);
    into["quota_hits"] = json!(standing.quotas);
    into["bucket_level"] = match standing.bucket {
        None => Value::Null,
        Some((units, of)) => {
            let (mut a, mut b) = (units.abs(), of);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            json!(format!("{}/{}", units / a, of / a))
        }
    };
    into["bucket_units"] = json!(
        standing
            .bucket
            .map(|(units, of)| [i64::try_from(units).unwrap(), i64::try_from(of).unwrap()])
    );
    into["tier"] = json!(standing.tier);
    into["tier_hits"] = json!(standing.tier_hits);
}
