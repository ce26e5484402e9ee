//! `POST /v1/amendments`: an operator's amendment, as JSON.
//!
//! ```text
//! {"act":"lift","resource":"api.search","domain":"acme","who":"ann","why":"a bug of ours"}
//! 200 {"schema":"tollgate.amendment/1","version":18,…}     409 another version is in force
//! 404 no such resource     422 there is nothing to do     503 not possible at the moment
//! 429 more than 20 a second by one caller                 403 from a web page, or not allowed by the token's roles
//! ```
//!
//! A ban whose end is not after this aggregator's wall clock is refused with 400: it would ban nobody.
//!
//! Where tokens are required, the amendment is made in the token's name: the log has that name as the author,
//! followed by the name that the caller states. A page in a browser could reach a loopback address; it cannot send
//! this document without a preflight request, and every request from a page is refused. Knows nothing of what acts
//! do. What stays true: a refused request has changed nothing.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use tollgate_api::amend::{AmendRequest, AmendRow};
use tollgate_api::state::FaultView;
use tollgate_log::clock::wall;
use tollgate_shared::names::{NAME_BYTES_MAX, admit_domain};
use tollgate_shared::object::JsonObject;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::set_rows::{ROWS_MAX, SetRow};

use super::edge::Caller;
use super::{HttpCounters, Shown, guard, silent};
use crate::core::amendments::{AmendmentRefused, Proposal};
use crate::core::view::{Query, Reply};
use crate::security::TokenGrant;

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
    if let Some(Extension(Caller(peer))) = caller
        && let Err(wait) = shown.callers.asks(peer.ip())
    {
        HttpCounters::add(&shown.counters.amendments_refused);
        let text = "more than 20 amendments a second; each stays in the log";
        let answer = fault(StatusCode::TOO_MANY_REQUESTS, "too_many", text);
        let seconds = wait.as_secs() + 1;
        return ([(header::RETRY_AFTER, seconds)], answer).into_response();
    }
    let proposal = match asked {
        Ok(Json(JsonObject(asked))) => proposal(asked_by(asked, grant.as_deref()))
            .and_then(|proposal| check_end(&proposal.act, wall()).map(|()| proposal)),
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
    match shown.queries.ask(Query::Amend(Box::new(proposal))).await {
        Some(Reply::Amended(Ok(view))) => Json(view).into_response(),
        Some(Reply::Amended(Err(refused))) => {
            fault(status(&refused), refused.code(), &refused.to_string())
        }
        _ => silent(),
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
    if request.why.trim().is_empty() || request.who.is_empty() {
        return Err("who and why: expected both".to_owned());
    }
    Ok(Proposal {
        act: ActReader(&request).act()?,
        who: request.who,
        why: request.why,
        expected: request.expected_version,
        dry_run: request.dry_run,
    })
}

/// Refuses a ban that is over already.
fn check_end(act: &Act, now: Timestamp) -> Result<(), String> {
    match act {
        Act::Ban { until, .. } if *until <= now => Err(format!(
            "ban: until_us = {}: the end of the ban is not after now ({}), expected microseconds since the Unix epoch",
            until.as_micros(),
            now.as_micros()
        )),
        _ => Ok(()),
    }
}

/// Reads the act of a request, which needs some of its fields and allows no others.
struct ActReader<'a>(&'a AmendRequest);

impl Deref for ActReader<'_> {
    type Target = AmendRequest;

    fn deref(&self) -> &AmendRequest {
        self.0
    }
}

