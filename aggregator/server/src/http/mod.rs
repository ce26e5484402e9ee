//! HTTP for operators: health, metrics, and what is in force, as JSON.
//!
//! ```text
//! /healthz /readyz /metrics     not versioned
//! /v1/denials  /v1/pairs  /v1/holds  /v1/top
//! /v1/candidates                                         of the whole fleet: see `fleet`
//! /v1/limits   /v1/bans  /v1/explain                     of the log, so that every aggregator answers the same
//! /v1/digests  /v1/log                                   of this process alone
//! /v1/openapi.json                                       all of these, for programs: see `openapi`
//! ```
//!
//! `edge` bounds connections, hosts and bodies. Each answer asks the core and shows its reply. No call of a service
//! waits for anything here, and only amendments (`POST /v1/amendments`) change anything. Knows nothing of rules. What
//! stays true: no metric is labelled by domain.

pub mod amend;
mod background;
mod callers;
pub mod client;
mod cursor;
mod edge;
mod explain;
pub mod fleet;
mod guard;
mod hosts;
mod lists;
mod merge;
mod metrics;
mod openapi;
mod places;
mod query;
mod queue;

pub use edge::{HttpCounters, serve};
pub use hosts::Hosts;
pub use lists::ROWS_MAX;
pub use metrics::{Metrics, SecurityMetrics};

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::{mpsc, oneshot};
use tollgate_api::state::{FaultView, LogView};

use crate::core::event::{Event, QueryId};
use crate::core::view::{Query, Reply};
use background::Background;
use fleet::Others;
use queue::Queue;

/// The thread in which lists and metrics are serialised.
static ANSWERS: Background = Background::new("answers");

/// That in which limits are, which may have a million domains and take seconds.
static DOCUMENTS: Background = Background::new("documents");

/// Metrics wait for no list to be gathered.
static METRICS: Queue = Queue::new(32);

/// Ends the threads of the least priority, each within a time. A later job would start them again.
pub(crate) fn end_background(within: Duration) {
    ANSWERS.end(within);
    DOCUMENTS.end(within);
    explain::READER.end(within);
}

/// How long the core may take to answer. It answers between two events, and is only slower than this if it does not
/// run any more.
const PATIENCE: Duration = Duration::from_secs(5);

/// Queries that wait for the core's answers.
#[derive(Clone)]
pub struct PendingQueries {
    events: mpsc::Sender<Event>,
    waiting: Arc<Mutex<HashMap<QueryId, oneshot::Sender<Reply>>>>,
    next: Arc<AtomicU64>,
}

impl PendingQueries {
    /// No queries yet; they will go to `events`.
    pub fn new(events: mpsc::Sender<Event>) -> Self {
        Self {
            events,
            waiting: Arc::default(),
            next: Arc::default(),
        }
    }

    /// Hands an answer to the request that waits for it.
    pub fn answer(&self, id: QueryId, reply: Reply) {
        if let Some(asker) = self.take(id) {
            // The request may be gone.
            let _ = asker.send(reply);
        }
    }

    fn take(&self, id: QueryId) -> Option<oneshot::Sender<Reply>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&id)
    }

    /// Asks the core; `None` if it does not answer in time.
    pub async fn ask(&self, query: Query) -> Option<Reply> {
        self.ask_within(query, PATIENCE).await.ok()
    }

    /// The same with more or less patience.
    async fn ask_within(&self, query: Query, patience: Duration) -> Result<Reply, Unanswered> {
        let id = QueryId(self.next.fetch_add(1, Ordering::Relaxed));
        let (asker, answer) = oneshot::channel();
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, asker);
        let _waits = Waits { queries: self, id };
        let mut why = Unanswered::NotAsked;
        let asked = async {
            self.events.send(Event::Query { id, query }).await.ok()?;
            why = Unanswered::Asked;
            answer.await.ok()
        };
        let reply = tokio::time::timeout(patience, asked).await.ok().flatten();
        reply.ok_or(why)
    }
}

/// Why a query has no answer.
enum Unanswered {
    /// The core has not got it.
    NotAsked,
    /// The core has got it, and has not answered in time.
    Asked,
}

/// A query that waits, until it was answered or nobody waits any more.
struct Waits<'q> {
    queries: &'q PendingQueries,
    id: QueryId,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.queries.take(self.id);
    }
}

#[derive(Clone)]
struct Shown {
    queries: PendingQueries,
    metrics: Arc<Metrics>,
    log: Arc<LogAccess>,
    others: Others,
    counters: Arc<HttpCounters>,
    callers: Arc<callers::Callers>,
}

