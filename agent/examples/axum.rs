//! A web service that limits how often a tenant may search.
//!
//! ```text
//! cargo run -p tollgate-agent --example axum --features axum -- 127.0.0.1:8080
//! curl -i -H 'x-tenant: acme' http://127.0.0.1:8080/search
//! ```
//!
//! `TOLLGATE_AGGREGATORS=127.0.0.1:7401` names the aggregator. Without one, or while none answers, the service works
//! all the same: calls are let through, at the same cost, and counted.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_agent::{Agent, Denied, Rate};

#[derive(Clone)]
struct App {
    search: Rate,
}

/// Refused calls end at the `?`: 429, with Retry-After.
async fn search(State(app): State<App>, headers: HeaderMap) -> Result<Response, Denied> {
    // Bytes that are not UTF-8 must not make the header absent: a client could send some to pass uncounted.
    let tenant = headers
        .get("x-tenant")
        .map(|tenant| String::from_utf8_lossy(tenant.as_bytes()));
    let allowed = app.search.hit(&tenant.unwrap_or_default())?;
    Ok((allowed.headers(), "found\n").into_response())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    // Fails on bad settings, never on the network.
    let agent = Agent::from_env()?;
    let app = App {
        search: agent.rate("api.search"),
    };
    // Optional: start with the limits and denials of these handles, if they arrive soon.
    agent.ready(Duration::from_millis(500)).await;
    let routes = Router::new().route("/search", get(search)).with_state(app);
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop_signal())
        .await?;
    // Sends what calls recorded, for at most this long.
    agent.shutdown(Duration::from_secs(2)).await;
    Ok(())
}

/// Waits for SIGINT, or for SIGTERM, by which systemd and Kubernetes end a service.
async fn stop_signal() {
    // If signals cannot be caught, the service ends like any process.
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
