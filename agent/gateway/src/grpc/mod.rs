//! gRPC at an address of its own: Envoy's rate limit service and external authorization, Kuadrant's, health and reflection.
//!
//! ```text
//! connection ── HTTP/2 ──> path ──┬─ services  texts ── rls ── asks ── decision ──> agent
//!                                 ├─ check     authorize ─────────────────────────> agent
//!                                 └─ health, reflection
//! ```
//!
//! Knows nothing of limits. What stays true: a peer that sends nothing, reads nothing, or sends something other than
//! gRPC costs bounded memory for a bounded time; what a connection holds ends with it.

mod arrivals;
mod asks;
mod check;
mod decision;
mod holds;
mod rls;
mod services;
mod texts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, Response};
use envoy_types::pb::envoy::service::auth::v3::authorization_server::AuthorizationServer;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use self::arrivals::ConnectionId;
use self::check::Check;
use self::holds::{EnvoyHolds, Unanswered};
use self::rls::Rls;
use self::services::{EnvoyRls, Kuadrant};
use crate::connections::{Connection, EndReason, MeteredBody};
use crate::listen::{Accepted, stopped};
use crate::state::Shared;

/// The most bytes of a request. Descriptors take some hundred; a check may contain a part of the request's body.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Requests at once of one connection: answers take microseconds, and Envoy opens another connection if all are in
/// use.
const STREAMS_MAX: u32 = 128;

/// The most bytes of a request's headers. Those of gRPC have some hundred, but if Envoy traces, it passes on the
/// client's `tracestate`: up to its own bound on heads, 60 KiB. A request that is refused for its headers proceeds
/// without limits.
const HEADERS_BYTES_MAX: u32 = 64 << 10;

/// Headers up to this size are not counted; greater ones count like a part of the expected body.
const HEADERS_BYTES_FREE: usize = 4 << 10;

/// What a header takes beside its name and value.
const HEADER_BYTES: usize = 96;

/// How long a request may take from its head to its answer, message included.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long they may take.
const PREFACE_WITHIN: Duration = Duration::from_secs(5);

/// How often to look for them meanwhile.
const PREFACE_EVERY: Duration = Duration::from_millis(10);

/// How often a silent connection is pinged, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(10);

/// The services of all connections; cheap to clone.
#[derive(Clone)]
pub(crate) struct Grpc {
    routes: Routes,
    holds: Arc<EnvoyHolds>,
    connections: Arc<AtomicU64>,
}

impl Grpc {
    pub async fn new(shared: &Shared) -> Self {
        let holds = Arc::new(EnvoyHolds::default());
        let rls = Rls::new(shared, Arc::clone(&holds));
        let check = AuthorizationServer::new(Check(shared.clone()));
        // All are serving from now on: a gateway without an aggregator answers all the same.
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_serving::<EnvoyRls>().await;
        reporter.set_serving::<AuthorizationServer<Check>>().await;
        reporter.set_serving::<Kuadrant>().await;
        let mut routes = Routes::new(EnvoyRls(rls.clone()))
            .add_service(check.max_decoding_message_size(MESSAGE_BYTES_MAX))
            .add_service(Kuadrant(rls))
            .add_service(health);
        // Both versions: older tools use the older one.
        if let (Ok(newer), Ok(older)) = (described().build_v1(), described().build_v1alpha()) {
            routes = routes.add_service(newer).add_service(older);
        }
        Self {
            routes: routes.prepare(),
            holds,
            connections: Arc::default(),
        }
    }

    /// Answers the requests of one connection.
    pub async fn answer(
        self,
        stream: Accepted,
        open: Arc<Connection>,
        mut stop: watch::Receiver<bool>,
    ) {
        let Accepted::Tcp(stream) = stream else {
            return;
        };
        let speaks = tokio::select! {
            speaks = speaks_http2(&stream) => speaks,
            () = stopped(&mut stop) => return,
        };
        if !speaks {
            return Shared::note("bad_connection");
        }
        // The first is not 0, which means "no connection".
        let id = ConnectionId(1 + self.connections.fetch_add(1, Ordering::Relaxed));
        let _ended = EndsHolds(&self.holds, id);
        let service = hyper::service::service_fn(|mut request: axum::http::Request<Incoming>| {
            // Called in the order in which heads come; what it returns runs at once with others.
            let unanswered = Unanswered::new(&self.holds);
            request.extensions_mut().insert(unanswered.arrival(id));
            let head_bytes = metered_bytes(request.headers());
            let metered = |body| MeteredBody::new(body, Arc::clone(&open), head_bytes);
            // Routes are always ready.
            let answered = self.routes.clone().call(request.map(metered));
            in_time(answered, Arc::clone(&open), unanswered)
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(PING_EVERY))
            .keep_alive_timeout(PING_EVERY)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADERS_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// The memory of headers, if it is much: they are kept until the message has arrived.
fn metered_bytes(headers: &HeaderMap) -> usize {
    let sizes = headers.iter();
    let sizes = sizes.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
    match sizes.sum() {
        0..=HEADERS_BYTES_FREE => 0,
        bytes => bytes,
    }
}

/// The answer, or an error that the request took too long: its message did not arrive.
async fn in_time<E>(
    answered: impl Future<Output = Result<Response<Body>, E>>,
    connection: Arc<Connection>,
    unanswered: Unanswered,
) -> Result<Response<Body>, E> {
    connection.begin_request();
    let answered = timeout(REQUEST_WITHIN, answered).await;
    connection.end_request();
    drop(unanswered);
    answered.unwrap_or_else(|_| {
        connection.note(EndReason::SlowRequest);
        Ok(Status::deadline_exceeded("expected the request within 5 s").into_http())
    })
}

/// The services that reflection lists: those of `describe`, and health.
fn described() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(include_bytes!("services.bin"))
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Ends a connection's holds when it is dropped.
struct EndsHolds<'a>(&'a EnvoyHolds, ConnectionId);

impl Drop for EndsHolds<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

/// Whether a peer begins like an HTTP/2 client. Its bytes stay unread.
async fn speaks_http2(stream: &TcpStream) -> bool {
    let begins = async {
        let mut begin = [0; PREFACE.len()];
        loop {
            match stream.peek(&mut begin).await {
                Ok(0) | Err(_) => return false,
                Ok(len) if !PREFACE.starts_with(begin.get(..len).unwrap_or_default()) => {
                    return false;
                }
                Ok(len) if len == PREFACE.len() => return true,
                Ok(_) => tokio::time::sleep(PREFACE_EVERY).await,
            }
        }
    };
    matches!(tokio::time::timeout(PREFACE_WITHIN, begins).await, Ok(true))
}
