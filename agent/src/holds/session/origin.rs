//! The epoch of an agent, and its predecessor's.

use tollgate_shared::epoch::EpochSecret;

/// The epoch of an agent, and its predecessor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) epoch: u128,
    /// The epoch of the agent's predecessor, if known.
    pub(crate) replaces: Option<u128>,
}

impl Origin {
    /// The origin of a process with this secret, after one with the secret `before`.
    pub(crate) fn new(secret: EpochSecret, before: Option<EpochSecret>) -> Self {
        Self {
            epoch: secret.epoch(),
            replaces: before.map(|before| before.epoch()),
        }
    }
}
