//! What an agent draws at random, chosen by whoever drives one by hand.

use tollgate_shared::epoch::EpochSecret;

/// All that an agent otherwise draws at random.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// The secret of its epoch.
    pub secret: EpochSecret,
    /// Seeds its fingerprints.
    pub seed: u64,
    /// Its nonces count on from this.
    pub nonce: u64,
}