impl ActReader<'_> {
    fn act(&self) -> Result<Act, String> {
        let act = self.act.as_str();
        if let Some(foreign) = self.foreign() {
            return Err(format!(
                "{act}: expected no {foreign}, which belongs to another act"
            ));
        }
        Ok(match act {
            "lift" => Act::Pardon {
                resource: self.resource()?,
                domain: self.domain()?,
            },
            "reset" => Act::Reset {
                resource: self.resource()?,
                domain: self.domain()?,
            },
            "refund" => Act::Refund {
                resource: self.resource()?,
                domain: self.domain()?,
                hits: self
                    .hits
                    .filter(|hits| 0 < *hits)
                    .ok_or_else(|| self.missing("hits, at least 1"))?,
            },
            "ban" => Act::Ban {
                resource: self.resource().ok(),
                domain: self.domain()?,
                until: self.until_us.map_or(Timestamp::MAX, Timestamp::from_micros),
            },
            "unban" => Act::Unban {
                resource: self.resource().ok(),
                domain: self.domain()?,
            },
            "release" => self.release()?,
            "switch" => self.switch()?,
            "set" => self.set()?,
            other => return Err(format!("act {other:?}: there is no such act")),
        })
    }

    /// A field that the act does not have. Ignoring it would report as done what nobody asked for.
    fn foreign(&self) -> Option<&'static str> {
        const PAIR: &[&str] = &["resource", "domain"];
        let own: &[&str] = match self.act.as_str() {
            "refund" => &["hits"],
            "ban" => &["until_us"],
            "release" => &["agent", "epoch", "number", "transfer"],
            "switch" => &["namespace", "ignore_configured", "allow_unconfigured"],
            "set" => &["rate", "hard", "limit", "remove", "rows"],
            _ => &[],
        };
        let is_of_pair = self.act != "switch";
        let stated = [
            ("resource", self.resource.is_some()),
            ("domain", self.domain.is_some()),
            ("hits", self.hits.is_some()),
            ("until_us", self.until_us.is_some()),
            ("agent", self.agent.is_some()),
            ("epoch", self.epoch.is_some()),
            ("number", self.number.is_some()),
            ("transfer", self.transfer.is_some()),
            ("namespace", self.namespace.is_some()),
            ("ignore_configured", self.ignore_configured.is_some()),
            ("allow_unconfigured", self.allow_unconfigured.is_some()),
            ("rate", self.rate.is_some()),
            ("hard", self.hard.is_some()),
            ("limit", self.limit.is_some()),
            ("remove", self.remove),
            ("rows", !self.rows.is_empty()),
        ];
        let mut stated = stated.into_iter().filter(|(_, is_stated)| *is_stated);
        let is_own =
            |field: &&'static str| own.contains(field) || is_of_pair && PAIR.contains(field);
        let foreign = stated.find(|(field, _)| !is_own(field));
        foreign.map(|(field, _)| field)
    }

    /// The act that switches the rules of a namespace, or restores them.
    fn switch(&self) -> Result<Act, String> {
        let name = self.namespace.as_deref();
        let name = name.ok_or_else(|| self.missing("namespace"))?;
        let switches = self.ignore_configured.is_some() || self.allow_unconfigured.is_some();
        if switches && name.contains('.') {
            return Err(format!(
                "switch: namespace {name:?}: contains a dot, expected the part of a resource's name before its first dot"
            ));
        }
        Ok(Act::Switch {
            namespace: name.into(),
            ignore_configured: self.ignore_configured,
            allow_unconfigured: self.allow_unconfigured,
        })
    }

    /// The act that releases holds, or staged copies.
    fn release(&self) -> Result<Act, String> {
        Ok(
            match (self.number, &self.epoch, &self.agent, &self.transfer) {
                (None, None, None, Some(text)) if self.domain.is_none() => Act::ReleaseTransfer {
                    resource: self.resource()?,
                    transfer: text
                        .parse()
                        .map_err(|fault| format!("release: transfer {text:?}: {fault}"))?,
                },
                (.., Some(_)) => return Err(self.missing("a transfer alone, or none")),
                (Some(number), Some(epoch), Some(agent), None) => Act::ReleaseHold {
                    resource: self.resource()?,
                    agent: agent.as_str().into(),
                    epoch: u128::from_str_radix(epoch, 16)
                        .map_err(|_| self.missing("an epoch in hexadecimal"))?,
                    number,
                },
                (None, None, _, None) if self.domain.is_some() || self.agent.is_some() => {
                    Act::ReleaseHolds {
                        resource: self.resource()?,
                        domain: self.domain().ok(),
                        agent: self.agent.as_deref().map(Box::from),
                    }
                }
                _ => {
                    let text = "agent, epoch and number; domain or agent; or transfer";
                    return Err(self.missing(text));
                }
            },
        )
    }

    /// The act that sets a domain's own limits.
    fn set(&self) -> Result<Act, String> {
        if !self.rows.is_empty() {
            return self.set_many();
        }
        let states = self.rate.is_some() || self.hard.is_some() || self.limit.is_some();
        if states == self.remove {
            return Err(self.missing("rate, hard or limit; or remove"));
        }
        Ok(Act::Set(SetRow {
            resource: self.resource()?,
            // In the spelling of the document.
            domain: self
                .domain
                .as_deref()
                .map(Box::from)
                .ok_or_else(|| self.missing("domain"))?,
            rate: self.rate.as_deref().map(Box::from),
            hard: self.hard.as_deref().map(Box::from),
            limit: self.limit,
        }))
    }

    /// The act that sets many domains' own limits.
    fn set_many(&self) -> Result<Act, String> {
        let names_one = self.resource.is_some() || self.domain.is_some() || self.remove;
        if names_one || self.rate.is_some() || self.hard.is_some() || self.limit.is_some() {
            return Err(self.missing("rows alone, or one domain"));
        }
        if ROWS_MAX < self.rows.len() {
            return Err(self.missing("at most 8192 rows"));
        }
        let row = |row: &AmendRow| SetRow {
            resource: row.resource.as_str().into(),
            domain: row.domain.as_str().into(),
            rate: row.rate.as_deref().map(Box::from),
            hard: row.hard.as_deref().map(Box::from),
            limit: row.limit,
        };
        Ok(Act::SetMany(self.rows.iter().map(row).collect()))
    }

    fn missing(&self, field: &str) -> String {
        format!("{}: expected {field}", self.act)
    }

    fn resource(&self) -> Result<Box<str>, String> {
        let resource = self.resource.as_deref().map(Box::from);
        resource.ok_or_else(|| self.missing("resource"))
    }

    /// The name under which a caller of the domain is limited.
    fn domain(&self) -> Result<Box<str>, String> {
        let domain = self.domain.as_deref();
        let domain = domain.map(|domain| Box::from(&*admit_domain(domain)));
        domain.ok_or_else(|| self.missing("domain"))
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::holdings::TransferId;

    use super::*;

    fn released(asked: AmendRequest) -> Result<Act, String> {
        let asked = AmendRequest {
            act: "release".to_owned(),
            resource: Some("sandbox".to_owned()),
            who: "ann".to_owned(),
            why: "a test".to_owned(),
            ..asked
        };
        proposal(asked).map(|proposal| proposal.act)
    }

    fn transfer(id: &str) -> AmendRequest {
        AmendRequest {
            transfer: Some(id.to_owned()),
            ..AmendRequest::default()
        }
    }

    #[test]
    fn rows_stand_in_place_of_one_domain() {
        let row = AmendRow {
            resource: "search".to_owned(),
            domain: "acme".to_owned(),
            rate: Some("9/s".to_owned()),
            ..AmendRow::default()
        };
        let set = |rows: Vec<AmendRow>, domain: Option<&str>| {
            let asked = AmendRequest {
                act: "set".to_owned(),
                domain: domain.map(str::to_owned),
                rows,
                ..AmendRequest::default()
            };
            ActReader(&asked).act()
        };
        let Ok(Act::SetMany(rows)) = set(vec![row.clone(), AmendRow::default()], None) else {
            panic!("two rows");
        };
        assert_eq!((rows.len(), rows[0].rate.as_deref()), (2, Some("9/s")));
        let both = set(vec![row.clone()], Some("acme")).expect_err("both");
        assert_eq!(both, "set: expected rows alone, or one domain");
        assert!(set(vec![row; ROWS_MAX + 1], None).is_err());
    }

    #[test]
    fn a_field_of_another_act_is_refused() {
        let asked = |act: &str, more: AmendRequest| {
            let asked = AmendRequest {
                act: act.to_owned(),
                domain: Some("mallory".to_owned()),
                ..more
            };
            ActReader(&asked).act()
        };
        let hits = |hits| AmendRequest {
            hits,
            ..AmendRequest::default()
        };
        assert!(asked("ban", hits(None)).is_ok());
        let fault = asked("ban", hits(Some(3))).expect_err("hits");
        assert_eq!(fault, "ban: expected no hits, which belongs to another act");
        let rate = AmendRequest {
            rate: Some("9/s".to_owned()),
            ..AmendRequest::default()
        };
        assert!(asked("ban", rate.clone()).is_err());
        assert!(asked("unban", rate).is_err());
        let switch = AmendRequest {
            namespace: Some("api".to_owned()),
            ..AmendRequest::default()
        };
        let fault = asked("switch", switch).expect_err("a domain");
        assert!(fault.contains("no domain"), "{fault}");
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
        assert!(until(Some(now.as_micros())).is_err());
        let millis = until(Some(1_800_000_060_000)).expect_err("milliseconds");
        let expected =
            "ban: until_us = 1800000060000: the end of the ban is not after now (1800000000000000)";
        assert!(millis.starts_with(expected), "{millis}");
    }

    #[test]
    fn staged_copies_are_named_by_their_id_alone() {
        let id = TransferId(0xab);
        let act = Act::ReleaseTransfer {
            resource: "sandbox".into(),
            transfer: id,
        };
        assert_eq!(released(transfer(&id.to_string())), Ok(act));
        for wrong in ["", "ab", "g00000000000000000000000000000ab"] {
            let fault = released(transfer(wrong)).expect_err("no id");
            let expected = format!(
                "release: transfer {wrong:?}: not the id of a transfer, expected 32 hexadecimal digits"
            );
            assert_eq!(fault, expected);
        }
        let named = || Some("a".to_owned());
        let beside = [
            AmendRequest {
                domain: named(),
                ..AmendRequest::default()
            },
            AmendRequest {
                agent: named(),
                ..AmendRequest::default()
            },
            AmendRequest {
                number: Some(1),
                ..AmendRequest::default()
            },
        ];
        for other in beside {
            let both = AmendRequest {
                transfer: Some(id.to_string()),
                ..other
            };
            let fault = released(both).expect_err("both");
            assert_eq!(fault, "release: expected a transfer alone, or none");
        }
        let fault = released(AmendRequest::default()).expect_err("nothing");
        assert!(fault.ends_with("domain or agent; or transfer"), "{fault}");
    }
}
