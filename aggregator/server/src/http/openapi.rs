//! `GET /v1/openapi.json`: what is answered here and what to, as OpenAPI has it, for programs that make clients of it.
//!
//! The document is a file that is kept by hand, since tests compare all of it with the routes, with what requests may
//! have, and with answers in which every field is filled: one that is forgotten there fails. Knows nothing of what
//! answers mean.

use axum::http::header;
use axum::response::{IntoResponse, Response};

const DOCUMENT: &str = include_str!("openapi.json");

/// Answers with the document.
pub(super) async fn answer() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

#[cfg(test)]
mod tests;
