//! `POST /v1/decide`: decisions in JSON, for services that call the gateway themselves.
//!
//! ```text
//! {"hits": [{"resource": "api.search", "domain": "acme", "copies": 1}, …]}
//!   200 {"schema": "tollgate.decide/1", "allowed": false, "decisions": [
//!          {"allowed": false, "blind": false, "cause": "…", "retry_after_ms": 412, "code": "3-18250-0-1"}]}
//!
//! "estimates"   charged at once; their decisions have an id    "settle": [{"estimate": ID, "actual": 620}]
//! "holds"       copies with a lease; their decisions have one  "renew": [{"hold": ID, "lease_ms": N}], "release": [ID]
//!               with "confirmed_within_ms" of strict resources: once an aggregator has granted them ([`confirmed`])
//! ```
//!
//! Everything is decided and counted separately, in this order: releases, renewals and settlements, then hits,
//! estimates and holds. With `"all_or_none": true` either all hits and holds are let through, or none. `copies` is 1
//! by default; 0 hits ask without counting. The status is 200 for every decision, and 400 for a question that cannot
//! be read (413 if it is too long, 408 if it does not arrive in time), with what was expected. An entry that makes no
//! sense for its resource, like a hit of one that is limited by copies, is not allowed, and has an `error` beside its
//! cause: no limit refused it.

mod numbers;
mod question;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use tollgate_agent::{Allowed, Cause, Copies, Denied, Misuse, Rate, Refused, Settled};

use crate::authorize::hit;
use crate::body::body_of;
use crate::confirmed::{self, ConfirmedAsk, TakenHold};
use crate::connections::Connection;
use crate::state::Shared;
use question::{AskedHit, AskedHits, AskedHold, read};

#[derive(Debug, Serialize)]
struct Answer {
    schema: &'static str,
    /// Whether everything was let through.
    allowed: bool,
    decisions: Vec<Decision>,
    /// The result of each settled estimate; null if it is unknown here, or too old.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    settled: Vec<Option<&'static str>>,
    /// Whether each hold exists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    renewed: Vec<bool>,
    /// Whether each hold existed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    released: Vec<bool>,
}

#[derive(Debug, Default, Serialize)]
struct Decision {
    allowed: bool,
    /// Whether it was let through without the aggregators.
    blind: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// What is wrong with the question, if no limit refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// The id by which the estimate is settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<String>,
    /// The id by which a hold is renewed and released; with `all_or_none` one for each, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    holds: Vec<Option<String>>,
}

#[derive(Serialize)]
struct Fault {
    schema: &'static str,
    error: String,
}

