//! gRPC at an address of its own: Envoy's rate limit service and external authorization, Kuadrant's, health and reflection.
//!
//! ```text
//! connection ── HTTP/2 ──> path ──┬─ services  texts ── rls ── asks ── decision ──> agent
//!                                 ├─ check     authorize ─────────────────────────> agent
//!                                 └─ health, reflection
//! ```
//!
//! Knows nothing of limits. What stays true: a peer that says nothing, reads nothing, or sends what is not gRPC costs a
//! bounded part of memory for a bounded time; what a connection holds ends with it.

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

use self::check::Check;
use self::holds::{ConnectionId, EnvoyHolds};
use self::rls::Rls;
use self::services::{EnvoyRls, Kuadrant};
use crate::connections::{Connection, EndReason, MeteredBody};
use crate::listen::{Accepted, stopped};
use crate::state::Shared;

/// The most bytes of a request. Descriptors take some hundred; a check may bring a part of the request's body along.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Requests at once of one connection: answers take microseconds, and Envoy opens another connection where these are
/// taken.
const STREAMS_MAX: u32 = 128;

/// The most bytes of a request's headers. Those of gRPC have some hundred, but Envoy passes on what a client wrote into
/// `tracestate` where it traces: as much as its own bound on heads allows, 60 KiB. A request that is refused for it goes on
/// without limits.
const HEADERS_BYTES_MAX: u32 = 64 << 10;

/// Headers of so many bytes are nobody's business; greater ones count as a part of the body that is to come.
const HEADERS_BYTES_FREE: usize = 4 << 10;

/// What a header takes beside its name and value.
const HEADER_BYTES: usize = 96;

/// How long a request may take from its head to its answer, message included.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// What a client of HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Within what time it has to be there.
const PREFACE_WITHIN: Duration = Duration::from_secs(5);

/// How often it is looked for meanwhile.
const PREFACE_EVERY: Duration = Duration::from_millis(10);

/// A silent connection is asked whether it is there so often, and has as long to answer.
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
        // Each of them is there from now on: a gateway that hears no aggregator answers all the same.
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_serving::<EnvoyRls>().await;
        reporter.set_serving::<AuthorizationServer<Check>>().await;
        reporter.set_serving::<Kuadrant>().await;
        let mut routes = Routes::new(EnvoyRls(rls.clone()))
            .add_service(check.max_decoding_message_size(MESSAGE_BYTES_MAX))
            .add_service(Kuadrant(rls))
            .add_service(health);
        // Both versions: which one a tool asks for depends on its age.
        if let (Ok(newer), Ok(older)) = (described().build_v1(), described().build_v1alpha()) {
            routes = routes.add_service(newer).add_service(older);
        }
        Self {
            routes: routes.prepare(),
            holds,
            connections: Arc::default(),
        }
    }

    /// Answers what one connection asks.
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
        // The first is not 0, which stands for none.
        let id = ConnectionId(1 + self.connections.fetch_add(1, Ordering::Relaxed));
        let _ended = EndsHolds(&self.holds, id);
        let service = hyper::service::service_fn(|mut request: axum::http::Request<Incoming>| {
            request.extensions_mut().insert(id);
            let head_bytes = metered_bytes(request.headers());
            let metered = |body| MeteredBody::new(body, Arc::clone(&open), head_bytes);
            // Routes are always ready.
            let answered = self.routes.clone().call(request.map(metered));
            in_time(answered, Arc::clone(&open))
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

/// What headers take of memory, where that is much: they are kept until the message is there.
fn metered_bytes(headers: &HeaderMap) -> usize {
    let sizes = headers.iter();
    let sizes = sizes.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
    match sizes.sum() {
        0..=HEADERS_BYTES_FREE => 0,
        bytes => bytes,
    }
}

/// An answer, or that its request took too long: its message did not come.
async fn in_time<E>(
    answered: impl Future<Output = Result<Response<Body>, E>>,
    connection: Arc<Connection>,
) -> Result<Response<Body>, E> {
    connection.begin_request();
    let answered = timeout(REQUEST_WITHIN, answered).await;
    connection.end_request();
    answered.unwrap_or_else(|_| {
        connection.note(EndReason::SlowRequest);
        Ok(Status::deadline_exceeded("expected the request within 5 s").into_http())
    })
}

/// What reflection tells: the services of `describe`, and health.
fn described() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(include_bytes!("services.bin"))
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Ends what a connection holds, when it is over.
struct EndsHolds<'a>(&'a EnvoyHolds, ConnectionId);

impl Drop for EndsHolds<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

/// Whether a peer begins as clients of HTTP/2 do. What it has sent is left to be read.
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