/// The log, and what an explanation needs to read it.
#[derive(Clone, Debug)]
pub struct LogAccess {
    /// The log's description, as clients get it.
    pub view: LogView,
    /// Kafka's client properties for the connection. They may hold secrets, and are not shown.
    pub properties: std::collections::BTreeMap<String, String>,
    /// The keys under which aggregators write records.
    pub keys: tollgate_shared::keyring::Keyring,
    /// The id of the key under which domains are hashed; `None`: they have their names.
    pub domain_key_id: Option<Box<str>>,
}

/// The routes.
pub fn routes(
    queries: PendingQueries,
    metrics: Arc<Metrics>,
    log: LogAccess,
    others: Others,
    counters: Arc<HttpCounters>,
) -> Router {
    let log = Arc::new(log);
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics_text))
        .route("/v1/limits", get(lists::limits))
        .route("/v1/denials", get(lists::denials))
        .route("/v1/bans", get(lists::bans))
        .route("/v1/pairs", get(lists::pair_by_query))
        .route("/v1/pairs/{resource}/{domain}", get(lists::pair_by_path))
        .route("/v1/holds", get(lists::holds))
        .route("/v1/top", get(lists::top))
        .route("/v1/candidates", get(lists::candidates))
        .route("/v1/digests", get(digests))
        .route("/v1/explain", get(explain::answer))
        .route("/v1/amendments", post(amend::answer))
        .route("/v1/openapi.json", get(openapi::answer))
        .fallback(|| async { fault(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            let text = "no such method of this path: `allow` lists them";
            fault(StatusCode::METHOD_NOT_ALLOWED, text)
        })
        .route(
            "/v1/log",
            get(|State(shown): State<Shown>| async move { Json(shown.log.view.clone()) }),
        )
        .with_state(Shown {
            queries,
            metrics,
            log,
            others,
            counters,
            callers: Arc::default(),
        })
}

/// The routes of the listener for probes, which requires no token: health and readiness, and metrics if that is
/// configured.
pub fn probe_routes(queries: PendingQueries, metrics: Option<Arc<Metrics>>) -> Router {
    let ready = |State(queries): State<PendingQueries>| async move { readiness_of(&queries).await };
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(queries.clone());
    let Some(metrics) = metrics else {
        return routes;
    };
    let seen = get(move || async move { metrics_of(&queries, &metrics).await });
    routes.route("/metrics", seen)
}

/// The answer if too many requests wait for a long job.
fn busy(counters: &HttpCounters) -> Response {
    HttpCounters::add(&counters.busy);
    let text = "too many requests for lists or explanations; try again";
    let answer = fault(StatusCode::SERVICE_UNAVAILABLE, text);
    ([(header::RETRY_AFTER, "1")], answer).into_response()
}

fn fault(status: StatusCode, error: impl Into<String>) -> Response {
    let view = FaultView {
        schema: "tollgate.error/1".into(),
        error: error.into(),
        code: None,
    };
    (status, Json(view)).into_response()
}

fn silent() -> Response {
    fault(StatusCode::SERVICE_UNAVAILABLE, "the core does not answer")
}

async fn readiness(State(shown): State<Shown>) -> Response {
    readiness_of(&shown.queries).await
}

async fn readiness_of(queries: &PendingQueries) -> Response {
    match queries.ask(Query::Readiness).await {
        Some(Reply::Readiness(view)) => {
            let status = if view.ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            (status, Json(view)).into_response()
        }
        _ => silent(),
    }
}

async fn metrics_text(State(shown): State<Shown>) -> Response {
    metrics_of(&shown.queries, &shown.metrics).await
}

async fn metrics_of(queries: &PendingQueries, metrics: &Arc<Metrics>) -> Response {
    let Some(turn) = METRICS.turn().await else {
        return silent();
    };
    match queries.ask(Query::Counters).await {
        Some(Reply::Counters(counted)) => {
            let metrics = Arc::clone(metrics);
            let written = ANSWERS.run(&turn, move || metrics.render(&counted)).await;
            let form = "text/plain; version=0.0.4; charset=utf-8";
            let answer = |text| ([(header::CONTENT_TYPE, form)], text).into_response();
            written.map_or_else(silent, answer)
        }
        _ => silent(),
    }
}

async fn digests(State(shown): State<Shown>) -> Response {
    match shown.queries.ask(Query::Digests).await {
        Some(Reply::Digests(view)) => Json(view).into_response(),
        _ => silent(),
    }
}
