//! A refusal as a response: of HTTP, or of gRPC if the call was one.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tollgate_agent::HttpAnswer;

/// The gRPC statuses RESOURCE_EXHAUSTED, UNAVAILABLE and INTERNAL.
const EXHAUSTED: &str = "8";
const UNAVAILABLE: &str = "14";
const INTERNAL: &str = "13";

/// The fields by which a response states a limit. A layer leaves them as they are: they are those of an inner layer,
/// which may have refused the call, or of the service.
pub(crate) const LIMIT_FIELDS: [&str; 2] = ["ratelimit", "ratelimit-policy"];

/// The response to a refused call, and its text if it has one.
pub(crate) fn refused(answer: &HttpAnswer, is_grpc: bool) -> Response<Option<Bytes>> {
    let (status, body) = match is_grpc {
        true => (StatusCode::OK, None),
        false => (
            StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS),
            Some(Bytes::from(answer.body())),
        ),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    put(response.headers_mut(), answer.headers());
    if is_grpc {
        as_grpc(response.headers_mut(), answer);
    }
    response
}

/// An answer without messages: everything is in its head.
fn as_grpc(headers: &mut HeaderMap, answer: &HttpAnswer) {
    let status = match answer.status() {
        503 => UNAVAILABLE,
        500 => INTERNAL,
        _ => EXHAUSTED,
    };
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-status", HeaderValue::from_static(status));
    let pushback = answer.retry_after_secs().map(|seconds| {
        let milliseconds = seconds.saturating_mul(1_000);
        ("grpc-retry-pushback-ms", milliseconds.to_string())
    });
    let message = ("grpc-message", percent_encoded(answer.detail()));
    put(headers, pushback.into_iter().chain([message]));
}

/// Encodes a text for gRPC: a byte that is a percent sign, or not a printable ASCII character, is percent-encoded.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' => encoded.push_str("%25"),
            b' '..=b'~' => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Puts header fields into a head, and replaces existing ones.
pub(crate) fn put(
    headers: &mut HeaderMap,
    fields: impl IntoIterator<Item = (&'static str, String)>,
) {
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
