//! `ANY /v1/authorize/{resource}`: may the request at a web server proceed?
//!
//! ```text
//! GET /v1/authorize/api.search?domain=ip
//!   200                            it may; RateLimit and RateLimit-Policy if known
//!   429, or 403 by ?denied=403     it may not; Retry-After, RateLimit, RateLimit-Policy, x-tollgate-code
//!   503, or 403 as well            the agent is blind, and the resource's policy is to refuse such requests then
//! ```
//!
//! If the query has no `domain`, the gateway's own setting counts. Envoy appends the client's path and query to the
//! configured path. So two things come from the client and are not trusted: the whole query, if the path goes on
//! below the resource; and everything after a parameter `path`. If a parameter is repeated, the first one counts.
//! Bodies are not read. What stays true: each request counts once; a request that cannot be decided is let through,
//! with the reason in a header; a client chooses its domain and cost only where the configuration lets it.

use std::borrow::Cow;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tollgate_agent::{Allowed, Cause, HttpAnswer, Rate, Refused};
use tollgate_shared::names::check_name;

use crate::state::{Shared, Undecided};
use crate::subject::{Cost, DomainFrom};

/// The header with the reason why a request was let through without a decision.
const UNDECIDED: &str = "x-tollgate-undecided";

/// The parameters in the web server's configuration.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub domain: Option<String>,
    pub cost: Option<String>,
    pub denied: Option<String>,
}

impl Asked {
    /// A refusal, with the status that the web server passes on.
    pub fn denied(&self, answer: HttpAnswer) -> HttpAnswer {
        match self.denied.as_deref() {
            // nginx passes on no other refusal.
            Some("403") => answer.denied_as(StatusCode::FORBIDDEN.as_u16()),
            _ => answer,
        }
    }

    fn read(query: Option<&str>) -> Self {
        let mut asked = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let field = match &*name {
                "domain" => &mut asked.domain,
                "cost" => &mut asked.cost,
                "denied" => &mut asked.denied,
                // Everything after this comes from the client.
                "path" => break,
                _ => continue,
            };
            field.get_or_insert_with(|| value.into_owned());
        }
        asked
    }
}

/// Decides a request whose path is only a resource.
pub(crate) async fn authorize(
    State(shared): State<Shared>,
    uri: Uri,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let resource = resource_of(uri.path());
    answer(&shared, &resource, &Asked::read(query.as_deref()), &headers)
}

/// Decides a request whose path goes on below the resource.
pub(crate) async fn authorize_below(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let resource = resource_of(uri.path());
    answer(&shared, &resource, &Asked::default(), &headers)
}

/// The resource of a path. The rest of the path comes from the client, and both may be any bytes: an error would be a
/// refusal.
fn resource_of(path: &str) -> Cow<'_, str> {
    let segment = path.split('/').nth(3).unwrap_or_default();
    percent_encoding::percent_decode_str(segment).decode_utf8_lossy()
}

fn answer(shared: &Shared, resource: &str, asked: &Asked, headers: &HeaderMap) -> Response {
    let mut response = match decide(shared, resource, asked, headers) {
        Ok(Ok(allowed)) => {
            Shared::note(if allowed.blind() { "blind" } else { "allowed" });
            let headers = shared.settings.shown(allowed.headers());
            (StatusCode::OK, headers, ()).into_response()
        }
        Ok(Err(error)) => {
            Shared::note("refused");
            let answer = shared.settings.told_refused(error.http());
            asked.denied(answer).into_response()
        }
        Err(why) => {
            Shared::note_undecided(why);
            let undecided = [(UNDECIDED, HeaderValue::from_static(why.text()))];
            (StatusCode::OK, undecided).into_response()
        }
    };
    let cached = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, cached);
    response
}

/// Decides a request with these headers.
pub(crate) fn decide(
    shared: &Shared,
    resource: &str,
    asked: &Asked,
    headers: &HeaderMap,
) -> Result<Result<Allowed, Refused>, Undecided> {
    // The agent would count any other name under one that no limits mean, and that no command takes.
    check_name(resource).map_err(|_| Undecided::BadResource)?;
    let from = match &asked.domain {
        Some(text) => DomainFrom::parse(text),
        None => shared.settings.domain.clone(),
    };
    let from = from.ok_or(Undecided::NoDomainConfigured)?;
    let domain = from.find(headers, &shared.settings.trusted_proxies);
    let domain = domain.ok_or(Undecided::NoDomain)?;
    let copies = match &asked.cost {
        None => 1,
        Some(text) => {
            let cost = Cost::parse(text).and_then(|cost| cost.find(headers));
            cost.ok_or(Undecided::BadCost)?
        }
    };
    match hit(&shared.rate(resource), &domain, copies) {
        Err(Refused::Denied(denied)) if denied.cause() == Cause::NotRate => Err(Undecided::NotRate),
        decided => Ok(decided),
    }
}

/// A hit of this many copies; 0 asks without counting.
pub(crate) fn hit(rate: &Rate, domain: &str, copies: u32) -> Result<Allowed, Refused> {
    match copies {
        0 => Ok(rate.peek(domain)?),
        1 => Ok(rate.hit(domain)?),
        copies => rate.hit_n(domain, copies),
    }
}
