//! Where the gateway listens, and who is answered: this machine alone, on a loopback address or a Unix socket.
//!
//! What stays true: connections, header and body have bounds in number, bytes and time; at the bound of connections
//! the next one waits in the kernel's queue; at the end, requests that were begun are answered.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tollgate_agent::Agent;

use crate::authorize::{authorize, authorize_below};
use crate::decide::{BODY_BYTES_MAX, decide};
use crate::state::{Settings, Shared};

/// Connections at once.
const CONNECTIONS_MAX: usize = 4_096;

/// Within what time a request's head has to be there, also of a connection that is kept open.
const HEAD_WITHIN: Duration = Duration::from_secs(60);

/// How long requests that were begun may take at the end.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address of this machine alone.
    Loopback(SocketAddr),
    /// A Unix socket. A socket that nobody listens at any more is replaced.
    Unix(PathBuf),
}

/// Why a gateway cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address can be reached by other machines.
    #[error(
        "{0} is not a loopback address: a gateway answers its own machine alone, as 127.0.0.1:7404 or a Unix socket"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {at}: {source}")]
    Bind {
        /// The address or path.
        at: String,
        /// Why not.
        source: io::Error,
    },
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A gateway that listens.
pub struct Gateway {
    listener: Listener,
    routes: Router,
    agent: Agent,
}

impl Gateway {
    /// Listens. Nobody is answered before [`Gateway::serve`].
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
        let listener = match listen {
            Listen::Loopback(address) if !address.ip().is_loopback() => {
                return Err(ListenError::NotLoopback(*address));
            }
            Listen::Loopback(address) => {
                let bound = TcpListener::bind(address).await;
                Listener::Tcp(bound.map_err(failed(address))?)
            }
            Listen::Unix(path) => {
                let bound = bind_unix(path).await;
                Listener::Unix(bound.map_err(failed(path.display()))?, path.clone())
            }
        };
        let shared = Shared {
            agent: agent.clone(),
            settings: Arc::new(settings),
        };
        Ok(Self {
            listener,
            routes: routes(shared, metrics),
            agent,
        })
    }

    /// The address, where it is one; final also where port 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }

    /// Answers until `stop` is true; then ends what was begun, and sends what calls left behind.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            let next = async {
                let permit = Arc::clone(&room).acquire_owned().await;
                (permit, accept(&self.listener).await)
            };
            // Also where all connections are taken: the end does not wait for one of them.
            let (permit, accepted) = tokio::select! {
                next = next => next,
                () = stopped(&mut stop) => break,
            };
            while connections.try_join_next().is_some() {}
            let Ok(io) = accepted else {
                // No descriptor is free: those that are may end soon.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let (routes, stop) = (self.routes.clone(), stop.clone());
            connections.spawn(async move {
                answer(io, routes, stop).await;
                drop(permit);
            });
        }
        // Whoever comes now is refused at once, and goes on without a decision.
        close(self.listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(END_WITHIN, ended).await.is_err() {
            tracing::warn!("requests that were begun did not end in time");
        }
        self.agent.shutdown(END_WITHIN).await;
    }
}

fn failed(at: impl std::fmt::Display) -> impl FnOnce(io::Error) -> ListenError {
    let at = at.to_string();
    move |source| ListenError::Bind { at, source }
}

/// Listens at a path. One that is left over from a process that was killed is taken.
///
/// Whoever may enter its directory may ask, as at a loopback address: web servers run as users of their own.
async fn bind_unix(path: &PathBuf) -> io::Result<UnixListener> {
    let listener = bind_free(path).await?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

async fn bind_free(path: &PathBuf) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if tokio::net::UnixStream::connect(path).await.is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Listens no more; a socket of the file system goes as well.
fn close(listener: Listener) {
    if let Listener::Unix(listener, path) = listener {
        drop(listener);
        // It may be gone already.
        let _ = std::fs::remove_file(path);
    }
}

/// Waits until the end is asked for, or nobody is left who could.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn accept(listener: &Listener) -> io::Result<Box<dyn Io>> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Listener::Unix(listener, _) => Ok(Box::new(listener.accept().await?.0)),
    }
}

async fn answer(io: Box<dyn Io>, routes: Router, mut stop: watch::Receiver<bool>) {
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

fn routes(shared: Shared, metrics: Option<PrometheusHandle>) -> Router {
    let shown = move || async move {
        match metrics {
            Some(metrics) => metrics.render().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    };
    Router::new()
        .route("/v1/authorize/{resource}", any(authorize))
        .route("/v1/authorize/{resource}/{*below}", any(authorize_below))
        .route("/v1/decide", post(decide))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(shown))
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
