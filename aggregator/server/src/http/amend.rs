//! `POST /v1/amendments`: an operator's amendment, as JSON.
//!
//! ```text
//! {"act":"lift","resource":"api.search","domain":"acme","who":"ann","why":"a bug of ours"}
//! 200 {"schema":"tollgate.amendment/1","version":18,…}     409 another version is in force
//! 404 no such resource     422 there is nothing to do     503 not possible at the moment, or not known (`unknown`)
//! 429 more than 20 a second from one address              403 from a web page, or not allowed by the token's roles
//! ```
//!
//! A ban whose end is not after this aggregator's wall clock is refused with 400: it would ban nobody. So is a ban, or
//! a limit, of a domain that is not hashed under the aggregator's domain key: no agent would use it.
//!
//! Where tokens are required, the amendment is made in the token's name: the log has that name as the author,
//! followed by the name that the caller states. A page in a browser could reach a loopback address; it cannot send
//! this document without a preflight request, and every request from a page is refused. Knows nothing of what acts
//! do. What stays true: a refused request has changed nothing, but for one whose code is `unknown`: it may be in the log
//! later.

mod act;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use tollgate_api::amend::AmendRequest;
use tollgate_api::state::FaultView;
use tollgate_log::clock::wall;
use tollgate_shared::domain_key::hashed_under;
use tollgate_shared::names::NAME_BYTES_MAX;
use tollgate_shared::object::JsonObject;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::set_rows::SetRow;

use act::ActReader;

use super::edge::Caller;
use super::{HttpCounters, Shown, Unanswered, guard, silent};
use crate::core::amendments::{AmendmentRefused, Proposal};
use crate::core::view::{Query, Reply};
use crate::security::TokenGrant;

/// How long an amendment may take to be in the log: longer than it takes until a broker that stands still is noticed, from
/// when on amendments are refused.
const PATIENCE: Duration = Duration::from_secs(15);

/// The answer after that. A repeated refund would be a second one.
const SLOW: &str = "the log has not taken the amendment within 15 s, and may still do so: look at what is in force before you repeat it";

pub(super) async fn answer(
    State(shown): State<Shown>,
    caller: Option<Extension<Caller>>,
    grant: Option<Extension<Arc<TokenGrant>>>,
    headers: HeaderMap,
    asked: Result<Json<JsonObject<AmendRequest>>, JsonRejection>,
) -> Response {
    if headers.contains_key(header::ORIGIN) {
        return fault(StatusCode::FORBIDDEN, "forbidden", "not from a page");
    }
    let proposal = match asked {
        Ok(Json(JsonObject(asked))) => {
            proposal(asked_by(asked, grant.as_deref())).and_then(|proposal| {
                check_end(&proposal.act, wall())?;
                check_domains(&proposal.act, shown.log.domain_key_id.as_deref())?;
                Ok(proposal)
            })
        }
        Err(rejected) => {
            let status = match &rejected {
                // axum has 422 for it, which here means that there is nothing to do.
                JsonRejection::JsonDataError(_) => StatusCode::BAD_REQUEST,
                other => other.status(),
            };
            return fault(status, "bad_request", &rejected.body_text());
        }
    };
    let proposal = match proposal {
        Ok(proposal) => proposal,
        Err(why) => return fault(StatusCode::BAD_REQUEST, "bad_request", &why),
    };
    if let Some(Extension(grant)) = &grant
        && let Err(why) = guard::allows(grant, &proposal.act)
    {
        HttpCounters::add(&shown.counters.unauthorised);
        return fault(StatusCode::FORBIDDEN, "forbidden", why);
    }
    if !proposal.dry_run
        && let Some(Extension(Caller(peer))) = caller
        && let Err(wait) = shown.callers.asks(peer.ip())
    {
        HttpCounters::add(&shown.counters.amendments_refused);
        let text = "more than 20 amendments a second from one address; each stays in the log";
        let answer = fault(StatusCode::TOO_MANY_REQUESTS, "too_many", text);
        let seconds = wait.as_secs() + 1;
        return ([(header::RETRY_AFTER, seconds)], answer).into_response();
    }
    let query = Query::Amend(Box::new(proposal));
    match shown.queries.ask_within(query, PATIENCE).await {
        Ok(Reply::Amended(Ok(view))) => Json(view).into_response(),
        Ok(Reply::Amended(Err(refused))) => {
            fault(status(&refused), refused.code(), &refused.to_string())
        }
        Err(Unanswered::Asked) => fault(StatusCode::SERVICE_UNAVAILABLE, "unknown", SLOW),
        Ok(_) | Err(Unanswered::NotAsked) => silent(),
    }
}

