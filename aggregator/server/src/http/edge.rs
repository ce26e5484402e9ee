//! HTTP connections: bounds on their number, their time, and what they may send.
//!
//! ```text
//! connect ── header within 5 s ── host, body of at most 64 KiB within 5 s ── routes ── answer ──┐
//!              ↑                                                                                │
//!              └── the next request on the same connection, or its end after 5 s ───────────────┘
//! ```
//!
//! At 256 connections, one of the address with the most connections makes room for a new one: the one that has been
//! idle longest since an answer, else the one that has waited longest for its first request, else the one that has
//! been answered longest. So a peer that opens many connections, silent or not, keeps out no others, least of all
//! health checks.
//!
//! With TLS, the handshake comes first, within the time for a header. Where tokens are required, each request is
//! answered under the grant of its own token, or of the connection's certificate ([`super::guard`]).
//!
//! Knows nothing of answers. What stays true: a connection whose peer does not go on ends; each closed connection is
//! counted, and at most one a second is logged.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::RETRY_AFTER;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tollgate_shared::log_lines::excerpt;
use tollgate_tls::Certificate;
use tracing::Instrument as _;

use super::fault;
use super::guard;
use super::hosts::Hosts;
use super::places::{ConnectionPlace, ConnectionStage, Places};
use crate::edge::OperatorLines;
use crate::security::Access;

/// How long a request's header may take, from the connection's start or the previous answer.
const HEADER_WITHIN: Duration = Duration::from_secs(5);

/// How long a request's body may take after its header.
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// How long a peer may go without reading any of an answer.
const READS_WITHIN: Duration = Duration::from_secs(10);

/// The most bytes of a request's body: an amendment with the longest names and reasons has some thousands.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The most bytes of a request's header.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Connections that may be open.
pub const CONNECTIONS_MAX: usize = 256;

/// How long accepting pauses after an error: descriptors have to become free first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The edge's counters.
#[derive(Debug, Default)]
pub struct HttpCounters {
    /// Connections that are open.
    pub open: AtomicU64,
    /// Connections that were closed to make room for others, or that found no room.
    pub turned_away: AtomicU64,
    /// Connections that ended because their peer did not go on.
    pub stalled: AtomicU64,
    /// Requests for a host that is not this aggregator's.
    pub strange_hosts: AtomicU64,
    /// Requests with too large a body.
    pub too_large: AtomicU64,
    /// Times that accepting a connection failed.
    pub accept_errors: AtomicU64,
    /// Amendments that were refused because their caller asks for too many.
    pub amendments_refused: AtomicU64,
    /// Requests for lists and explanations that were refused because too many wait.
    pub busy: AtomicU64,
    /// Requests that were refused for lack of a token, or of a role.
    pub unauthorised: AtomicU64,
    /// Connections whose TLS handshake failed.
    pub tls_failed: AtomicU64,
}

impl HttpCounters {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Serves the routes on a listener, until the runtime ends.
pub async fn serve(
    (listener, access): (TcpListener, Access),
    routes: Router,
    hosts: Hosts,
    counters: Arc<HttpCounters>,
) {
    let edge = Arc::new(Edge {
        routes: TowerToHyperService::new(routes),
        access,
        hosts,
        places: Arc::new(Places::new(CONNECTIONS_MAX)),
        counters,
        lines: OperatorLines::default(),
    });
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                HttpCounters::add(&edge.counters.accept_errors);
                edge.lines.not_accepted("http", &error);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = Places::enter(&edge.places, peer.ip(), &edge.counters);
        let edge = Arc::clone(&edge);
        let span = tracing::info_span!("http", %peer);
        tokio::spawn(async move { edge.serve_one(stream, peer, place).await }.instrument(span));
    }
}

struct Edge {
    routes: TowerToHyperService<Router>,
    access: Access,
    hosts: Hosts,
    places: Arc<Places>,
    counters: Arc<HttpCounters>,
    lines: OperatorLines,
}

impl Edge {
    async fn serve_one(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        place: ConnectionPlace,
    ) {
        let place = Arc::new(place);
        tokio::select! {
            () = Arc::clone(&self).converse(stream, peer, &place) => {}
            () = place.ended.notified() => {
                let what = format_args!("made room: {CONNECTIONS_MAX} connections, most of them its address's");
                self.lines.of_http(what);
            }
        }
    }

    async fn converse(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        place: &Arc<ConnectionPlace>,
    ) {
        let Some((tls, handshakes)) = &self.access.tls else {
            return self.answer_all(stream, (peer, None), place).await;
        };
        let acceptor = TlsAcceptor::from(tls.config());
        let handshake = timeout(HEADER_WITHIN, acceptor.accept(stream));
        match handshakes.run(handshake).await {
            Some(Ok(Ok(stream))) => {
                let certificate = Certificate::of_peer(stream.get_ref().1.peer_certificates());
                self.answer_all(stream, (peer, certificate), place).await;
            }
            Some(Ok(Err(error))) => {
                HttpCounters::add(&self.counters.tls_failed);
                self.lines.of_http(format_args!("no TLS: {error}"));
            }
            Some(Err(_)) => self.stalled("a TLS handshake"),
            None => {}
        }
    }

