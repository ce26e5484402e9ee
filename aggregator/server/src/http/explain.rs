//! `GET /v1/explain`: explanations from the log that this aggregator writes.
//!
//! ```text
//! ?code=3-18250-0-1        ?resource=api.search&domain=acme&at=2026-11-21T12:00:00Z
//! ```
//!
//! Reads the log as the command does, one request at a time in a separate thread, so that the loop has no work with
//! it. Knows nothing of rules.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tollgate_shared::names::admit_domain;

use super::background::Background;
use super::query::UrlQuery;
use super::queue::Queue;
use super::{LogAccess, Shown, busy, fault};
use tollgate_replay::explain::{ExplainError, Explanation, Question, explain};
use tollgate_replay::range::parse_instant;
use tollgate_replay::source::journal::JournalSource;
use tollgate_replay::source::{Source, SourceError};

/// One request at a time: each reads a partition of the log.
static READING: Queue = Queue::new(16);
pub(super) static READER: Background = Background::new("explanations");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainUrl {
    code: Option<String>,
    resource: Option<String>,
    domain: Option<String>,
    at: Option<String>,
    /// `json`, or `text` for people.
    format: Option<String>,
}

/// Answers the request.
pub(super) async fn answer(
    State(shown): State<Shown>,
    UrlQuery(url): UrlQuery<ExplainUrl>,
) -> Response {
    let question = match question(&url) {
        Ok(question) => question,
        Err(text) => return fault(StatusCode::BAD_REQUEST, text),
    };
    let as_text = match url.format.as_deref() {
        None | Some("json") => false,
        Some("text") => true,
        Some(format) => {
            let text = format!("format = {format:?}: expected json or text");
            return fault(StatusCode::BAD_REQUEST, text);
        }
    };
    let Some(turn) = READING.turn().await else {
        return busy(&shown.counters);
    };
    let log = Arc::clone(&shown.log);
    let reading = READER.run(&turn, move || read(&log, &question));
    match reading.await {
        Some(Ok(explanation)) if as_text => {
            let form = "text/plain; charset=utf-8";
            ([(header::CONTENT_TYPE, form)], explanation.to_string()).into_response()
        }
        Some(Ok(explanation)) => Json(explanation).into_response(),
        Some(Err(ExplainError::NotThere(why))) => fault(StatusCode::NOT_FOUND, why),
        Some(Err(error)) => fault(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        None => fault(StatusCode::INTERNAL_SERVER_ERROR, "the reader panicked"),
    }
}

fn question(url: &ExplainUrl) -> Result<Question, String> {
    match (&url.code, &url.resource) {
        (Some(code), None) if url.domain.is_none() && url.at.is_none() => code
            .parse()
            .map(Question::Code)
            .map_err(|fault| format!("code = {code:?}: {fault}")),
        (None, Some(resource)) => {
            let instant = |text: &String| {
                parse_instant(text, tollgate_log::clock::wall()).ok_or(format!(
                    "at = {text:?}: expected an instant of the years 1970 to 9999, as in 2026-11-21T12:00:00Z (or microseconds since 1970), or -2h"
                ))
            };
            Ok(Question::Pair {
                resource: resource.clone(),
                // The name under which agents limit a caller of this domain.
                domain: url.domain.as_ref().map(|d| admit_domain(d).into_owned()),
                at: url.at.as_ref().map(instant).transpose()?,
            })
        }
        _ => Err("expected code, or resource with domain and at".to_owned()),
    }
}

fn read(log: &LogAccess, question: &Question) -> Result<Explanation, ExplainError> {
    let source = open(log)?;
    explain(&*source, question, &log.keys)
}

fn open(log: &LogAccess) -> Result<Box<dyn Source>, SourceError> {
    match &log.view.dir {
        Some(dir) => Ok(Box::new(JournalSource::open(dir)?)),
        None => open_kafka(log),
    }
}

#[cfg(feature = "kafka")]
fn open_kafka(log: &LogAccess) -> Result<Box<dyn Source>, SourceError> {
    use tollgate_replay::source::kafka::KafkaSource;

    let prefix = log.view.topic_prefix.as_deref().unwrap_or("tollgate");
    let bootstrap = log.view.bootstrap.join(",");
    let source = KafkaSource::open(&bootstrap, prefix, log.properties.clone())?;
    Ok(Box::new(source))
}

#[cfg(not(feature = "kafka"))]
fn open_kafka(_: &LogAccess) -> Result<Box<dyn Source>, SourceError> {
    let text = "built without the feature `kafka`";
    Err(SourceError::Missing(text.to_owned()))
}
