//! The gateway as a process runs it: HTTP at one address, gRPC at another, and the end of both.
//!
//! What stays true: header and body of a request have bounds in bytes and time; the agent sends what it recorded when
//! nobody is answered any more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tollgate_agent::Agent;

use crate::authorize::{authorize, authorize_below};
use crate::browsers;
use crate::decide::{BODY_BYTES_MAX, decide};
use crate::grpc::Grpc;
use crate::listen::{Accepted, END_WITHIN, Listen, ListenError, Listener, stopped};
use crate::state::{Settings, Shared};

/// Within what time a request's head has to be there, also of a connection that is kept open.
const HEAD_WITHIN: Duration = Duration::from_secs(60);

/// How often leases are looked at: copies come back so much later at most.
const LEASES_EVERY: Duration = Duration::from_millis(100);

/// A gateway that listens.
pub struct Gateway {
    listener: Listener,
    routes: Router,
    grpc: Option<Listener>,
    shared: Shared,
}

impl Gateway {
    /// Listens for HTTP. Nobody is answered before [`Gateway::serve`].
    ///
    /// # Errors
    ///
    /// [`ListenError`], where the address is not this machine's own or cannot be had.
    pub async fn bind(
        listen: &Listen,
        agent: Agent,
        settings: Settings,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Self, ListenError> {
        let listener = Listener::bind(listen).await?;
        let shared = Shared {
            agent,
            settings: Arc::new(settings),
            kept: Arc::default(),
        };
        Ok(Self {
            listener,
            routes: routes(listen, shared.clone(), metrics),
            grpc: None,
            shared,
        })
    }

    /// Listens for gRPC as well: Envoy's rate limit service, its external authorization, and health.
    ///
    /// # Errors
    ///
    /// [`ListenError`], where the address is not this machine's own or cannot be had.
    pub async fn with_grpc(self, address: SocketAddr) -> Result<Self, ListenError> {
        let listener = Listener::bind(&Listen::Loopback(address)).await?;
        Ok(Self {
            grpc: Some(listener),
            ..self
        })
    }

    /// The address of HTTP, where it is one; final also where port 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// The address of gRPC, if it is asked there.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().and_then(Listener::address)
    }

    /// Answers until `stop` becomes true or is dropped; then ends requests that were begun, and sends what the agent
    /// has recorded.
    pub async fn serve(self, stop: watch::Receiver<bool>) {
        let Self {
            listener,
            routes,
            grpc,
            shared,
        } = self;
        let stopping = stop.clone();
        let http = listener.serve(stop.clone(), |stream| {
            answer(stream, routes.clone(), stopping.clone())
        });
        let served = Grpc::new(&shared).await;
        let grpc = async {
            if let Some(listener) = grpc {
                let answer = |stream| served.clone().answer(stream, stop.clone());
                listener.serve(stop.clone(), answer).await;
            }
        };
        let kept = Arc::clone(&shared.kept);
        let leases = async move {
            loop {
                tokio::time::sleep(LEASES_EVERY).await;
                kept.end_leases();
            }
        };
        tokio::select! {
            _ = async { tokio::join!(http, grpc) } => {}
            () = leases => {}
        }
        shared.agent.shutdown(END_WITHIN).await;
    }
}

async fn answer(stream: Accepted, routes: Router, stop: watch::Receiver<bool>) {
    match stream {
        Accepted::Tcp(stream) => answer_http(stream, routes, stop).await,
        Accepted::Unix(stream) => answer_http(stream, routes, stop).await,
    }
}

async fn answer_http(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    routes: Router,
    mut stop: watch::Receiver<bool>,
) {
    let service = TowerToHyperService::new(routes);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .serve_connection::<_, _>(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection);
    // A peer that breaks off, or sends what is not HTTP, has ended its own connection.
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

fn routes(listen: &Listen, shared: Shared, metrics: Option<PrometheusHandle>) -> Router {
    let shown = move || async move {
        match metrics {
            Some(metrics) => metrics.render().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    };
    let asked_directly = Router::new()
        .route("/v1/decide", post(decide))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(shown));
    let asked_directly = match listen {
        Listen::Loopback(_) => asked_directly.route_layer(from_fn(browsers::of_address)),
        Listen::Unix(_) => asked_directly.route_layer(from_fn(browsers::of_socket)),
    };
    Router::new()
        .route("/v1/authorize/{resource}", any(authorize))
        .route("/v1/authorize/{resource}/{*below}", any(authorize_below))
        .merge(asked_directly)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

/// Whether the aggregators are heard. A gateway that hears nobody answers all the same.
async fn ready(State(shared): State<Shared>) -> Response {
    match shared.agent.ready(Duration::ZERO).await {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no aggregator is heard\n").into_response(),
    }
}
