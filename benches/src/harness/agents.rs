//! Agents for benchmarks.

use std::path::Path;

use tokio::runtime::Runtime;
use tollgate_agent::{Agent, AgentBuilder};

use super::secured;

/// An agent that uses this aggregator.
///
/// # Errors
///
/// If its settings are invalid; never because of the network.
pub fn connected(name: &str, aggregator: &str) -> anyhow::Result<Agent> {
    Ok(Agent::builder().name(name).aggregator(aggregator).build()?)
}

/// An agent of a place: see [`builder`].
///
/// # Errors
///
/// If its settings are invalid, or the place has another form.
pub fn connected_by(name: &str, place: &[String]) -> anyhow::Result<Agent> {
    Ok(builder(name, place)?.build()?)
}

/// The settings of an agent of a place. A place is the address of its aggregator and, with TLS, the
/// directory of the keys; or bootstrap servers and topic prefix, if the agent writes to Kafka
/// directly.
///
/// # Errors
///
/// If the place has another form.
pub fn builder(name: &str, place: &[String]) -> anyhow::Result<AgentBuilder> {
    let [address, more @ ..] = place else {
        anyhow::bail!("a place: {place:?}");
    };
    let builder = Agent::builder().name(name).aggregator(address);
    Ok(match more {
        [] => builder,
        [dir] => builder
            .tls_ca_file(secured::file(Path::new(dir), "ca.pem"))
            .tls_server_name(secured::SERVER_NAME)
            .token_file(secured::file(Path::new(dir), "agents.token")),
        [bootstrap, prefix] => builder.kafka(bootstrap).kafka_topic_prefix(prefix),
        _ => anyhow::bail!("a place: {place:?}"),
    })
}

/// A runtime of the calling thread.
///
/// # Errors
///
/// If none can be created.
pub fn current_thread() -> anyhow::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime)
}

/// Waits for a future of the agent.
///
/// # Errors
///
/// If no runtime can be created.
pub fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    Ok(current_thread()?.block_on(future))
}
