//! The query parameters of a request; faults in them are reported like all others.

use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;

use super::fault;

/// The parameters of a request.
pub(super) struct UrlQuery<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for UrlQuery<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(read)) => Ok(Self(read)),
            Err(refused) => Err(fault(StatusCode::BAD_REQUEST, refused.body_text())),
        }
    }
}
