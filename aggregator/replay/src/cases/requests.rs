//! Cases of requests, which are ruled in line. Cases of the paper have ops without a name; cases of
//! windows, buckets and quotas have ops named `request`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_shared::time::Timestamp;

use super::CaseFault;
use super::limits::CaseLimits;
use super::show::{CaseEnd, counts};
use tollgate_engine::inline::{Inline, InlineAnswer};
use tollgate_engine::rules::State;
use tollgate_engine::rules::request::LimitedBy;
use tollgate_engine::rules::request::Request;
use tollgate_limits::RateClass;

#[derive(Deserialize)]
struct RequestCase {
    limits: CaseLimits,
    ops: Vec<RequestOp>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct RequestOp {
    op: Option<RequestOpName>,
    t: u64,
    domain: String,
    copies: u64,
    min: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RequestOpName {
    Request,
}

/// Plays a case. Returns the result of each op.
pub(super) fn play(case: &Value) -> Result<Vec<Value>, CaseFault> {
    let case = RequestCase::deserialize(case)?;
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
        let now = Timestamp::from_micros(op.t);
        let answer = inline.request(class, now, &op.domain, request);
        let mut result = Map::new();
        match (op.op, inline.state(&op.domain)) {
            (Some(RequestOpName::Request), Some(state)) => {
                show_all(&mut result, &answer, (class, state, now), case.more);
            }
            _ => show_tiers(&mut result, &answer),
        }
        results.push(result.into());
    }
    Ok(results)
}

fn show_all(
    result: &mut Map<String, Value>,
    answer: &InlineAnswer,
    (class, state, now): (&RateClass, &State, Timestamp),
    more: bool,
) {
    let fields = json!({
        "granted": answer.granted,
        "limited_by": answer.limited_by.map(LimitedBy::name),
        "domain_until": CaseEnd::of_until(answer.until),
    });
    result.extend(fields.as_object().cloned().unwrap_or_default());
    counts(result, class, state, now, more);
}

fn show_tiers(result: &mut Map<String, Value>, answer: &InlineAnswer) {
    let fields = json!({
        "granted": answer.granted,
        "burst": answer.burst,
        "limited_by": answer.limited_by.map(LimitedBy::name),
        "tier": answer.tier,
        "tier_limit": answer.tier_limit,
        "tier_hits": answer.tier_hits,
        "domain_last_second": answer.domain_last_second,
        "global_last_second": answer.global_last_second,
        "domain_until": CaseEnd::of_until(answer.domain_until),
        "global_until": CaseEnd::of_until(answer.global_until),
    });
    result.extend(fields.as_object().cloned().unwrap_or_default());
}
