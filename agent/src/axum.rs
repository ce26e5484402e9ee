//! Answers as parts of HTTP responses.
//!
//! `Denied` becomes 429 (503 where nobody is heard and the policy is closed, 500 for hits of a resource
//! that is limited by copies) with its headers, so that
//! a handler can use `?`; so do the errors that have one in them. Headers are response parts.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use std::convert::Infallible;

use crate::answer::{Cause, Denied, HitError};
use crate::copies::ReserveError;
use crate::headers::Headers;

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let status = match self.cause() {
            // Not the caller's doing.
            Cause::Blind => StatusCode::SERVICE_UNAVAILABLE,
            // The service's own mistake.
            Cause::NotRate => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::TOO_MANY_REQUESTS,
        };
        (status, self.headers(), format!("{self}\n")).into_response()
    }
}

impl IntoResponse for ReserveError {
    fn into_response(self) -> Response {
        match self {
            Self::Denied(denied) => denied.into_response(),
            // The service's own mistake.
            Self::Misuse(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, format!("{self}\n")).into_response()
            }
            Self::Uncounted(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("{self}\n")).into_response()
            }
        }
    }
}

impl IntoResponse for HitError {
    fn into_response(self) -> Response {
        match self {
            Self::Denied(denied) => denied.into_response(),
            // Without a time to come again: there is none.
            Self::TooMany(_) => {
                (StatusCode::TOO_MANY_REQUESTS, format!("{self}\n")).into_response()
            }
            // The service's own mistake.
            Self::Misuse(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, format!("{self}\n")).into_response()
            }
        }
    }
}

impl IntoResponseParts for Headers {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.headers_mut().extend(HeaderMap::from(self));
        Ok(parts)
    }
}

impl From<Headers> for HeaderMap {
    fn from(headers: Headers) -> Self {
        headers
            .iter()
            .filter_map(|(name, value)| {
                Some((
                    HeaderName::from_static(name),
                    HeaderValue::try_from(value).ok()?,
                ))
            })
            .collect()
    }
}