/// Answers a question.
pub(crate) async fn decide(
    State(shared): State<Shared>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Response {
    let body = body_of(request, &connection).await;
    let read = |body: Bytes| read(&body).map_err(|error| (StatusCode::BAD_REQUEST, error));
    let question = match body.and_then(read) {
        Ok(question) => question,
        Err((status, error)) => {
            Shared::note("bad_question");
            let schema = "tollgate.error/1";
            return (status, Json(Fault { schema, error })).into_response();
        }
    };
    let kept = &shared.kept;
    let released = question.release.iter().map(|id| kept.release(id)).collect();
    let renewed = question.renew.iter();
    let renewed = renewed.map(|of| kept.renew(&of.hold, Duration::from_millis(of.lease_ms)));
    let renewed = renewed.collect();
    let settled = question.settle.iter();
    let settled = settled.map(|of| kept.settle(&of.estimate, of.actual).map(name_of));
    let settled = settled.collect();
    let decisions: Vec<Decision> = match question.all_or_none {
        true => vec![all_or_none(&shared, &question).await],
        false => {
            let hits = question.hits.iter().map(|asked| one(&shared, asked));
            let estimates = question.estimates.iter();
            let estimates = estimates.map(|asked| estimate(&shared, asked));
            let mut decisions: Vec<Decision> = hits.chain(estimates).collect();
            decisions.extend(holds(&shared, &question.holds).await);
            decisions
        }
    };
    let allowed = decisions.iter().all(|decision| decision.allowed);
    if !decisions.is_empty() {
        Shared::note(match allowed {
            true => "allowed",
            false if decisions.iter().any(|one| one.error.is_some()) => "bad_question",
            false => "refused",
        });
    }
    let schema = "tollgate.decide/1";
    Json(Answer {
        schema,
        allowed,
        decisions,
        settled,
        renewed,
        released,
    })
    .into_response()
}

fn one(shared: &Shared, asked: &AskedHit) -> Decision {
    let rate = shared.rate(&asked.resource);
    match hit(&rate, &asked.domain, asked.copies.unwrap_or(1)) {
        Ok(allowed) => of_allowed(&allowed),
        Err(error) => of_hit_error(&error),
    }
}

fn estimate(shared: &Shared, asked: &AskedHit) -> Decision {
    let rate = shared.rate(&asked.resource);
    match rate.hit_estimated(&asked.domain, asked.copies.unwrap_or(1)) {
        Ok(estimate) => {
            let allowed = estimate.allowed();
            Decision {
                estimate: shared.kept.keep_estimate(estimate),
                ..of_allowed(&allowed)
            }
        }
        Err(error) => of_hit_error(&error),
    }
}

/// Holds, in their order. Those that need an aggregator's grant come first, so that no others wait with them.
async fn holds(shared: &Shared, asked: &[AskedHold]) -> Vec<Decision> {
    let mut granted = confirmed::reserve(to_confirm(shared, asked))
        .await
        .into_iter();
    let decide = |asked: &AskedHold| {
        let taken = match asked.confirmed_within_ms {
            Some(_) => granted.next()?,
            None => {
                let copies = shared.agent.copies(&asked.resource);
                let blind = copies.blind();
                let hold = copies.reserve(&asked.domain, asked.copies());
                hold.map(|hold| TakenHold { hold, blind })
            }
        };
        Some(match taken {
            Ok(taken) => Decision {
                allowed: true,
                blind: taken.blind,
                hold: shared.kept.keep_hold(taken.hold, asked.lease()),
                ..Decision::default()
            },
            Err(error) => of_reserve_error(&error),
        })
    };
    asked.iter().filter_map(decide).collect()
}

fn to_confirm(shared: &Shared, asked: &[AskedHold]) -> Vec<ConfirmedAsk> {
    let ask = |asked: &AskedHold| {
        Some(ConfirmedAsk {
            within: Duration::from_millis(asked.confirmed_within_ms?),
            resource: shared.agent.copies(&asked.resource),
            domain: asked.domain.clone(),
            copies: asked.copies(),
        })
    };
    asked.iter().filter_map(ask).collect()
}

/// Copies first, since they can be given back.
async fn all_or_none(shared: &Shared, question: &AskedHits) -> Decision {
    let rates = question
        .hits
        .iter()
        .map(|asked| shared.rate(&asked.resource));
    let rates: Vec<Rate> = rates.collect();
    let hits = rates.iter().zip(&question.hits);
    let hits = hits.map(|(rate, asked)| (rate, &*asked.domain, asked.copies.unwrap_or(1)));
    let hits: Vec<(&Rate, &str, u32)> = hits.collect();
    // No copies are taken in vain. Refusals are recorded below all the same.
    let is_denied = hits
        .iter()
        .any(|(rate, domain, _)| rate.peek(domain).is_err());
    let taken = match is_denied {
        true => Vec::new(),
        false => match take_all(shared, &question.holds).await {
            Ok(taken) => taken,
            Err(error) => return of_reserve_error(&error),
        },
    };
    let allowed = match shared.agent.hit_all_n(&hits) {
        Ok(allowed) => allowed,
        Err(error) => return of_hit_error(&error),
    };
    let is_blind = allowed.blind() || taken.iter().any(|taken| taken.blind);
    let kept = taken.into_iter().zip(&question.holds);
    Decision {
        blind: is_blind,
        holds: kept
            .map(|(taken, asked)| shared.kept.keep_hold(taken.hold, asked.lease()))
            .collect(),
        ..of_allowed(&allowed)
    }
}

/// Copies of all holds, in their order, or of none: what was taken before a refusal is given back.
async fn take_all(shared: &Shared, asked: &[AskedHold]) -> Result<Vec<TakenHold>, Refused> {
    let granted = confirmed::reserve(to_confirm(shared, asked)).await;
    let granted = granted.into_iter().collect::<Result<Vec<TakenHold>, _>>()?;
    let at_once = asked
        .iter()
        .filter(|asked| asked.confirmed_within_ms.is_none());
    let at_once: Vec<(Copies, &AskedHold)> = at_once
        .map(|asked| (shared.agent.copies(&asked.resource), asked))
        .collect();
    let blind: Vec<bool> = at_once.iter().map(|(copies, _)| copies.blind()).collect();
    let wishes = at_once.iter();
    let wishes = wishes.map(|(copies, asked)| (copies, &*asked.domain, asked.copies()));
    let wishes: Vec<(&Copies, &str, u32)> = wishes.collect();
    let together = shared.agent.reserve_all(&wishes, None)?;
    let mut at_once = together.holds.into_iter().zip(blind);
    let mut granted = granted.into_iter();
    let next = |asked: &AskedHold| match asked.confirmed_within_ms {
        Some(_) => granted.next(),
        None => at_once
            .next()
            .map(|(hold, blind)| TakenHold { hold, blind }),
    };
    Ok(asked.iter().filter_map(next).collect())
}

const fn name_of(settled: Settled) -> &'static str {
    match settled {
        Settled::Exact => "exact",
        Settled::Charged(_) => "charged",
        Settled::TakenBack(_) => "taken_back",
        // And any other result that leaves the estimate as it was.
        _ => "kept",
    }
}

