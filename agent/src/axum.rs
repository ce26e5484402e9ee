//! Answers as axum's HTTP responses.
//!
//! A refusal is a response ([`HttpAnswer`]), so that a handler can use `?`. [`Headers`] are response parts.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use std::convert::Infallible;

use crate::answer::Denied;
use crate::headers::Headers;
use crate::http::HttpAnswer;
use crate::refused::{Refused, TooMany};

impl IntoResponse for HttpAnswer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status());
        let status = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        let headers: HeaderMap = self.headers().filter_map(field).collect();
        // These headers include the body's content-type.
        (status, headers, self.body()).into_response()
    }
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        self.http().into_response()
    }
}

impl IntoResponse for TooMany {
    fn into_response(self) -> Response {
        self.http().into_response()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        self.http().into_response()
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
        headers.iter().filter_map(field).collect()
    }
}

fn field((name, value): (&'static str, String)) -> Option<(HeaderName, HeaderValue)> {
    Some((
        HeaderName::from_static(name),
        HeaderValue::try_from(value).ok()?,
    ))
}
