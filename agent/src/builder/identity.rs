//! The random values of an agent, chosen by a test that drives the agent by hand.

use tollgate_shared::epoch::EpochSecret;

/// Everything that an agent otherwise draws at random.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The agent's name.
    pub name: String,
    /// The secret of the agent's epoch.
    pub secret: EpochSecret,
    /// The seed of the agent's fingerprints.
    pub seed: u64,
    /// The agent's first nonce.
    pub nonce: u64,
}