fn of_allowed(allowed: &Allowed) -> Decision {
    Decision {
        allowed: true,
        blind: allowed.blind(),
        remaining: allowed.remaining(),
        ..Decision::default()
    }
}

fn of_hit_error(error: &Refused) -> Decision {
    match error {
        Refused::Denied(denied) if denied.cause() == Cause::NotRate => of_error(
            "not_rate",
            "the resource is limited by copies, not by rate: expected holds",
        ),
        Refused::Denied(denied) => of_denied(denied),
        Refused::Misuse(misuse) => of_misuse(*misuse),
        error => of_cause(error.to_string()),
    }
}

fn of_reserve_error(error: &Refused) -> Decision {
    match error {
        Refused::Denied(denied) => of_denied(denied),
        Refused::Misuse(misuse) => of_misuse(*misuse),
        error => of_cause(error.to_string()),
    }
}

/// The decision for a misuse, in the terms of a question.
fn of_misuse(misuse: Misuse) -> Decision {
    match misuse {
        Misuse::NoCopies => of_error("no_copies", "0 copies: expected at least 1"),
        Misuse::NotCopies => of_error(
            "not_copies",
            "the resource is limited by rate, not by copies: expected hits or estimates",
        ),
        Misuse::Strict => of_error(
            "strict",
            "the resource is strict: expected confirmed_within_ms",
        ),
        Misuse::Optimistic => of_error(
            "optimistic",
            "the resource is not strict: expected no confirmed_within_ms",
        ),
        misuse => Decision {
            error: Some("misuse"),
            ..of_cause(misuse.to_string())
        },
    }
}

fn of_error(error: &'static str, cause: &str) -> Decision {
    Decision {
        error: Some(error),
        ..of_cause(cause.to_owned())
    }
}

fn of_cause(cause: String) -> Decision {
    Decision {
        cause: Some(cause),
        ..Decision::default()
    }
}

fn of_denied(denied: &Denied) -> Decision {
    let in_ms =
        |after: Duration| u64::try_from(after.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
    Decision {
        cause: Some(denied.to_string()),
        retry_after_ms: denied.retry_after().map(in_ms),
        code: denied.code().map(|code| code.to_string()),
        ..Decision::default()
    }
}

#[cfg(test)]
mod openapi_tests;
