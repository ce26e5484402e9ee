//! The gateway as a process runs it: HTTP at one address, gRPC at another, and the shutdown of both.
//!
//! What stays true: header and body of a request have bounds in bytes and time, and so has the reading of its answer;
//! the agent sends what it recorded after the last answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tollgate_agent::Agent;

use crate::authorize::{authorize, authorize_below};
use crate::browsers;
use crate::connections::{Connection, MeteredBody, connections_max};
use crate::decide::decide;
use crate::grpc::Grpc;
use crate::listen::{Accepted, END_WITHIN, Listen, ListenError, Listener, stopped};
use crate::openapi;
use crate::patient::PatientStream;
use crate::state::{Settings, Shared};

/// How long a connection may wait for its next request: web servers keep theirs for about as long, and if the gateway
/// closes one too early, a request goes undecided. A head in progress has less time.
const IDLE_WITHIN: Duration = Duration::from_secs(60);

/// The most bytes of a request's head. Web servers pass on their clients' headers: nginx accepts 32 KiB and Envoy 60.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How often leases are checked: copies come back at most that much later.
const LEASES_EVERY: Duration = Duration::from_millis(100);

/// A gateway that is bound to its address.
pub struct Gateway {
    listener: Listener,
    routes: Router,
    grpc: Option<Listener>,
    shared: Shared,
}

impl Gateway {
    /// Listens for HTTP. Requests are answered only by [`Gateway::serve`].
    ///
    /// # Errors
    ///
    /// [`ListenError`], if the address is not a loopback address or cannot be bound.
    pub async fn bind(
        listen: &Listen,
        agent: Agent,
        settings: Settings,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Self, ListenError> {
        let listener = Listener::bind(listen).await?;
        if metrics.is_some() {
            crate::described::describe();
        }
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
    /// [`ListenError`], if the address is not a loopback address or cannot be bound.
    pub async fn with_grpc(self, address: SocketAddr) -> Result<Self, ListenError> {
        let listener = Listener::bind(&Listen::Loopback(address)).await?;
        Ok(Self {
            grpc: Some(listener),
            ..self
        })
    }

    /// The address of HTTP, if it listens on one; the real port also if port 0 was configured.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// The address of gRPC, if it is enabled.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().and_then(Listener::address)
    }

    /// Answers until `stop` becomes true or is dropped; then completes requests in progress, and sends what the agent
    /// has recorded.
    pub async fn serve(self, stop: watch::Receiver<bool>) {
        let Self {
            listener,
            routes,
            grpc,
            shared,
        } = self;
        let addresses = 1 + u64::from(grpc.is_some());
        let max = connections_max(getrlimit(Resource::Nofile).current, addresses);
        let stopping = stop.clone();
        let http = listener.serve(max, stop.clone(), |stream, connection| {
            answer(stream, connection, routes.clone(), stopping.clone())
        });
        let served = Grpc::new(&shared).await;
        let grpc = async {
            if let Some(listener) = grpc {
                let answer =
                    |stream, connection| served.clone().answer(stream, connection, stop.clone());
                listener.serve(max, stop.clone(), answer).await;
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

async fn answer(
    stream: Accepted,
    connection: Arc<Connection>,
    routes: Router,
    stop: watch::Receiver<bool>,
) {
    match stream {
        Accepted::Tcp(stream) => answer_http(stream, connection, routes, stop).await,
        Accepted::Unix(stream) => answer_http(stream, connection, routes, stop).await,
    }
}

async fn answer_http(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    connection: Arc<Connection>,
    routes: Router,
    mut stop: watch::Receiver<bool>,
) {
    let io = PatientStream::new(io, Arc::clone(&connection));
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: Request<Incoming>| {
        connection.begin_request();
        request.extensions_mut().insert(Arc::clone(&connection));
        let metered = |body| Body::new(MeteredBody::new(body, Arc::clone(&connection), 0));
        let answered = routes.call(request.map(metered));
        let connection = Arc::clone(&connection);
        async move {
            let answered = answered.await;
            connection.end_request();
            answered
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection);
    // A peer that disconnects, or does not send HTTP, has ended its own connection.
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
        .route("/v1/openapi.json", get(openapi::answer))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(shown));
    let asked_directly = match listen {
        Listen::Loopback(_) => asked_directly.route_layer(from_fn(browsers::of_address)),
        Listen::Unix(_) => asked_directly.route_layer(from_fn(browsers::of_socket)),
    };
    Router::new()
        .route("/v1/authorize/{resource}", any(authorize))
        .route("/v1/authorize/{resource}/", any(authorize_below))
        .route("/v1/authorize/{resource}/{*below}", any(authorize_below))
        .merge(asked_directly)
        .with_state(shared)
}

/// Whether the agent is ready. A gateway whose agent is not answers all the same.
async fn ready(State(shared): State<Shared>) -> Response {
    match shared.agent.ready(Duration::ZERO).await {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no aggregator answers\n").into_response(),
    }
}
