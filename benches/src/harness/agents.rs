//! Agents for benchmarks.

use tollgate_agent::Agent;

/// An agent that sends to this aggregator and hears from it.
///
/// # Errors
///
/// Where its settings are bad; never because of the network.
pub fn connected(name: &str, aggregator: &str) -> anyhow::Result<Agent> {
    Ok(Agent::builder().name(name).aggregator(aggregator).build()?)
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
