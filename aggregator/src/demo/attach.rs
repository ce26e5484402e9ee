//! Asks a running fleet: where agents connect, where its log is, what it limits.

use serde::Deserialize;
use tollgate_api::limits::LimitsView;
use tollgate_api::state::LogView;
use tollgate_limits::Limits;
use tollgate_shared::time::Span;

use super::plan::{AttachedLog, Log};
use crate::exit::Failure;

/// How many times its limit is offered to a resource.
const TIMES_THE_LIMIT: f64 = 2.0;

/// The most calls per second to one resource: a demonstration is not a load test.
const RATE_MAX: f64 = 2_000.0;

/// The most resources that get calls.
const RESOURCES_MAX: usize = 8;

/// A fleet that runs already.
#[derive(Debug)]
pub struct Attached {
    /// Its log.
    pub log: Log,
    /// Its limits.
    pub limits: Limits,
    /// Resources that limit a domain, and for each a rate of calls, per second, above that limit.
    pub resources: Vec<(String, f64)>,
}

/// Asks the aggregator that answers under `url`.
///
/// # Errors
///
/// If no aggregator answers, or it limits nothing.
pub fn attach(url: &str) -> Result<Attached, Failure> {
    let log: LogView = get(url, "/v1/log")?;
    let limits: LimitsView = get(url, "/v1/limits")?;
    let limits = limits.normalised.map_or_else(
        || Ok(Limits::default()),
        |text| {
            Limits::parse(&text).map_err(|faults| Failure::Data(faults.in_file(url).to_string()))
        },
    )?;
    let resources: Vec<(String, f64)> = limits
        .rates()
        .filter(|rate| !rate.name().ends_with('*'))
        .filter_map(|rate| Some((rate.name().to_owned(), offered_to(&limits, rate.name())?)))
        .take(RESOURCES_MAX)
        .collect();
    if resources.is_empty() {
        return Err(Failure::Data(format!(
            "{url}: no resource is limited there, so nothing can be refused"
        )));
    }
    let at = match (&*log.kind, log.dir) {
        ("journal", Some(dir)) => AttachedLog::Journal(dir),
        ("kafka", _) => AttachedLog::Kafka {
            bootstrap: log.bootstrap.join(","),
            prefix: log.topic_prefix.unwrap_or_default(),
        },
        (kind, _) => {
            return Err(Failure::Data(format!(
                "{url}/v1/log: unknown kind {kind:?}"
            )));
        }
    };
    Ok(Attached {
        log: Log::Attached {
            agents: log.agents,
            log: at,
        },
        limits,
        resources,
    })
}

/// A rate of calls, per second, that fills the lowest tier's window and exceeds it.
fn offered_to(limits: &Limits, resource: &str) -> Option<f64> {
    let rate = limits.rate(resource)?;
    let class = limits.class(rate.default_class());
    let a_second = |limit: u64, span: Span| limit as f64 * 1e6 / span.as_micros() as f64;
    let tier = class.tiers().first();
    let tier = tier.map(|tier| a_second(tier.limit, tier.window));
    let windows = class.windows.iter();
    let windows = windows.map(|window| a_second(window.limit, window.window));
    let bucket = class.bucket.as_ref();
    let bucket = bucket.map(|bucket| a_second(bucket.tokens, bucket.period));
    let hard = class.hard.map(|hard| hard as f64);
    let rates = windows.chain(tier).chain(bucket).chain(hard);
    let rate = rates.min_by(f64::total_cmp)?;
    Some((rate * TIMES_THE_LIMIT).clamp(1.0, RATE_MAX))
}

fn get<T: for<'de> Deserialize<'de>>(url: &str, path: &str) -> Result<T, Failure> {
    let opened = crate::reach::open(url, None)?;
    let url = format!("{}{path}", url.trim_end_matches('/'));
    let mut response = opened
        .get(path)
        .call()
        .map_err(crate::reach::unavailable(&url))?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(Failure::Unavailable(format!("{url}: status {status}")));
    }
    let body = response.body_mut().read_to_string();
    let body = body.map_err(|error| Failure::Unavailable(format!("{url}: {error}")))?;
    serde_json::from_str(&body).map_err(|error| Failure::Data(format!("{url}: {error}")))
}