const fn status(refused: &AmendmentRefused) -> StatusCode {
    match refused {
        AmendmentRefused::Conflict { .. } => StatusCode::CONFLICT,
        AmendmentRefused::Name { .. } => StatusCode::BAD_REQUEST,
        AmendmentRefused::UnknownResource { .. } => StatusCode::NOT_FOUND,
        AmendmentRefused::Nothing { .. } | AmendmentRefused::TooMany { .. } => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        AmendmentRefused::NotNow { .. } => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn fault(status: StatusCode, code: &str, error: &str) -> Response {
    let view = FaultView {
        schema: "tollgate.error/1".into(),
        error: error.to_owned(),
        code: Some(code.to_owned()),
    };
    (status, Json(view)).into_response()
}

/// The request in the name of a token's holder, who may state on whose behalf it asks.
fn asked_by(mut request: AmendRequest, grant: Option<&Arc<TokenGrant>>) -> AmendRequest {
    let Some(grant) = grant else {
        return request;
    };
    let stated = request.who.trim();
    request.who = match stated.is_empty() || *stated == *grant.name {
        true => grant.name.to_string(),
        false => {
            let mut who = format!("{} on behalf of {stated}", grant.name);
            who.truncate(who.floor_char_boundary(NAME_BYTES_MAX));
            who
        }
    };
    request
}

/// What the core is asked.
///
/// # Errors
///
/// What is missing or should not be there.
pub fn proposal(request: AmendRequest) -> Result<Proposal, String> {
    for (field, found, expected) in [
        ("who", &request.who, "the name of the operator"),
        ("why", &request.why, "the reason of the act"),
    ] {
        if found.trim().is_empty() {
            return Err(format!(
                "{field} = {found:?}: expected {expected}, which the log records"
            ));
        }
    }
    Ok(Proposal {
        act: ActReader(&request).act()?,
        ban_lasts: request.for_us.map(Span::from_micros),
        who: request.who,
        why: request.why,
        expected: request.expected_version,
        dry_run: request.dry_run,
    })
}

/// The last end of a ban: later instants have no text.
const LAST_END: Timestamp = Timestamp::from_micros(253_402_207_200_000_000);

/// Refuses a ban that is over already, or ends after the year 9999.
fn check_end(act: &Act, now: Timestamp) -> Result<(), String> {
    match act {
        Act::Ban { until, .. } if LAST_END < *until && *until < Timestamp::MAX => Err(format!(
            "ban: until_us = {}: the end of the ban is after the year 9999, expected an earlier one, or none: a ban \
             without an end lasts until it is lifted",
            until.as_micros()
        )),
        Act::Ban { until, .. } if *until <= now => Err(format!(
            "ban: until_us = {}: the end of the ban is not after now ({}), expected microseconds since the Unix epoch",
            until.as_micros(),
            now.as_micros()
        )),
        _ => Ok(()),
    }
}

/// Refuses to ban or to limit a domain that no agent uses, where domains are hashed under a key. Acts that undo
/// something may name any: the log may have names from before the fleet had the key.
fn check_domains(act: &Act, key_id: Option<&str>) -> Result<(), String> {
    let Some(key_id) = key_id else {
        return Ok(());
    };
    let rows = match act {
        Act::Ban { domain, .. } => return check_domain(domain, key_id),
        Act::Set(row) => std::slice::from_ref(row),
        Act::SetMany(rows) => rows,
        _ => return Ok(()),
    };
    let sets = |row: &&SetRow| row.rate.is_some() || row.hard.is_some() || row.limit.is_some();
    let mut set = rows.iter().filter(sets);
    set.try_for_each(|row| check_domain(&row.domain, key_id))
}

fn check_domain(domain: &str, key_id: &str) -> Result<(), String> {
    match hashed_under(domain) == Some(key_id) {
        true => Ok(()),
        false => Err(format!(
            "domain {domain:?}: agents use hashes under the domain key {key_id}, and this is not one: expected --domain-key, \
             which hashes it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_domain_key_only_its_hashes_are_banned_and_limited() {
        let ours = format!("h~a1b2c3~{}", "0".repeat(32));
        let theirs = format!("h~a1b2c4~{}", "0".repeat(32));
        let row = |domain: &str, limit: Option<u64>| SetRow {
            resource: "sandbox".into(),
            domain: domain.into(),
            rate: None,
            hard: None,
            limit,
        };
        let ban = |domain: &str| Act::Ban {
            resource: None,
            domain: domain.into(),
            until: Timestamp::MAX,
        };
        let with = |act: &Act| check_domains(act, Some("a1b2c3"));
        for wrong in ["mallory", "10.0.0.0/8", &theirs] {
            let set = row(wrong, Some(1));
            let many = Act::SetMany(vec![row(&ours, Some(1)), set.clone()]);
            for act in [ban(wrong), Act::Set(set), many] {
                let fault = with(&act).expect_err("no hash");
                assert!(fault.contains("--domain-key"), "{fault}");
                assert_eq!(check_domains(&act, None), Ok(()), "no key is configured");
            }
        }
        let unban = Act::Unban {
            resource: None,
            domain: "mallory".into(),
        };
        for right in [ban(&ours), Act::Set(row("mallory", None)), unban] {
            assert_eq!(with(&right), Ok(()), "{right:?}");
        }
    }

    #[test]
    fn an_act_without_author_or_reason_is_refused_by_the_fields_name() {
        let asked = |who: &str, why: &str| {
            let asked = AmendRequest {
                act: "ban".to_owned(),
                domain: Some("mallory".to_owned()),
                who: who.to_owned(),
                why: why.to_owned(),
                ..AmendRequest::default()
            };
            proposal(asked).map(|proposal| proposal.who)
        };
        assert_eq!(asked("ann", "a bug").as_deref(), Ok("ann"));
        for (who, why, expected) in [
            ("", "a bug", "who = \"\": expected the name of the operator"),
            (
                " ",
                "a bug",
                "who = \" \": expected the name of the operator",
            ),
            ("ann", "", "why = \"\": expected the reason of the act"),
            ("ann", "\t", "why = \"\\t\": expected the reason of the act"),
        ] {
            let fault = asked(who, why).expect_err("nobody, or no reason");
            assert_eq!(fault, format!("{expected}, which the log records"));
        }
    }

    #[test]
    fn a_ban_that_is_over_already_is_refused() {
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        let until = |until_us: Option<u64>| {
            let asked = AmendRequest {
                act: "ban".to_owned(),
                domain: Some("mallory".to_owned()),
                until_us,
                ..AmendRequest::default()
            };
            check_end(&ActReader(&asked).act().expect("a ban"), now)
        };
        assert_eq!(until(None), Ok(()), "it has no end");
        assert_eq!(until(Some(1_800_000_000_000_001)), Ok(()));
        assert_eq!(until(Some(LAST_END.as_micros())), Ok(()));
        assert_eq!(until(Some(u64::MAX)), Ok(()), "as in the log: no end");
        for beyond in [LAST_END.as_micros() + 1, u64::MAX - 1] {
            let fault = until(Some(beyond)).expect_err("beyond");
            assert!(fault.contains("the year 9999"), "{fault}");
        }
        let text = tollgate_replay::range::Utc(LAST_END).to_string();
        assert!(text.starts_with("9999-12-30T"), "{text}");
        assert!(until(Some(now.as_micros())).is_err());
        let millis = until(Some(1_800_000_060_000)).expect_err("milliseconds");
        let expected =
            "ban: until_us = 1800000060000: the end of the ban is not after now (1800000000000000)";
        assert!(millis.starts_with(expected), "{millis}");
    }
}