    async fn answer_all<S>(
        self: Arc<Self>,
        stream: S,
        (peer, certificate): (SocketAddr, Option<Certificate>),
        place: &Arc<ConnectionPlace>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (edge, own) = (Arc::clone(&self), Arc::clone(place));
        let certificate = Arc::new(certificate);
        let service = service_fn(move |request: Request<Incoming>| {
            let (edge, place) = (Arc::clone(&edge), Arc::clone(&own));
            let certificate = Arc::clone(&certificate);
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(Caller(peer));
                let certificate = certificate.as_ref().as_ref();
                let span = request_span(&request);
                let answered = edge.answer(request, certificate, &place);
                let response = answered.instrument(span).await;
                Ok::<Response, Infallible>(response)
            }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_WITHIN)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(Patient::new(stream)), service);
        if let Err(error) = served.await {
            tracing::debug!(%error, "a connection for HTTP ended");
            // A connection that is kept open for another request may end without being counted.
            let is_idle = error.is_timeout() && place.answered.load(Ordering::Relaxed);
            if !is_idle && (error.is_timeout() || is_timed_out(&error)) {
                self.stalled("a header, or the reading of an answer,");
            }
        }
    }

    fn stalled(&self, what: &str) {
        HttpCounters::add(&self.counters.stalled);
        let what = format_args!("{what} took too long: the connection was closed");
        self.lines.of_http(what);
    }

    async fn answer(
        &self,
        mut request: Request<Body>,
        certificate: Option<&Certificate>,
        place: &ConnectionPlace,
    ) -> Response {
        if let Some(host) = self.hosts.stranger(&request) {
            HttpCounters::add(&self.counters.strange_hosts);
            let text = "this host is not one of this aggregator's; see listen.hosts";
            self.lines.of_http(format_args!("host {host:?}: {text}"));
            return fault(StatusCode::MISDIRECTED_REQUEST, text);
        }
        match guard::admit(&self.access, &request, certificate) {
            Ok(Some(grant)) => drop(request.extensions_mut().insert(grant)),
            Ok(None) => {}
            Err(refused) => {
                HttpCounters::add(&self.counters.unauthorised);
                self.lines.of_http(format_args!("{}", refused.0));
                return refused.into_response();
            }
        }
        let (head, body) = request.into_parts();
        let body = match timeout(BODY_WITHIN, to_bytes(body, BODY_BYTES_MAX)).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) if is_broken(&error) => {
                let text = "expected a whole body: it is cut short, or its chunks are not as they should be";
                self.lines.of_http(format_args!("{text}"));
                return fault(StatusCode::BAD_REQUEST, text);
            }
            Ok(Err(_)) => {
                HttpCounters::add(&self.counters.too_large);
                let text = format!("expected a body of at most {BODY_BYTES_MAX} bytes");
                self.lines.of_http(format_args!("{text}"));
                return fault(StatusCode::PAYLOAD_TOO_LARGE, text);
            }
            Err(_) => {
                self.stalled("a body");
                let text = "the body did not come in time";
                return fault(StatusCode::REQUEST_TIMEOUT, text);
            }
        };
        let request = Request::from_parts(head, Body::from(body));
        self.places.set(place.id, ConnectionStage::Answered);
        let answered = self.routes.call(request).await;
        self.places.set(place.id, ConnectionStage::Idle);
        place.answered.store(true, Ordering::Relaxed);
        let answered = answered.unwrap_or_else(|never| match never {});
        // Too many requests for lists wait, or a caller asks for too many amendments. The span names the caller.
        if answered.headers().contains_key(RETRY_AFTER) {
            let status = answered.status().as_u16();
            self.lines
                .of_http(format_args!("{status}: too many requests at once"));
        }
        answered
    }
}

/// The span of one request's log lines. The query is left out: it may be long, and the answer names what it named.
fn request_span(request: &Request<Body>) -> tracing::Span {
    let path = excerpt(request.uri().path());
    tracing::info_span!("request", method = %request.method(), %path)
}

/// Whether a body could not be read because of how it came, and not because it is too long.
fn is_broken(error: &axum::Error) -> bool {
    std::iter::successors(std::error::Error::source(error), |&error| error.source())
        .any(|error| error.is::<hyper::Error>())
}

/// Whether a connection ended because its peer read nothing for too long.
fn is_timed_out(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    let of_io = source.and_then(|source| source.downcast_ref::<io::Error>());
    of_io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller(pub SocketAddr);

/// A stream whose peer has to take some of the written bytes within [`READS_WITHIN`].
struct Patient<S> {
    stream: S,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    const fn new(stream: S) -> Self {
        Self {
            stream,
            stuck: None,
        }
    }

    fn wait<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let stuck = self
            .stuck
            .get_or_insert_with(|| Box::pin(sleep(READS_WITHIN)));
        match stuck.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wait(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS has buffered bytes that the peer has not taken: the wait for them is here.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.wait(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
