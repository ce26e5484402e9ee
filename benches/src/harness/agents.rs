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

/// An agent by a place: the address of its aggregator and, where it is to write to Kafka directly, bootstrap
/// servers and topic prefix.
///
/// # Errors
///
/// Where its settings are bad, or the place is of another form.
pub fn connected_by(name: &str, place: &[String]) -> anyhow::Result<Agent> {
    match place {
        [address] => connected(name, address),
        [address, bootstrap, prefix] => {
            let builder = Agent::builder().name(name).aggregator(address);
            Ok(builder
                .kafka(bootstrap)
                .kafka_topic_prefix(prefix)
                .build()?)
        }
        _ => anyhow::bail!("a place: {place:?}"),
    }
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
