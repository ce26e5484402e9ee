//! What a core is started with.

use std::collections::BTreeMap;

use tollgate_log::{Chunks, Stream};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::Span;

use super::snapshots::Policy;

/// What a core is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The aggregator's name, in its ticks.
    pub owner: String,
    /// Where all that is drawn at random comes from: the instance, log ids, names of pushes.
    pub seed: [u8; 32],
    /// Sign what only aggregators may write.
    pub keys: Keyring,
    /// How many partitions the log has.
    pub partitions: u32,
    /// The consumer group, where there may be several that rule the same partitions.
    pub group: Option<Box<str>>,
    /// Partitions whose first record must state this generation: see [`Start::unbegun`].
    pub start: Start,
    /// Where agents find the feed, as `tcp://host:port`.
    pub feeds: Vec<Box<str>>,
    /// How often quiet topics say that they are quiet.
    pub heartbeat: Span,
    /// Whether the limits file is pushed when it differs.
    pub follow_file: bool,
    /// When snapshots are taken, if they are.
    pub snapshots: Option<Policy>,
    /// How many statements, and how many totals, of one partition may wait for the log before nothing more of it is
    /// ruled: [`WAITING_MAX`](super::recordings::WAITING_MAX), but where that is to be met.
    pub waiting_max: usize,
}

/// In what state the log was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The log's generation.
    pub generation: u32,
    /// Partitions that have no record of this generation yet. The first record that is appended to each
    /// must be the one that states it.
    pub unbegun: Vec<(Stream, u32)>,
    /// Snapshots by partition, newest first.
    pub snapshots: BTreeMap<u32, Vec<Chunks>>,
}
