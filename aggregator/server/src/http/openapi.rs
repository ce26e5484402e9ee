//! `GET /v1/openapi.json`: requests and answers as OpenAPI, for programs that generate clients.
//!
//! The document is written by hand: tests compare all of it with the routes, with the parameters of requests, and
//! with answers in which every field is filled, so anything that is missing fails a test. Knows nothing of what
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
