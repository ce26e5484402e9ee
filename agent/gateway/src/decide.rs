//! `POST /v1/decide`: decisions for services that ask by themselves, in JSON.
//!
//! ```text
//! {"hits": [{"resource": "api.search", "domain": "acme", "copies": 1}, …]}
//!   200 {"schema": "tollgate.decide/1", "allowed": false, "decisions": [
//!          {"allowed": false, "blind": false, "cause": "…", "retry_after_ms": 412, "limit": 100, "code": "3-18250-0-1"}]}
//! ```
//!
//! Each hit is decided and counted for itself; with `"all_or_none": true` all of them are let through (one copy each)
//! or none is. `copies` is 1 where it is not said; 0 asks without counting. The status is 200 for every decision, and
//! 400 for what cannot be read, with what was expected.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tollgate_agent::{Allowed, Denied, HitError};

use crate::authorize::hit;
use crate::state::Shared;

/// Hits that one question may have.
pub(crate) const HITS_MAX: usize = 1_000;

/// The most bytes of a question.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedHits {
    hits: Vec<Asked>,
    #[serde(default)]
    all_or_none: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    resource: String,
    domain: String,
    copies: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Answer {
    schema: &'static str,
    /// Whether all were let through.
    allowed: bool,
    decisions: Vec<Decision>,
}

#[derive(Debug, Default, Serialize)]
struct Decision {
    allowed: bool,
    /// Let through without the aggregators' word.
    blind: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

#[derive(Serialize)]
struct Fault {
    schema: &'static str,
    error: String,
}

/// Answers a question.
pub(crate) async fn decide(State(shared): State<Shared>, body: Bytes) -> Response {
    let question = match read(&body) {
        Ok(question) => question,
        Err(error) => {
            Shared::note("bad_question");
            let schema = "tollgate.error/1";
            return (StatusCode::BAD_REQUEST, Json(Fault { schema, error })).into_response();
        }
    };
    let decisions = match question.all_or_none {
        true => vec![all_or_none(&shared, &question.hits)],
        false => question
            .hits
            .iter()
            .map(|asked| one(&shared, asked))
            .collect(),
    };
    let allowed = decisions.iter().all(|decision| decision.allowed);
    Shared::note(if allowed { "allowed" } else { "refused" });
    let schema = "tollgate.decide/1";
    Json(Answer {
        schema,
        allowed,
        decisions,
    })
    .into_response()
}

fn read(body: &[u8]) -> Result<AskedHits, String> {
    let question: AskedHits = serde_json::from_slice(body).map_err(|error| {
        format!(
            "{error}; expected {{\"hits\": [{{\"resource\": …, \"domain\": …, \"copies\": 1}}]}}"
        )
    })?;
    if question.hits.is_empty() || HITS_MAX < question.hits.len() {
        let found = question.hits.len();
        return Err(format!("{found} hits: expected 1 to {HITS_MAX}"));
    }
    let odd = |asked: &&Asked| asked.copies.is_some_and(|copies| copies != 1);
    if let (true, Some(asked)) = (question.all_or_none, question.hits.iter().find(odd)) {
        let copies = asked.copies.unwrap_or(1);
        return Err(format!(
            "all_or_none with {copies} copies: expected 1 of each"
        ));
    }
    Ok(question)
}

fn one(shared: &Shared, asked: &Asked) -> Decision {
    let rate = shared.rate(&asked.resource);
    match hit(&rate, &asked.domain, asked.copies.unwrap_or(1)) {
        Ok(allowed) => of_allowed(&allowed),
        Err(HitError::Denied(denied)) => of_denied(&denied),
        Err(error) => Decision {
            cause: Some(error.to_string()),
            ..Decision::default()
        },
    }
}

fn all_or_none(shared: &Shared, hits: &[Asked]) -> Decision {
    let rates: Vec<_> = hits
        .iter()
        .map(|asked| shared.rate(&asked.resource))
        .collect();
    let domains = hits.iter().map(|asked| asked.domain.as_str());
    let pairs: Vec<_> = rates.iter().zip(domains).collect();
    match shared.agent.hit_all(&pairs) {
        Ok(allowed) => of_allowed(&allowed),
        Err(denied) => of_denied(&denied),
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
