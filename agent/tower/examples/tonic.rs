//! A gRPC service behind a layer: how often a tenant may call it. Refused calls get `grpc-status: 8`
//! (RESOURCE_EXHAUSTED) and `grpc-retry-pushback-ms`, which clients with a retry policy obey.
//!
//! ```text
//! cargo run -p tollgate-tower --example tonic -- 127.0.0.1:50051
//! grpcurl -plaintext -H 'x-tenant: acme' 127.0.0.1:50051 grpc.health.v1.Health/Check
//! ```
//!
//! The service here is gRPC's own health check; put yours in its place. `TOLLGATE_AGGREGATORS=127.0.0.1:7401` names
//! the aggregator. Without one, or while none answers, every call is let through.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tollgate_agent::Agent;
use tollgate_tower::{LimitLayer, key};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    let agent = Agent::from_env()?;
    let layer =
        LimitLayer::new(agent.rate("api.search"), key::header("x-tenant")).or_domain("anonymous");
    // Behind the handle, whose limits and denials it waits for.
    agent.ready(Duration::from_millis(500)).await;
    let (_reporter, health) = tonic_health::server::health_reporter();
    println!("listening on {address}");
    Server::builder()
        .layer(layer)
        .add_service(health)
        .serve_with_shutdown(address.parse()?, stop_signal())
        .await?;
    // Sends what calls recorded. Without the graceful end above, a signal would end the process before.
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
