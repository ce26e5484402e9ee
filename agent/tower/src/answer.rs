//! A refusal as a response: of HTTP, or of gRPC if the call was one.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tollgate_agent::{HttpAnswer, Refused};

/// The gRPC statuses RESOURCE_EXHAUSTED, UNAVAILABLE and INTERNAL.
const EXHAUSTED: &str = "8";
const UNAVAILABLE: &str = "14";
const INTERNAL: &str = "13";

/// Whether a response states a limit, by the fields that it has. A layer leaves these as they are: they are those of an
/// inner layer, which may have refused the call, or of the service.
pub(crate) fn states_limit(has: impl Fn(&str) -> bool) -> bool {
    has("ratelimit") || has("ratelimit-policy")
}

/// A refusal.
#[derive(Debug)]
pub(crate) struct LayerRefusal {
    answer: HttpAnswer,
    /// Whether the same call will be refused again, however long the client waits.
    is_final: bool,
}

impl LayerRefusal {
    pub fn new(error: &Refused, tells_legacy: bool) -> Self {
        let answer = match tells_legacy {
            true => error.http().with_legacy_headers(),
            false => error.http(),
        };
        let is_final = error.is_caller_error() || matches!(error, Refused::TooMany(_));
        Self { answer, is_final }
    }
}

/// The response to a refused call, and its text if it has one; for a gRPC call with this content type.
pub(crate) fn refused(
    refusal: &LayerRefusal,
    grpc: Option<&'static str>,
) -> Response<Option<Bytes>> {
    let answer = &refusal.answer;
    let (status, body) = match grpc {
        Some(_) => (StatusCode::OK, None),
        None => (
            StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS),
            Some(Bytes::from(answer.body())),
        ),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    put(response.headers_mut(), answer.headers());
    if let Some(content_type) = grpc {
        as_grpc(response.headers_mut(), refusal, content_type);
    }
    response
}

/// An answer without messages: everything is in its head.
fn as_grpc(headers: &mut HeaderMap, refusal: &LayerRefusal, content_type: &'static str) {
    let answer = &refusal.answer;
    let status = match answer.status() {
        503 => UNAVAILABLE,
        500 => INTERNAL,
        _ => EXHAUSTED,
    };
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(content_type),
    );
    headers.insert("grpc-status", HeaderValue::from_static(status));
    let pushback = match answer.retry_after_secs() {
        Some(seconds) => Some(seconds.saturating_mul(1_000).to_string()),
        // By a negative number a server asks its client not to try again. Without any, it tries by its own policy.
        None => refusal.is_final.then(|| "-1".to_owned()),
    };
    let pushback = pushback.map(|milliseconds| ("grpc-retry-pushback-ms", milliseconds));
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
