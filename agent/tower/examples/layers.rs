//! A web service behind both layers: how often a tenant may search, and how many exports it may run at a time.
//!
//! ```text
//! cargo run -p tollgate-tower --example layers --features axum -- 127.0.0.1:8080
//! curl -i -H 'x-tenant: acme' http://127.0.0.1:8080/search
//! ```
//!
//! `TOLLGATE_AGGREGATORS=127.0.0.1:7401` names the aggregator. Without one, or while none answers, every call is let
//! through.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_agent::Agent;
use tollgate_tower::{HoldLayer, LimitLayer, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let agent = Agent::from_env()?;
    let often = LimitLayer::new(agent.rate("api.search"), key::header("x-tenant"))
        .or_domain("anonymous")
        .tell_always();
    let at_a_time =
        HoldLayer::new(agent.copies("api.exports"), key::header("x-tenant")).or_domain("anonymous");
    // Behind the handles, whose limits and denials it waits for.
    agent.ready(Duration::from_millis(500)).await;
    let routes: Router = Router::new()
        .route("/search", get(|| async { "found\n" }).layer(often))
        .route("/export", get(export).layer(at_a_time));
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    // `key::client_address` finds the address of a client only if the server states it.
    let service = routes.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(stop_signal())
        .await?;
    // Sends what calls recorded. Without the graceful end above, a signal would end the process before.
    agent.shutdown(Duration::from_secs(2)).await;
    Ok(())
}

async fn export() -> &'static str {
    tokio::time::sleep(Duration::from_secs(5)).await;
    "exported\n"
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
