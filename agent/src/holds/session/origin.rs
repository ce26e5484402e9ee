//! Where an agent comes from: its epoch, and the one before it.

use tollgate_shared::epoch::EpochSecret;

/// Where an agent comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) epoch: u128,
    /// The epoch of the same agent before it, if that is known.
    pub(crate) replaces: Option<u128>,
}

impl Origin {
    /// Of a process with this secret, that comes after one with the other.
    pub(crate) fn new(secret: EpochSecret, before: Option<EpochSecret>) -> Self {
        Self {
            epoch: secret.epoch(),
            replaces: before.map(|before| before.epoch()),
        }
    }
}
