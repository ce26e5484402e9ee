//! Refusals as HTTP says them: status, headers, and a problem (RFC 9457) of the kinds that the IETF draft "RateLimit
//! header fields for HTTP" registers.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tollgate_agent::{Cause, Denied, HitError, TooMany};

/// The code by which `tollgate explain` finds why a call was refused.
pub(crate) const CODE: &str = "x-tollgate-code";

/// A problem in JSON.
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
}

/// What a refused call is answered with: 429, or 503 where nobody is heard and the policy is closed.
pub(crate) fn refused(error: &HitError, status_denied: StatusCode) -> Response {
    match error {
        HitError::Denied(denied) => of_denied(denied, status_denied),
        HitError::TooMany(too_many) => of_too_many(too_many, status_denied),
        other => problem(StatusCode::INTERNAL_SERVER_ERROR, &other.to_string()),
    }
}

fn of_denied(denied: &Denied, status_denied: StatusCode) -> Response {
    let status = match denied.cause() {
        Cause::Blind => StatusCode::SERVICE_UNAVAILABLE,
        _ => status_denied,
    };
    let mut response = problem(status, &denied.to_string());
    let headers = axum::http::HeaderMap::from(denied.headers());
    response.headers_mut().extend(headers);
    let code = denied.code().map(|code| code.to_string());
    if let Some(Ok(code)) = code.map(HeaderValue::try_from) {
        response.headers_mut().insert(CODE, code);
    }
    response
}

/// Without a time to come again: there is none.
fn of_too_many(too_many: &TooMany, status_denied: StatusCode) -> Response {
    problem(status_denied, &too_many.to_string())
}

fn problem(status: StatusCode, detail: &str) -> Response {
    let (kind, title) = match status {
        StatusCode::SERVICE_UNAVAILABLE => (
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "Request cannot be satisfied due to temporary server capacity constraints",
        ),
        StatusCode::INTERNAL_SERVER_ERROR => ("about:blank", "Internal Server Error"),
        _ => (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Request cannot be satisfied as assigned quota has been exceeded",
        ),
    };
    let problem = Problem {
        kind,
        title,
        status: status.as_u16(),
        detail,
    };
    // A struct of numbers and text always becomes JSON.
    let body = serde_json::to_string(&problem).unwrap_or_default() + "\n";
    let kind = (header::CONTENT_TYPE, "application/problem+json");
    (status, [kind], body).into_response()
}
