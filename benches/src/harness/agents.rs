//! Agents for benchmarks.

use std::path::Path;

use tollgate_agent::{Agent, AgentBuilder};

use super::secured;

/// An agent that sends to this aggregator and hears from it.
///
/// # Errors
///
/// Where its settings are bad; never because of the network.
pub fn connected(name: &str, aggregator: &str) -> anyhow::Result<Agent> {
    Ok(Agent::builder().name(name).aggregator(aggregator).build()?)
}

/// An agent by a place: see [`builder`].
///
/// # Errors
///
/// Where its settings are bad, or the place is of another form.
pub fn connected_by(name: &str, place: &[String]) -> anyhow::Result<Agent> {
    Ok(builder(name, place)?.build()?)
}

/// The settings of an agent by a place: the address of its aggregator and, where that speaks TLS, the directory of the
/// keys; or, where the agent is to write to Kafka directly, bootstrap servers and topic prefix.
///
/// # Errors
///
/// Where the place is of another form.
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

/// Waits for what an agent does in the background.
///
/// # Errors
///
/// Where no runtime can be made.
pub fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(future))
}
